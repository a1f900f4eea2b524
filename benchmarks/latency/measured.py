# SPDX-License-Identifier: Apache-2.0
"""Latency on this machine's processor: a process for each compiler, which run in turn."""

import statistics
import time
import warnings

import networks
import spmdx
import torch
from turns import workers

WARM = 1  # runs before any is timed: plans, kernels and their comparison, memory


def serve(pipe, compiler, check, work):
    """In a process of its own: runs once for each message, until one is None."""
    torch.set_num_threads(1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if compiler != "aten":
            spmdx.set_compiler(compiler, check=check, compile_now=True)
        run = runner(work)
        for _ in range(WARM):
            run()
        pipe.send("ready")
        while pipe.recv():
            pipe.send(run())
    segments = spmdx.explain().segments
    said = [str(warning.message) for warning in caught]
    pipe.send({"compiled_flops": segments.compiled_flops, "said": said})


def runner(work):
    """A function that runs a batch, and gives its seconds and its result."""
    network, x = networks.network(**work)
    network, x = network.to("spmdx"), x.to("spmdx")
    spmdx.sync(wait=True)

    @torch.no_grad()
    def run():
        began = time.perf_counter()
        result = network(x).cpu()
        return time.perf_counter() - began, result.numpy()

    return run


def measured(compilers, repeats, check, work):
    """Rows: the median of runs in turn, the share of flops in kernels, how far results are off."""
    seconds, results, told = {name: [] for name in compilers}, {}, {}
    with workers(serve, {each: (each, check, work) for each in compilers}) as pipes:
        for _ in range(repeats):
            for compiler, pipe in pipes.items():
                pipe.send("run")
                taken, results[compiler] = pipe.recv()
                seconds[compiler].append(taken)
                print(f"{work['name']}: {compiler} {taken:.4g} s", flush=True)
        for compiler, pipe in pipes.items():
            pipe.send(None)
            told[compiler] = pipe.recv()
    return [
        {
            "network": work["name"],
            "batch": work["batch"],
            "sequence": work["sequence"] if work["name"] == "bert" else None,
            "layers": work["layers"] if work["name"] == "bert" else None,
            "device": "this processor, one thread",
            "by": compiler,
            "dtype": "f32",
            "ms": statistics.median(seconds[compiler]) * 1e3,
            "all_ms": [taken * 1e3 for taken in seconds[compiler]],
            "off": off(results[compiler], results["aten"]) if "aten" in results else None,
            **told[compiler],
        }
        for compiler in compilers
    ]


def off(result, expected):
    """The largest difference, as a share of the largest number."""
    return float(abs(result - expected).max() / abs(expected).max())
