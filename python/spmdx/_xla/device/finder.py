# SPDX-License-Identifier: Apache-2.0
"""Where ``import torch_xla`` leads: to the modules of spmdx.torch_xla, under both names."""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import types
from collections.abc import Sequence

OURS, THEIRS = "spmdx.torch_xla", "torch_xla"

# Modules of torch_xla that mean nothing here, and what to do instead.
ABSENT = {
    "_dynamo": 'Write torch.compile(..., backend="openxla"), or leave torch.compile out.',
    "core.xla_builder": "There is no XLA computation to build. Write it with PyTorch's ops.",
    "core.xla_op_registry": "There is no XLA op to register. Write it with PyTorch's ops.",
    "core.dynamo_bridge": "Leave it out: the device records ops as they are.",
    "debug.graph_saver": "Set SPMDX_DUMP=folder: every plan is written there.",
    "distributed.data_parallel": "Mark the batch: xs.mark_sharding(x, mesh, ('data', None)).",
    "distributed.zero_redundancy_optimizer": "Shard the parameters: optimizer state follows them.",
    "distributed.fsdp.xla_fully_sharded_data_parallel": (
        "Use experimental.spmd_fully_sharded_data_parallel."
    ),
    "experimental.custom_kernel": "Write it with PyTorch's ops: there are no Pallas kernels here.",
    "experimental.plugins": "Devices are chosen by SPMDX_DEVICE_TYPE.",
    "experimental.quantized": "Use PyTorch's own quantization.",
    "experimental.stablehlo_custom_call": "There is no StableHLO here.",
    "stablehlo": "There is no StableHLO here. Export the module with torch.export on the CPU.",
    "tf_saved_model_integration": "There is no StableHLO here.",
    "utils.serialization": "Write xm.save(state, path), and torch.load(path) to read it.",
}


def advice_for(name: str) -> str:
    """What to do instead of importing a module of torch_xla that is not here."""
    while name:
        if name in ABSENT:
            return ABSENT[name]
        name = name.rpartition(".")[0]
    return "It is no part of what spmdx does; docs/torch_xla.md lists what is."


class _SameModule(importlib.abc.Loader):
    """Gives the module of spmdx.torch_xla its second name."""

    def __init__(self, name: str):
        self._name = name

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = importlib.import_module(self._name)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        module.__spec__ = self._spec


class _Finder(importlib.abc.MetaPathFinder):
    """Finds torch_xla and what is in it; says of what is not here what to do instead."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != THEIRS and not fullname.startswith(THEIRS + "."):
            return None
        inner = fullname.removeprefix(THEIRS)
        found = importlib.util.find_spec(OURS + inner)
        if found is None:
            raise ModuleNotFoundError(
                f"{fullname} is not in spmdx.torch_xla. {advice_for(inner[1:])}", name=fullname
            )
        is_package = found.submodule_search_locations is not None
        return importlib.machinery.ModuleSpec(
            fullname, _SameModule(OURS + inner), is_package=is_package
        )


def is_installed_elsewhere() -> bool:
    """Whether there is a torch_xla that is not this one."""
    if THEIRS in sys.modules:
        return sys.modules[THEIRS] is not sys.modules.get(OURS)
    program = getattr(sys.modules["__main__"], "__file__", None)
    for finder in sys.meta_path:
        if isinstance(finder, _Finder) or not hasattr(finder, "find_spec"):
            continue
        found = finder.find_spec(THEIRS, None)
        if found is not None and (program is None or found.origin != os.path.abspath(program)):
            return True
    return False


def install() -> None:
    """Lets ``import torch_xla`` find spmdx.torch_xla; once."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
