# SPDX-License-Identifier: Apache-2.0
"""Calls of the ops of the table, as torch's own tables of samples make them, forward and back."""

import collections
import copyreg
import functools
import pathlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import spmdx
import torch
from calls_by_hand import calls_by_hand
from cases import NAMES, Case, arguments_of, aten_op, case_of, name_of
from spmdx._compiling.worker import overloads
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

GATHERED = (torch.float32, torch.int64, torch.bool)
# What the gathered calls are made for as well, where PyTorch has kernels for it.
DERIVED = {
    torch.float32: (torch.float64, torch.bfloat16, torch.float16),
    torch.int64: (torch.int32,),
}
MOST_SAMPLES = 10  # of an entry of the tables
MOST_ELEMENTS = 20_000  # of the operands of a call
MOST_CANDIDATES = 24
Calls = dict[tuple[str, str], list[Case]]


@functools.cache
def known() -> tuple[str, ...]:
    """What a compiler may be asked for: overloads of the ops of the table."""
    return tuple(overloads(spmdx._C.rules()))


def is_random(name: str) -> bool:
    """Whether an op draws numbers; attention draws none, as it is recorded without dropout."""
    if name == "aten._scaled_dot_product_flash_attention_for_cpu":
        return False
    return torch.Tag.nondeterministic_seeded in aten_op(name).tags


def is_possible(name: str) -> bool:
    """Whether a segment may have this op: it is no op of TorchScript's own, and makes tensors."""
    target = aten_op(name)
    dynamic = torch.Tag.dynamic_output_shape in target.tags
    makes = any("Tensor" in str(result.type) for result in target._schema.returns)
    return makes and not dynamic and not is_random(name) and _has_kernel(target)


def _has_kernel(target: Any) -> bool:
    try:
        return torch._C._dispatch_has_computed_kernel_for_dispatch_key(target.name(), "CPU")
    except RuntimeError:  # the dispatcher does not know it
        return False


class Recorder(TorchDispatchMode):
    """Notes calls of wanted ops, few of each that are alike."""

    def __init__(self, wanted: Sequence[str]) -> None:
        super().__init__()
        self.wanted = frozenset(wanted)
        self.seen: set[Any] = set()
        self.failed: list[str] = []
        self.calls: Calls = collections.defaultdict(list)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = functional_name(name_of(func))
        if name in self.wanted:
            self.note(name, in_order(aten_op(name), args, kwargs))
        return func(*args, **kwargs)

    def note(self, name: str, args: list[Any]) -> None:
        """Keep a call, if there is none like it."""
        tensors = [leaf for leaf in pytree.tree_leaves(args) if isinstance(leaf, torch.Tensor)]
        if not all(map(_is_taken, tensors)) or sum(t.numel() for t in tensors) > MOST_ELEMENTS:
            return
        dtype = main_dtype(tensors)
        like = name, str(pytree.tree_map_only(torch.Tensor, lambda t: (t.dtype, t.shape), args))
        row = self.calls[name, dtype]
        if like in self.seen or len(row) >= MOST_CANDIDATES or _has_mask(name, args):
            return
        self.seen.add(like)
        try:
            case = case_of(name, args, dtype)
        except (RuntimeError, ValueError, IndexError, TypeError, NotImplementedError):
            return  # PyTorch refuses it: a sample of an error
        if case:
            row.append(case)


def _is_taken(tensor: torch.Tensor) -> bool:
    is_plain = tensor.layout == torch.strided and not tensor.is_quantized
    return is_plain and type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.dtype in NAMES


def _has_mask(name: str, args: list[Any]) -> bool:
    """Whether the shape of the result depends on a mask, or on its numbers."""
    leaves = pytree.tree_leaves(args[1:])
    is_mask = any(isinstance(t, torch.Tensor) and t.dtype == torch.bool for t in leaves)
    return name.startswith("aten.index.Tensor") and is_mask


def functional_name(name: str) -> str:
    """Of the op that does the same to new memory: ``aten.add.Tensor`` for ``aten.add_.Tensor``."""
    namespace, packet, *overload = name.split(".")
    if packet.endswith("_") and not packet.endswith("__"):
        packet = packet[:-1]
    return ".".join([namespace, packet, *overload])


def in_order(target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """Arguments as the schema has them, up to the last that is not its default."""
    arguments = target._schema.arguments
    given = dict(zip((a.name for a in arguments), args, strict=False)) | kwargs
    row = []
    for argument in arguments:
        is_place = argument.name in ("device", "layout", "pin_memory")
        arg = given.get(argument.name, argument.default_value)
        row.append(None if is_place else arg)
    last = max((i for i, a in enumerate(arguments) if a.name in given), default=-1)
    return row[: last + 1]


def main_dtype(tensors: Sequence[torch.Tensor]) -> str:
    """That a call is listed under: of the first float, else of the first tensor."""
    floats = [t.dtype for t in tensors if t.is_floating_point()]
    dtypes = floats or [t.dtype for t in tensors]
    return NAMES[dtypes[0]] if dtypes else ""


def gathered() -> Calls:
    """Candidates by op and dtype, gathered anew: some minutes of work."""
    recorder = Recorder([name for name in known() if is_possible(name)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, args in calls_by_hand():
            recorder.note(name, args)
        for dtype in GATHERED:
            for entry in op_db:
                if dtype in entry.dtypes:
                    _run_entry(recorder, entry, dtype)
        for info in module_db:
            _run_module(recorder, info)
        _run_optimizers(recorder)
    return _derived(recorder.calls)


def _derived(calls: Calls) -> Calls:
    """With the same calls in other dtypes."""
    made: Calls = {}
    for (name, dtype), cases in calls.items():
        for case in cases:
            made.setdefault((name, dtype or case.dtype), []).append(case)
    for (name, dtype), cases in list(made.items()):
        for before, others in DERIVED.items():
            for other in others if NAMES[before] == dtype else ():
                found = [in_dtype(case, before, other) for case in chosen(cases, 8)]
                if any(found):
                    made.setdefault((name, NAMES[other]), []).extend(filter(None, found))
    return made


def in_dtype(case: Case, before: torch.dtype, after: torch.dtype) -> Case | None:
    """The same call with other tensors; None where PyTorch has no kernel for it."""

    def cast(arg: Any) -> Any:
        if isinstance(arg, list):
            return [cast(item) for item in arg]
        if isinstance(arg, torch.Tensor) and arg.dtype == before:
            return arg.to(after)
        return after if arg == before and isinstance(arg, torch.dtype) else arg

    # Production gives no number of Python beside floats of 16 bits.
    if after.itemsize == 2 and any(kind.is_number for kind, _ in case.inputs):
        return None
    try:
        return case_of(case.about, cast(arguments_of(case)), NAMES[after], case.check)
    except (RuntimeError, NotImplementedError, ValueError, IndexError):
        return None


def _seed(seed: int) -> None:
    """Of the CPU alone: for devices that are not there, torch keeps the stack of each call."""
    torch.default_generator.manual_seed(seed)


def _run_entry(recorder: Recorder, entry: Any, dtype: torch.dtype) -> None:
    smooth = entry.supports_autograd and dtype in entry.supported_backward_dtypes("cpu")
    _seed(0)
    # Not by its method, which looks through the stack of callers for a test, sample by sample.
    drawn = list(entry.sample_inputs_func(entry, "cpu", dtype, smooth))
    step = max(1, len(drawn) // MOST_SAMPLES)
    for sample in drawn[::step]:
        _run(recorder, lambda s=sample: entry(s.input, *s.args, **s.kwargs))


def _run_module(recorder: Recorder, info: Any) -> None:
    _seed(0)
    if torch.float32 not in info.dtypes:
        return
    makes = info.module_inputs_func(
        info, device="cpu", dtype=torch.float32, requires_grad=True, training=True
    )
    for made in list(makes)[:MOST_SAMPLES]:
        args, given = made.constructor_input, made.forward_input
        module = info.module_cls(*args.args, **args.kwargs)
        _run(recorder, lambda m=module, g=given: m(*g.args, **g.kwargs))


def _run_optimizers(recorder: Recorder) -> None:
    for kind in (torch.optim.AdamW, torch.optim.SGD, torch.optim.RMSprop, torch.optim.Adagrad):
        weight = torch.nn.Parameter(torch.randn(5, 3))
        optimizer = kind([weight], lr=0.1, foreach=False)
        weight.grad = torch.randn(5, 3)
        _run(recorder, lambda o=optimizer: o.step())


def _run(recorder: Recorder, forward: Callable[[], Any]) -> None:
    """Forward, and back where it can."""
    try:
        with recorder:
            _seed(1)
            leaves = [leaf for leaf in pytree.tree_leaves(forward()) if _is_smooth(leaf)]
            if leaves:
                torch.autograd.backward(leaves, [torch.randn_like(leaf) for leaf in leaves])
    except Exception as error:  # samples of other devices, and gradients that are not there
        recorder.failed.append(str(error))


def _is_smooth(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.requires_grad and leaf.layout == torch.strided


def chosen(cases: Sequence[Case], most: int) -> list[Case]:
    """A few that differ the most: in kinds of shapes, and in arguments that are given."""
    left, taken, seen = list(cases), [], set()
    while left and len(taken) < most:
        best = max(left, key=lambda case: _worth(features(case) - seen))
        left.remove(best)
        taken.append(best)
        seen |= features(best)
    return taken


def _worth(features: frozenset[Any]) -> int:
    """Kinds of shapes are worth more than arguments."""
    return sum(2 if isinstance(feature, str) else 1 for feature in features)


@functools.cache
def features(case: Case) -> frozenset[Any]:
    """What makes a call another than the plain one."""
    (op,) = case.ops
    tensors = [tensor for kind, tensor in case.inputs if not kind.is_number]
    found: set[Any] = {"plain" if tensors and all(t.numel() > 1 for t in tensors) else "bare"}
    found |= {"scalar"} if any(t.dim() == 0 for t in tensors) else set()
    found |= {"empty"} if any(t.numel() == 0 for t in tensors) else set()
    found |= {"broadcast"} if len({t.shape for t in tensors}) > 1 else set()
    found |= {"number"} if len(tensors) < len(case.inputs) else set()
    for argument, arg in zip(aten_op(op.name)._schema.arguments, op.args, strict=False):
        if arg != argument.default_value:
            found.add((argument.name, str(arg) if isinstance(arg, bool | str) else ""))
    return frozenset(found)


def _format_named(name: str) -> torch.memory_format:
    return getattr(torch, name)


copyreg.pickle(torch.memory_format, lambda f: (_format_named, (str(f).removeprefix("torch."),)))


def kept(path: pathlib.Path, fresh: bool = False) -> Calls:
    """Those that an earlier run left in a file, else gathered, and left there."""
    if not fresh and path.exists():
        return torch.load(path, weights_only=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    calls = gathered()
    torch.save(calls, path)
    return calls


def every(calls: Calls) -> Iterator[Case]:
    """All of them."""
    for cases in calls.values():
        yield from cases
