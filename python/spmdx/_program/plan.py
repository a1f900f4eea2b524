# SPDX-License-Identifier: Apache-2.0
"""Planning at any scale: trace and plan for a mesh that this machine does not have."""

import contextlib
from collections.abc import Iterator

import spmdx._C as _C


@contextlib.contextmanager
def plan_only() -> Iterator[None]:
    """A block in which steps are planned and never run, for meshes of any number of devices.

    Inside, a mesh may have any device ids, and nothing is allocated: initialisers are traced,
    tensors moved to the device lend their shape and dtype, and :func:`mark_step` plans the step.
    Its results have a shape, a dtype and their planned sharding, with which later steps are
    planned; reports work as ever. At the end, tensors from before have the values, the
    annotations and the random state they had at the beginning; what was not planned is dropped.

    The block is the whole process's: no other thread can run a step meanwhile.

    Raises:
        ShardingError: later, led by the user's line, where values of a tensor are wanted that was
            made inside (``.item()``, ``print``, ``.cpu()``, also after the block), or where a
            mesh of devices that do not exist is used outside.

    Example:
        >>> import torch, spmdx
        >>> with spmdx.plan_only():
        ...     mesh = spmdx.Mesh(range(4096), (512, 8), ("data", "model"))
        ...     with torch.device("spmdx"):
        ...         layer = torch.nn.Linear(65536, 65536, bias=False)  # 16 GiB, never allocated
        ...         x = torch.randn(8192, 65536)
        ...     _ = spmdx.mark_sharding(layer.weight, mesh, (None, "model"))
        ...     _ = spmdx.mark_sharding(x, mesh, ("data", "model"))
        ...     spmdx.mark_step()
        ...     y = layer(x)
        ...     spmdx.mark_step()
        ...     report = spmdx.explain()
        >>> report.count("all_reduce"), report.wire_bytes == 2 * 16 * 65536 * 4 * 7 // 8
        (1, True)
        >>> y.shape, spmdx.get_sharding(y).spec
        (torch.Size([8192, 65536]), PartitionSpec('data', None))
    """
    if _C.planning_only():
        yield
        return
    _C.flush()
    _C.wait()
    generator = _C.default_generator()
    state = generator.get_state()
    _C.begin_plan_only()
    try:
        yield
    finally:
        _C.end_plan_only()
        generator.set_state(state)
