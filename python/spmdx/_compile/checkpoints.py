# SPDX-License-Identifier: Apache-2.0
"""torch.utils.checkpoint in compiled programs: what is computed again draws the same numbers.

AOTAutograd computes again by ops that save and restore the state of a device's generator; there is
one list of devices for each. Dynamo's graphs hold checkpoints as ops, too. These are made for what
traces them, and leave the generators alone where they are called.
"""

import functools
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint, noop_context_fn


def _has_nestings(body: torch.nn.Module) -> bool:
    """Whether it opens levels of torch.func, which stay open where it does not run to its end."""
    graphs = (m.graph for m in body.modules() if isinstance(m, torch.fx.GraphModule))
    called = (n.target for g in graphs for n in g.nodes if n.op == "call_function")
    return any(getattr(f, "__name__", "").endswith("increment_nesting") for f in called)


def _called(body: torch.fx.GraphModule, *args: Any, **options: Any) -> Any:
    """A checkpoint of a graph, called: it computes the graph again where autograd asks for it."""
    options["use_reentrant"] = False  # as PyTorch calls it
    contexts = body.meta.get("_checkpoint_context_fn", noop_context_fn)
    return checkpoint(body, *args, context_fn=contexts, **options)


def _call_checkpoints_of(module: torch.fx.GraphModule) -> None:
    traced = torch.ops.higher_order.tag_activation_checkpoint
    found = module.graph.find_nodes(op="call_function", target=traced)
    for node in found:
        node.target = _called
        if _has_nestings(module.get_submodule(node.args[0].target)):
            node.kwargs = {**node.kwargs, "early_stop": False}
    if found:
        module.recompile()


def call_checkpoints(graph: torch.fx.GraphModule) -> None:
    """Lets the checkpoints of a graph, and of graphs in it, be called instead of traced."""
    for module in graph.modules():
        if isinstance(module, torch.fx.GraphModule):
            _call_checkpoints_of(module)


def _device() -> Any:
    return torch.get_device_module("spmdx")


def _draw_and_save(op: Any, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, Any]:
    return _device().get_rng_state(), op(*args, **kwargs)


def _draw_again(state: torch.Tensor, op: Any, *args: Any, **kwargs: Any) -> Any:
    current = _device().get_rng_state()
    _device().set_rng_state(state)
    try:
        return op(*args, **kwargs)
    finally:
        _device().set_rng_state(current)


def _draws_here(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an op that is called so draws on this device."""
    if kwargs.get("device"):
        return torch.device(kwargs["device"]).type == "spmdx"
    tensors = [value for value in args if isinstance(value, torch.Tensor)]
    return bool(tensors) and tensors[0].device.type == "spmdx"


def _teach(op: Any, ours: Any, before: int) -> None:
    """What asks which device draws calls ``ours`` for this one: arguments come after ``before``."""
    key = torch._C.DispatchKey.BackendSelect
    others = op.py_kernels[key]

    @functools.wraps(others)
    def selected(*args, **kwargs):
        return (ours if _draws_here(args[before:], kwargs) else others)(*args, **kwargs)

    op.py_kernels[key] = selected
    op._dispatch_cache.clear()


def teach_generators(partitioners: Any) -> None:
    """Teaches the ops that save and restore states; it is partitioners that write them."""
    from torch._prims import rng_prims

    _teach(rng_prims.run_and_save_rng_state, _draw_and_save, 1)
    _teach(rng_prims.run_with_rng_state, _draw_again, 2)
