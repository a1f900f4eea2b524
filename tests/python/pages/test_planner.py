# SPDX-License-Identifier: Apache-2.0
"""docs/planner.md tells the planner's constants, costs, passes and decisions as they are."""

import re
import shlex
import subprocess

import pytest

ROOMS = ("csrc/passes", "csrc/sharding")
# Sizes of tables of what was found out before: they change no plan.
TABLES = {"kPlans", "kKept", "kMeshes", "kNoLimit"}


@pytest.fixture(scope="module")
def page(root):
    return (root / "docs" / "planner.md").read_text()


@pytest.fixture(scope="module")
def folder(page, tmp_path_factory):
    """The files that the page shows, as spmdx-opt reads them."""
    made = tmp_path_factory.mktemp("planner")
    marked = r"^<!-- file: (\S+) -->\n```text\n(.*?)^```"
    for name, text in re.findall(marked, page, re.MULTILINE | re.DOTALL):
        (made / name).write_text(text)
    return made


def rows(page, head):
    """The cells of the rows of the table with this head, without back-quotes."""
    found = re.search(re.escape(f"| {head} |") + r".*\n\|[-|]+\n((?:\|.*\n)+)", page)
    assert found, f"no table with the head {head}"
    lines = found[1].splitlines()
    return [[c.strip().strip("`") for c in re.split(r" \| ", line.strip("| "))] for line in lines]


def number(text):
    """The value of a constant as C++ writes it: 20, 16'384, 0.05, 30 << 20."""
    value, _, bits = text.replace("'", "").partition("<<")
    return float(value) * 2 ** int(bits or 0)


def ran(spmdx_opt, folder, command):
    """What a line of the page, as of a shell, prints."""
    words = shlex.split(command)
    assert words[0] == "spmdx-opt"
    done = subprocess.run(
        [spmdx_opt, *words[1:]], cwd=folder, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_table_of_limits_is_limits_h(page, root):
    source = (root / "csrc/passes/settings/limits.h").read_text()
    fields = re.findall(r"^  [\w:]+ (\w+) = ([^;]+);", source, re.MULTILINE)
    assert len(fields) > 10
    told = [(name, number(value)) for name, value, _ in rows(page, "limit")]
    assert told == [(name, number(value)) for name, value in fields]


def test_other_constants_have_the_value_that_their_file_gives_them(page, root):
    for name, value, _, path in rows(page, "constant"):
        found = re.search(rf"\b{name} = ([^;]+);", (root / path).read_text())
        assert found, f"{path} has no {name}"
        assert number(found[1]) == number(value), name


def test_every_constant_of_planning_is_told(page, root):
    declared = re.compile(r"^(?:static )?constexpr (?:int|int64_t|size_t|double) (k\w+) =", re.M)
    there = {
        name
        for room in ROOMS
        for path in (root / room).rglob("*.[ch]*")
        for name in declared.findall(path.read_text())
    }
    told = {name for name, *_ in rows(page, "constant")}
    assert there - TABLES <= told, f"not told: {sorted(there - TABLES - told)}"


def test_the_table_of_passes_is_that_of_the_tool(page, spmdx_opt, folder):
    assert [row[0] for row in rows(page, "pass")] == ran(spmdx_opt, folder, "spmdx-opt --passes")


def constants(source, *names):
    return [number(re.search(rf"{name} = ([^;]+);", source)[1]) for name in names]


def test_the_table_of_topologies_is_topology_cpp(page, root):
    header = (root / "csrc/sharding/topology.h").read_text()
    source = (root / "csrc/sharding/topology.cpp").read_text()
    links = constants(header, "latency_ns", "message_ns", "picoseconds_per_byte")
    told = {row[0]: [*map(number, row[1:4]), row[4]] for row in rows(page, "topology")}
    assert told.pop("in-process` (the default)") == [*links, "cpu"]
    levels = re.findall(r"constexpr Level k\w+\{\d+, ([^}]+)\}", source)
    assert {tuple(cells[:3]) for cells in told.values()} == {
        tuple(map(number, level.split(","))) for level in levels
    }
    assert told.pop("gloo")[3] == "cpu" and {cells[3] for cells in told.values()} == {"gpu"}


def test_the_lines_of_the_page_print_what_it_says(page, spmdx_opt, folder):
    shown = re.findall(r"^```sh\n(.*?)\n```\n```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(shown) == 4
    for command, text in shown:
        printed = iter(ran(spmdx_opt, folder, command))
        missing = [line for line in text.splitlines() if line not in printed]
        assert not missing, f"{command} does not print, in this order, {missing}"


def collective(received, messages=1):
    """Nanoseconds of a reduction of two devices, or with more messages of more devices."""
    return 5000 + 50 * messages + received * 500 // 1000


def local(*elements):
    """A quarter of the nanoseconds of an op that reads and writes tensors of so many f32."""
    return sum(elements) * 4 * 100 // 4000


def by_hand(rows, reduced, summed):
    """The column of the worked example in which %7 has so many rows of 256 columns."""
    piece = rows * 256
    return [
        collective(reduced),
        local(piece, piece, 256),
        local(piece, piece, piece),
        local(piece, 256),
        summed,
    ]


OVER_DATA, OVER_BOTH = collective(1024), collective(1536, 2)
WHOLE, SLICED, SCATTERED = (
    by_hand(128, 131072, OVER_DATA),
    by_hand(64, 131072, OVER_BOTH),
    by_hand(64, 65536, OVER_BOTH),
)


def test_the_worked_example_is_what_its_formulas_give(page):
    told = [row[1:] for row in rows(page, "| sum at once")]
    columns = [[int(cell) for cell in column] for column in zip(*told, strict=True)]
    assert columns == [[*way, sum(way)] for way in (WHOLE, SLICED, SCATTERED)]


def test_the_worked_example_is_what_the_tool_decides(page, spmdx_opt, folder):
    def decided(name):
        printed = ran(spmdx_opt, folder, f"spmdx-opt --pass propagate --decisions {name}")
        return sum(int(found) for found in re.findall(r"\w+_ns (\d+)", printed[-1]))

    product, relu = 2 * 128 * 256 * 512 * 50 * 20 // 1000, local(128 * 512, 128 * 512)
    assert decided("two_layers.txt") == 2 * product + relu + sum(SCATTERED)

    text = (folder / "two_layers.txt").read_text()
    line = re.search(r"`(constrain [^`]+)`", page)[1]
    (folder / "constrained.txt").write_text(text.replace("return", f"{line}\nreturn"))
    assert decided("constrained.txt") == 2 * product + relu + sum(WHOLE)
