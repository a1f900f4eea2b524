# SPDX-License-Identifier: Apache-2.0
"""Processes that take turns, each of which has one way to do the same work ready."""

import contextlib
import multiprocessing
import os

import torch
import torch.distributed as dist


def meet(store: str) -> int:
    """Meet the other processes over Gloo, with one thread each, and say which one this is.

    Args:
        store: a file that is not there yet; ``RANK`` and ``WORLD_SIZE`` are set.
    """
    torch.set_num_threads(1)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    return rank


@contextlib.contextmanager
def workers(serve, arguments, tells=True):
    """{name: a pipe to its process}; one is made ready at a time.

    Args:
        serve: a function of a pipe and of further arguments. It sends one message when all is
            ready, answers each that it receives, and ends at None.
        arguments: {name: the further arguments of its process}.
        tells: print who is made ready.
    """
    context = multiprocessing.get_context("spawn")
    pipes, children = {}, []
    try:
        for name, more in arguments.items():
            pipes[name], end = context.Pipe()
            children.append(context.Process(target=serve, args=(end, *more), daemon=True))
            children[-1].start()
            end.close()  # its death is seen here
            if tells:
                print(f"{name} is made ready", flush=True)
            pipes[name].recv()
        yield pipes
    finally:
        for pipe in pipes.values():
            with contextlib.suppress(OSError):
                pipe.send(None)
        for child in children:
            child.join()
