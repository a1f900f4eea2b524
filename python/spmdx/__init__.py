# SPDX-License-Identifier: Apache-2.0
"""spmdx: write single-device PyTorch, annotate a few tensors, run on a mesh of devices.

Public are the names of ``__all__``, and the modules beside this one. Packages are rooms: their
names begin with ``_``, and all that is in them is internal. What users see of it bears a public
name all the same, which ``_start/names.py`` gives it.
"""

import torch

from spmdx import errors as errors
from spmdx._start.core import check_device, check_torch, keep_out, load_core

check_device(torch._C._get_privateuse1_backend_name())
_C = load_core()
keep_out("torch_npu")
check_torch(_C.TORCH_VERSION, torch.__version__)

from spmdx._device.device import register as _register  # noqa: E402

_register()

from spmdx import (  # noqa: E402
    auto,
    checkpoint,
    collectives,
    compilers,
    data,
    debug,
    metrics,
    nn,
    pipelines,
    runtime,
)
from spmdx._annotate.global_mesh import get_global_mesh, set_global_mesh  # noqa: E402
from spmdx._annotate.local_shards import LocalShard  # noqa: E402
from spmdx._annotate.mesh import HybridMesh, Mesh, get_1d_mesh  # noqa: E402
from spmdx._annotate.sharding import (  # noqa: E402
    clear_sharding,
    distribute_tensor,
    get_annotation,
    get_sharding,
    mark_sharding,
    mark_sharding_with_gradients,
    shard_as,
)
from spmdx._annotate.spec import PartitionSpec, Sharding  # noqa: E402
from spmdx._annotate.tensor import ShardedTensor  # noqa: E402
from spmdx._export import export  # noqa: E402
from spmdx._machine.calibration import calibrate  # noqa: E402
from spmdx._machine.hardware import Hardware  # noqa: E402
from spmdx._machine.in_use import (  # noqa: E402
    get_hardware,
    get_topology,
    set_hardware,
    set_topology,
)
from spmdx._machine.topology import Topology  # noqa: E402
from spmdx._manual.shard_map import shard_map  # noqa: E402
from spmdx._modules.stages import mark_stage  # noqa: E402
from spmdx._program.accumulation import accumulate  # noqa: E402
from spmdx._program.gathering import get_gather_budget, set_gather_budget  # noqa: E402
from spmdx._program.memory_limit import get_memory_limit, set_memory_limit  # noqa: E402
from spmdx._program.plan import assume, plan_only  # noqa: E402
from spmdx._program.seeds import manual_seed  # noqa: E402
from spmdx._program.step import mark_step, step, sync  # noqa: E402
from spmdx._replay.compile import compile  # noqa: E402, A004
from spmdx._report.measure import profile  # noqa: E402
from spmdx._report.visualize import visualize_sharding  # noqa: E402
from spmdx._version import __version__ as __version__  # noqa: E402
from spmdx.compilers import set_compiler  # noqa: E402
from spmdx.debug import explain, explain_diff  # noqa: E402
from spmdx.errors import CommError, InternalError, ShardingError  # noqa: E402
from spmdx.nn import distribute_module, fully_shard  # noqa: E402
from spmdx.rules import RuleCheck, check_rule, register_rule  # noqa: E402

__all__ = [
    "CommError",
    "Hardware",
    "HybridMesh",
    "InternalError",
    "LocalShard",
    "Mesh",
    "PartitionSpec",
    "RuleCheck",
    "ShardedTensor",
    "Sharding",
    "ShardingError",
    "Topology",
    "accumulate",
    "assume",
    "auto",
    "calibrate",
    "check_rule",
    "checkpoint",
    "clear_sharding",
    "collectives",
    "compile",
    "compilers",
    "data",
    "debug",
    "distribute_module",
    "distribute_tensor",
    "explain",
    "explain_diff",
    "export",
    "fully_shard",
    "get_1d_mesh",
    "get_annotation",
    "get_gather_budget",
    "get_global_mesh",
    "get_hardware",
    "get_memory_limit",
    "get_sharding",
    "get_topology",
    "manual_seed",
    "mark_sharding",
    "mark_sharding_with_gradients",
    "mark_stage",
    "mark_step",
    "metrics",
    "nn",
    "pipelines",
    "plan_only",
    "profile",
    "register_rule",
    "runtime",
    "set_compiler",
    "set_gather_budget",
    "set_global_mesh",
    "set_hardware",
    "set_memory_limit",
    "set_topology",
    "shard_as",
    "shard_map",
    "step",
    "sync",
    "visualize_sharding",
]

from spmdx._start import names as _names  # noqa: E402
from spmdx._start import start as _beginning  # noqa: E402

_names.publish()
_beginning.start(vars())
