# SPDX-License-Identifier: Apache-2.0
"""Planning at any scale: trace and plan for a mesh that this machine does not have."""

import contextlib
import reprlib
from collections.abc import Iterator
from typing import Any

import torch

import spmdx._C as _C
from spmdx._annotate.annotation import require_spmdx
from spmdx.errors import ShardingError, name_of, naming


@contextlib.contextmanager
def plan_only() -> Iterator[None]:
    """A block in which steps are planned and never run, for meshes of any number of devices.

    Inside, a mesh may have any device ids, and nothing is allocated: initialisers are traced,
    tensors moved to the device lend their shape and dtype, and :func:`mark_step` plans the step.
    Its results have a shape, a dtype and their planned sharding, with which later steps are
    planned; reports work as ever. At the end, tensors from before have the values, the
    annotations and the random state they had at the beginning; what was not planned is dropped.

    Values of constants can be read: of what factories and tensors of 1 MiB at most, moved to the
    device inside, make by ops that draw no random numbers. Reading computes them, and nothing
    else. What other values are, :func:`assume` says.

    The block is the whole process's: no other thread can run a step meanwhile.

    Raises:
        ShardingError: later, led by the user's line, where values of a tensor are wanted that was
            made inside (``.item()``, ``print``, ``.cpu()``) and is no constant, or any after the
            block, or where a mesh of devices that do not exist is used outside.

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


def assume(tensor: torch.Tensor, value: Any) -> torch.Tensor:
    """Say inside of :func:`plan_only` what ``tensor`` holds, so that it can be read.

    Reading it (``.item()``, ``bool``, a mask as an index) gives this value, and what is computed
    from it is a constant of the block. Plans depend on it where the program does. It holds until
    ``tensor`` is written to, or the block ends; said again, it replaces what was said before.

    Args:
        tensor: of any shape and dtype, on device "spmdx"; a view stands for what it shows.
        value: a number, a bool, a nested list of them or a CPU tensor, of the shape of ``tensor``
            and of a dtype that casts to its dtype without loss of kind.

    Returns:
        ``tensor`` itself.

    Raises:
        ShardingError: it is called outside of :func:`plan_only`, the tensor is not on the device,
            or the value has another shape or kind.

    Example:
        >>> import torch, spmdx
        >>> with spmdx.plan_only():
        ...     scores = torch.rand(8, device="spmdx")
        ...     chosen = scores > 0.5
        ...     _ = spmdx.assume(chosen, [True, False, True, True, False, False, True, False])
        ...     kept, count = scores[chosen], chosen.sum().item()
        >>> kept.shape, count
        (torch.Size([4]), 4)

    Source:
        The counterpart of the hints of unbacked symbols in ``torch.export``, for planning alone.
    """
    with naming("assume"):
        if not _C.planning_only():
            raise ShardingError(
                "a value is assumed outside of plan_only, where steps run. Expected a block of "
                "spmdx.plan_only(), in which there are no values. Call it inside of one, or read "
                "the value that the tensor has."
            )
        require_spmdx(tensor)
        _C.assume(tensor, _elements(tensor, value))
    return tensor


def _elements(tensor: torch.Tensor, value: Any) -> torch.Tensor:
    """``value`` as a CPU tensor of the shape and the dtype of ``tensor``."""
    given = _on_host(tensor, value)
    if given.shape != tensor.shape:
        name = name_of(tensor, "tensor")
        raise ShardingError(
            f"the value has the shape {tuple(given.shape)}, and {name} has {tuple(tensor.shape)}. "
            f"Expected the shape of {name}. Write a list or a CPU tensor of this shape, for one "
            "value everywhere torch.full."
        )
    elements = given.to(tensor.dtype)
    if not _is_same(given, elements):
        raise ShardingError(
            f"the value is of {given.dtype}, and {name_of(tensor, 'tensor')} of {tensor.dtype} "
            f"cannot hold it. Expected values of {tensor.dtype}. Convert them first."
        )
    return elements


def _is_same(given: torch.Tensor, elements: torch.Tensor) -> bool:
    """Whether a cast kept the kind of numbers, and integers as they are; others may round."""
    if not torch.can_cast(given.dtype, elements.dtype):
        return False
    rounds = elements.is_floating_point() or elements.is_complex()
    return rounds or torch.equal(elements.to(given.dtype), given)


def _on_host(tensor: torch.Tensor, value: Any) -> torch.Tensor:
    """``value``, for ``tensor``, as a CPU tensor in its own dtype."""
    if type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout == torch.strided:
        if value.device.type == "cpu":
            return value.detach()
    if isinstance(value, bool | int | float | complex | list | tuple):
        with contextlib.suppress(TypeError, ValueError, RuntimeError):
            given = torch.tensor(value, device="cpu")
            exact = torch.float64 if given.is_floating_point() else given.dtype
            return torch.tensor(value, dtype=exact, device="cpu")
    what = f"a tensor on {value.device}" if isinstance(value, torch.Tensor) else reprlib.repr(value)
    raise ShardingError(
        f"the value is {what}. Expected a number, a bool, a list of them or a CPU tensor. Write "
        f"what {name_of(tensor, 'tensor')} would hold, as 3 or [True, False]."
    )
