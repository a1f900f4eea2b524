# SPDX-License-Identifier: Apache-2.0
"""What torch.compile is told of the device, once a program uses it: importing spmdx does not."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from spmdx._base.after_import import after_import
from spmdx._compile import checkpoints, classes
from spmdx._manual.region import run_levels

NAME = "spmdx"

# Of what stands in these, PyTorch itself calls parts for tensors of other devices.
_TRACED = {
    "_annotate/copies.py",
    "_base/traced.py",
    "_checkpoint/protocol.py",
    "_device/conversions.py",
    "_device/printing.py",
    "_device/storages.py",
    "_device/ties.py",
}

_WHY = (
    "spmdx.{} acts when it is called, so it is called between two graphs. The device records on, "
    "so this costs nothing. Expected no fullgraph=True around it. Leave that out, or call it "
    "outside of what is compiled"
)


def record(graph: torch.fx.GraphModule, inputs: Sequence[Any], **options: Any) -> Callable:
    """The backend "spmdx" of torch.compile: the device records the ops of the graph as they are."""
    if options:
        raise ValueError(
            f'the backend "spmdx" was given {", ".join(sorted(options))}. Expected neither a mode '
            "nor options: the device plans what it records. Leave them out."
        )
    checkpoints.call_checkpoints(graph)
    return graph.forward


class _NoCode:
    """Stands where inductor makes code for a device: whatever it is asked for, it refuses."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(
            'the backend "inductor", the default of torch.compile, has no code for device '
            '"spmdx". Expected a backend that calls PyTorch\'s ops, which the device records and '
            'plans itself. Write torch.compile(..., backend="spmdx").'
        )

    def __call__(self, *args: Any) -> Any:
        return self.create(*args)


def _refuse_inductor(common: Any) -> None:
    common.register_backend_for_device(NAME, *[_NoCode()] * 4)
    common.register_device_op_overrides(NAME, common.DeviceOpOverrides())


def _teach(public: Mapping[str, Any]) -> None:
    """Registers the backend. Functions of spmdx are called between graphs, not traced."""
    from torch._dynamo import eval_frame, trace_rules, types
    from torch._dynamo.backends import registry

    registry.register_backend(record, name=NAME)
    package = Path(__file__).parents[1]
    traced = {package / name for name in _TRACED}
    trace_rules.FORCE_SKIP_FILES |= {str(f) for f in package.rglob("*.py") if f not in traced}
    skip = types.FrameExecStrategy(types.FrameAction.SKIP, types.FrameAction.SKIP)
    eval_frame.set_code_exec_strategy(run_levels.__code__, skip)
    for name, function in public.items():
        if inspect.isfunction(function) and not name.startswith("_"):
            marked: Any = function  # Dynamo reads attributes of it
            marked._torchdynamo_disable = True
            marked._torchdynamo_disable_msg = _WHY.format(name)


def install(public: Mapping[str, Any]) -> None:
    """Waits for the parts of torch.compile to be imported; once.

    Args:
        public: the names of the package, functions among them.
    """
    after_import("torch._dynamo", lambda _: _teach(public))
    after_import("torch._dynamo.variables.builder", classes.teach_results)
    after_import("torch._dynamo.variables.torch_function", classes.teach_variables)
    after_import("torch._subclasses.fake_tensor", classes.teach_fake_mode)
    after_import("torch.fx.experimental.proxy_tensor", classes.teach_handled)
    after_import("torch._functorch._aot_autograd.runtime_wrappers", classes.teach_handled)
    after_import("torch._functorch.partitioners", checkpoints.teach_generators)
    after_import("torch._inductor.codegen.common", _refuse_inductor)
