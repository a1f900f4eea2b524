# SPDX-License-Identifier: Apache-2.0
"""The fewest bytes that a device must receive for an op: ring formulas over an op's letters.

A *part* of a program is written with a letter a dim: `a:mk b:kn -> y:mn`. It is done in one of a
few *ways*: cut along one letter, or whole on every device. A way brings every operand to its cut
(to a whole one where it lacks the letter) and leaves every result on it:

    whole -> anything                    nothing: every device takes its part of what it has
    cut -> whole                         all_gather, B (n - 1)/n
    cut -> cut along another dim         all_to_all, B/n (n - 1)/n
    partial -> whole / cut               all_reduce 2B (n - 1)/n / reduce_scatter B (n - 1)/n

A result that lacks the letter is partial. A result that the program keeps stays as its op leaves
it, which costs nothing; only a partial one may not stay so. It becomes cut like an operand that
shares a dim with it, by a reduce_scatter, and whole where there is none, by an all_reduce: nobody
said which device should have which part, and whoever reads it finds it on his own. A gradient is
cut as its operand is; that of a whole one may stay cut as something that it is made from. What a
letter costs inside the op (row sums of a softmax, a halo) is said by the op's own formula. The
bound of a part is that of its cheapest way, of a program the sum of its parts.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Mapping

ITEM = 4  # bytes of a number; integers have two of them


@dataclasses.dataclass(frozen=True)
class Part:
    """`why`: the reason, shown beside the bound. `inside`: of a letter the formula of what crosses
    inside the op, in elements of 4 bytes. `whole`: letters that may not be cut. `fixed`: a formula
    in place of ways. `stored`: results replace the operands of their names, so lie as these do."""

    text: str
    why: str = ""
    inside: Mapping[str, str] = dataclasses.field(default_factory=dict)
    whole: str = ""
    fixed: str = ""
    stored: bool = False

    def sides(self):
        """[(name, letters), …] of operands and of results."""
        for side in self.text.split("->"):
            yield [tuple(tensor.split(":")) for tensor in side.split()]


@dataclasses.dataclass(frozen=True)
class Op:
    """`call` takes the operands of `operands`, letters by name. `gradients`: what forward and
    backward need together, if only the gradients of `trained` are kept; a gradient has its
    operand's name. Parts may depend on where the operands are cut. `integers`: tensors of 8-byte
    numbers."""

    name: str
    call: Callable
    operands: Mapping[str, str]
    parts: Callable | tuple[Part, ...]
    sizes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    integers: str = ""
    trained: str = ""
    gradients: tuple[Part, ...] = ()

    def size(self, letter):
        return self.sizes.get(letter, SIZES.get(letter, 24))

    def shape(self, name):
        return [self.size(letter) for letter in self.operands[name]]

    def placements(self):
        """Every operand whole or cut along one of its dims: {name: letter or None}."""
        choices = [(None, *letters) for letters in self.operands.values()]
        return [dict(zip(self.operands, each, strict=True)) for each in itertools.product(*choices)]


WHOLE = "-"  # the way of a part that every device does alone
SIZES = {"b": 12, "e": 12, "h": 12}


class Wire:
    """Names of the formulas: letters are elements, functions what a device receives of so many."""

    def __init__(self, op, n):
        self.op, self.n = op, n
        share = (n - 1) / n
        self.names = {
            "n": n,
            "gather": lambda size: size * share,
            "scatter": lambda size: size * share,
            "swap": lambda size: size / n * share,
            "reduce": lambda size: 2 * size * share,
            "lacked": lambda *rows: lacked(n, *rows),
        }

    def elements(self, letters):
        return math.prod(self.op.size(letter) for letter in letters)

    def bytes(self, name, letters):
        return ITEM * self.elements(letters) * (2 if name in self.op.integers else 1)

    def part(self, letter, device):
        """The share of a dim that a device has, of a whole one all."""
        if letter is None:
            return 1
        size, rows = self.op.size(letter), -(-self.op.size(letter) // self.n)
        return max(0, min(rows, size - device * rows)) / size

    def lacked_share(self, start, end):
        """Of a tensor, what the busiest device lacks that changes the dim of its part."""
        return max(self.part(end, i) * (1 - self.part(start, i)) for i in range(self.n))

    def __getitem__(self, name):
        return self.names[name] if name in self.names else self.elements(name.replace("_", ""))

    def received(self, formula):
        return ITEM * eval(formula, {"__builtins__": {}}, self)


def lacked(n, *pieces):
    """Rows that the busiest device lacks where a new dim is made of pieces of cut dims.

    A piece is (rows of the dim it comes from, first row taken, rows taken); 0 rows: of no dim.
    """
    chunk = -(-sum(taken for _, _, taken in pieces) // n)
    most = 0
    for device in range(n):
        missing, at = 0, 0
        for rows, first, taken in pieces:
            begin, end = max(device * chunk, at), min((device + 1) * chunk, at + taken)
            if rows and begin < end:
                begin, end = begin - at + first, end - at + first
                own = -(-rows // n)
                here = min(end, (device + 1) * own) - max(begin, device * own)
                missing += end - begin - max(0, here)
            at += taken
        most = max(most, missing)
    return most


@dataclasses.dataclass(frozen=True)
class Bound:
    bytes: float = 0
    formula: str = ""
    why: str = ""

    def __add__(self, other):
        formula = " + ".join(filter(None, (self.formula, other.formula)))
        why = "; ".join(filter(None, dict.fromkeys((self.why, other.why))))
        return Bound(self.bytes + other.bytes, formula, why)


def moved(wire, name, letters, start, end):
    """What it takes to bring a tensor from one cut to another."""
    if start is None or start == end:
        return Bound()
    lacked = wire.bytes(name, letters) * wire.lacked_share(start, end)
    return Bound(lacked, f"gather({name})" if end is None else f"swap({name})")


def summed(wire, name, letters, end):
    """What it takes to bring a partial tensor to a cut."""
    size = wire.bytes(name, letters)
    if end is None:
        return Bound(wire["reduce"](size), f"reduce({name})")
    return Bound(wire["scatter"](size), f"scatter({name})")


def homes(part, placement, name, letters, partial):
    """The cuts a result may be left in, None for whole; empty where it may stay as it is."""
    shared = [cut for cut in placement.values() if cut and cut in letters]
    if name not in placement:
        return (shared[:1] or [None]) if partial else ()
    if placement[name] or part.stored or partial:
        return [placement[name]]
    return [None, *shared]


def of_result(wire, part, way, placement, tensor):
    name, letters = tensor
    partial = way != WHOLE and way not in letters and way not in part.inside
    bring = summed if partial else functools.partial(moved, start=way if way in letters else None)
    ends = homes(part, placement, name, letters, partial)
    bounds = [bring(wire, name, letters, end=end) for end in ends]
    return min(bounds, key=lambda b: b.bytes, default=Bound())


def of_way(wire, part, way, placement):
    """Of one part done in one way."""
    operands, results = part.sides()
    total = Bound()
    for name, letters in operands:
        end = way if way in letters else None
        total += moved(wire, name, letters, placement[name], end)
    if way in part.inside:
        total += Bound(wire.received(part.inside[way]), part.inside[way])
    for tensor in results:
        total += of_result(wire, part, way, placement, tensor)
    return Bound(total.bytes, total.formula, part.why if total.bytes else "")


def of_part(wire, part, placement):
    if part.fixed:
        return Bound(wire.received(part.fixed), part.fixed, part.why)
    letters = dict.fromkeys("".join(tensor[1] for side in part.sides() for tensor in side))
    ways = [WHOLE, *(letter for letter in letters if letter not in part.whole)]
    return min((of_way(wire, part, w, placement) for w in ways), key=lambda b: b.bytes)


def bound(op, placement, n, backward=False):
    """The bound of an op in a placement, with the formula it comes from."""
    parts = op.gradients if backward else op.parts
    if callable(parts):
        parts = parts(placement)
    total = Bound()
    for part in parts:
        total += of_part(Wire(op, n), part, placement)
    return total
