# SPDX-License-Identifier: Apache-2.0
"""What spmdx-opt prints of a graph it reads back as the same graph, whatever is in it."""

import math
import subprocess

from hypothesis import given
from hypothesis import strategies as st
from properties import examples

AXES = ("data", "model")
DTYPES = ("f32", "bf16", "f64", "i64", "b8", "c64", "f8e4m3", "unknown")
REDUCTIONS = ("sum", "max", "min", "prod", "any", "all")


def printed(spmdx_opt, text):
    done = subprocess.run([spmdx_opt, "-"], input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr + text
    return done.stdout


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=8).map(quoted)
INTS = st.integers(-(2**63), 2**63 - 1)
HALVES = st.integers(-1999, 1999).map(lambda i: i / 2)  # Python writes these as spmdx does


@st.composite
def sharded(draw, mesh, sizes, partial=True):
    """A type as it is written, decided or not. ``mesh``: the sizes of its axes."""
    cut = {axis: draw(st.integers(-2, len(sizes) - 1)) for axis in draw(st.permutations(mesh))}
    dims = []
    for i, size in enumerate(sizes):
        axes = [axis for axis, dim in cut.items() if dim == i]
        by = f"@({','.join(axes)})" if len(axes) > 1 else "@" + axes[0] if axes else ""
        dims.append(f"{size}{by}")
    text = f"[{', '.join(dims)}]"
    over = [axis for axis in mesh if cut[axis] == -2] if partial else []
    if over:
        return text + f"{{partial {draw(st.sampled_from(REDUCTIONS))}: {','.join(over)}}}"
    if mesh and "@" not in text:
        text += draw(st.sampled_from(["", " replicated"]))
    return text


def numbered(items, texts):
    return st.lists(items, min_size=1, max_size=3).map(lambda x: f"[{', '.join(map(texts, x))}]")


@st.composite
def arguments(draw, values):
    """Arguments of an op, of every kind that there is."""
    operand = st.integers(0, values - 1).map(lambda i: f"%{i}")
    kinds = st.one_of(
        operand,
        numbered(operand, str),
        operand.map(lambda o: f"[{o}, none]"),
        st.sampled_from(["none", "true", "false", "[]", "tensors[]", "doubles[]", "bools[]"]),
        INTS.map(str),
        HALVES.map(str),
        WORDS,
        WORDS.map(lambda w: "opaque" + w),
        st.sampled_from(DTYPES).map(lambda d: "dtype:" + d),
        numbered(INTS, str),
        numbered(HALVES, str),
        numbered(st.booleans(), lambda b: str(b).lower()),
    )
    return ", ".join(draw(st.lists(kinds, max_size=5)))


@st.composite
def graphs(draw):
    """Text as spmdx-opt prints it. Parameters come as they are numbered."""
    sizes = draw(st.lists(st.integers(2, 6), max_size=2))
    mesh = AXES[: len(sizes)]
    lines, types = [], []
    if mesh:
        ids = draw(st.permutations(range(math.prod(sizes))))
        shown = f" ids {list(ids)}" if list(ids) != sorted(ids) else ""
        axes = ", ".join(f"{axis}={size}" for axis, size in zip(mesh, sizes, strict=True))
        lines.append(f"mesh({axes}){shown}")

    def typed(value, decided, partial=True):
        dtype, shape = types[value]
        return dtype + (draw(sharded(mesh if decided else (), shape, partial)))

    def new():
        shape = draw(st.lists(st.integers(0, 12), max_size=3))
        types.append((draw(st.sampled_from(DTYPES)), shape))
        return len(types) - 1

    def annotated(value):
        text = typed(value, True, False)
        return text if "@" in text or text.endswith("replicated") else text + " replicated"

    state = st.sampled_from(["", " state"])
    inputs = draw(st.integers(1, 3))
    for _ in range(inputs):
        value = new()
        name = draw(st.one_of(st.just('""'), WORDS))
        made = draw(st.booleans()) and bool(mesh)
        decided = typed(value, True) if made else ""
        keeps = f" : {decided}" if "@" in decided or "partial" in decided else ""
        line = f"%{value}{keeps} = input " + (f"{name} " if name != '""' else "")
        line += typed(value, True)
        if mesh and draw(st.booleans()):
            line += " !" + annotated(value)
        lines.append(line + draw(state))
    for _ in range(draw(st.integers(0, 4))):
        operands = draw(arguments(len(types)))
        results = [new() for _ in range(draw(st.integers(1, 2)))]
        made = ", ".join(f"%{r} : {typed(r, True)}" for r in results)
        lines.append(f"{made} = {draw(st.sampled_from(['aten.op', 'a.b.c', 'x_1']))}({operands})")
    for value in draw(st.lists(st.integers(0, len(types) - 1), max_size=2)) if mesh else []:
        lines.append(f"constrain %{value} {annotated(value)}{draw(state)}")
    for value in draw(st.lists(st.integers(0, len(types) - 1), max_size=3)):
        line = f"return %{value}"
        if mesh and draw(st.booleans()):
            line += " !" + annotated(value)
        if draw(st.booleans()):
            line += f" tied %{draw(st.integers(0, inputs - 1))}" + draw(
                st.sampled_from(["", " donates"])
            )
        lines.append(line + draw(state))
    return "".join(line + "\n" for line in lines)


@given(graph=graphs())
@examples(150)
def test_a_graph_reads_back_as_it_is_printed(spmdx_opt, graph):
    assert printed(spmdx_opt, graph) == graph


@given(numbers=st.lists(st.floats(), min_size=1, max_size=20))
@examples(100)
def test_every_double_reads_back(spmdx_opt, numbers):
    written = ", ".join(map(repr, numbers))
    once = printed(spmdx_opt, f"%0 : f32[] = aten.op([{written}])\n")
    assert printed(spmdx_opt, once) == once
    inside = once[once.index("([") + 2 : once.index("])")]
    assert list(map(repr, map(float, inside.split(", ")))) == list(map(repr, numbers))


@given(
    size=st.integers(1, 40),
    tile=st.integers(1, 12),
    mesh=st.sampled_from(["data=2", "data=3", "data=4", "data=2, model=3", "data=4, model=2"]),
    axes=st.sampled_from(["data", "data:(1)2", "data:(2)2", "(model,data)", "(data,model)"]),
)
@examples(100)
def test_tiles_and_parts_of_axes_read_back_or_are_refused(spmdx_opt, size, tile, mesh, axes):
    text = f"mesh({mesh})\n%0 = input f32[{size}@{axes}/{tile}]\n"
    done = subprocess.run([spmdx_opt, "-"], input=text, capture_output=True, text=True, timeout=60)
    if done.returncode == 0:
        assert printed(spmdx_opt, done.stdout) == done.stdout
    else:
        assert done.returncode == 1 and "Expected" in done.stderr
