# SPDX-License-Identifier: Apache-2.0
"""Floors and rooms of the tree: includes go down, the core knows no torch, files start well."""

import collections
import pathlib
import re

import pytest
import rings

ROOT = pathlib.Path(__file__).resolve().parents[2]
CSRC = ROOT / "csrc"
FLOORS = ["base", "sharding", "graph", "rules", "passes", "emit", "runtime", "bridge", "bind"]
CORE = FLOORS[: FLOORS.index("bridge")]
# The rooms of a floor are its folders, from the ground up; "." is the floor's own folder. A floor
# without a row here is one room.
ROOMS = {
    "sharding": [".", "reshard"],
    "rules": ["rule", "build", "tensors", "rows", "layers", "stencils", "."],
    "passes": [
        "kinds",
        "kinds/search",
        "kinds/bound",
        "pipeline",
        "parallelism",
        "loops",
        "settings",
        "strategy",
        "precedent",
        "places",
        "readers",
        "search",
        "rewrites",
        "memory",
        ".",
        "report",
    ],
    "emit": ["ops", "mlir", "rows", "hls", "hls/rows", "hls/project", "."],
    "runtime": ["data", "collective", "program", "segments", "step"],
    "bridge": [
        "python",
        "backend",
        "backend/kernels",
        "backend/kernels/accelerators",
        "backend/random",
        "compilers",
        "tensor",
        "world",
        "recorder",
        "plans",
        "step",
        "export",
        "record/call",
        "record/layouts",
        "record",
        "replay",
        "ops",
        "device",
    ],
    "bind": [".", "planning", "seeing", "stepping"],
}
MOST_UNITS = 15  # in a room; a unit is x.h and x.cpp
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', re.MULTILINE)
TORCH_HEADERS = ("torch/", "ATen/", "c10/", "pybind11/", "Python.h")
SOURCES = sorted(p for p in CSRC.rglob("*") if p.suffix in (".h", ".cpp"))
PRODUCT_FOLDERS = ["csrc", "python", "tests", "examples", "benchmarks", "cmake"]


def includes(path: pathlib.Path) -> list[tuple[str, str]]:
    """Pairs of the bracket and the path of every include."""
    return INCLUDE.findall(path.read_text())


def floor_of(path: pathlib.Path) -> str:
    return path.relative_to(CSRC).parts[0]


def include_id(path: pathlib.Path) -> str:
    return str(path.relative_to(ROOT))


def room_of(path: pathlib.Path) -> str:
    """ "." for the folder of the floor itself."""
    return str(path.relative_to(CSRC / floor_of(path)).parent)


def unit_of(path: pathlib.Path) -> str:
    return str(path.relative_to(CSRC).with_suffix(""))


def edges_of(name) -> dict[str, set[str]]:
    """What includes what, of files called as `name` says."""
    edges: dict[str, set[str]] = {name(path): set() for path in SOURCES}
    for path in SOURCES:
        targets = {name(CSRC / target) for bracket, target in includes(path) if bracket == '"'}
        edges[name(path)] |= targets - {name(path)}
    return edges


def test_there_are_sources():
    assert {floor_of(p) for p in SOURCES} >= set(FLOORS)


def test_rings_are_found():
    assert rings.rings({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == [{"b", "c"}]
    assert rings.rings({"a": {"b", "c"}, "b": {"c"}}) == []
    two = {"a": {"b"}, "b": {"a", "c"}, "c": {"d"}, "d": {"e"}, "e": {"c"}}
    assert sorted(map(sorted, rings.rings(two))) == [["a", "b"], ["c", "d", "e"]]


@pytest.mark.parametrize("path", SOURCES, ids=include_id)
def test_own_includes_exist_and_go_down(path):
    own = floor_of(path)
    for bracket, target in includes(path):
        if bracket == "<":
            assert target.split("/")[0] not in FLOORS, f"write {target} in quotes"
            continue
        floor = target.split("/")[0]
        assert (CSRC / target).is_file(), f"{target} is not relative to csrc/"
        if own in FLOORS:
            assert FLOORS.index(floor) <= FLOORS.index(own), f"{own} includes {target}, a floor up"


@pytest.mark.parametrize(
    "path", [p for p in SOURCES if floor_of(p) in [*CORE, "tools"]], ids=include_id
)
def test_the_core_knows_no_torch(path):
    found = [target for _, target in includes(path) if target.startswith(TORCH_HEADERS)]
    assert not found, f"floors up to runtime may not include {found}"


def test_nothing_includes_torch_extension():
    assert not [p for p in SOURCES if ("<", "torch/extension.h") in includes(p)]


@pytest.mark.parametrize("path", [p for p in SOURCES if floor_of(p) in ROOMS], ids=include_id)
def test_includes_go_to_the_own_room_or_a_lower_one(path):
    floor, rooms = floor_of(path), ROOMS[floor_of(path)]
    assert room_of(path) in rooms, f"name the room in its place of ROOMS: {rooms}"
    below = rooms[: rooms.index(room_of(path)) + 1]
    up = [
        t for _, t in includes(path) if t.split("/")[0] == floor and room_of(CSRC / t) not in below
    ]
    assert not up, f"{room_of(path)} includes rooms above it"


@pytest.mark.parametrize("floor", ROOMS)
def test_every_room_that_is_named_is_there(floor):
    assert {room_of(path) for path in SOURCES if floor_of(path) == floor} == set(ROOMS[floor])


def test_rooms_are_not_crowded():
    units = collections.Counter(str(pathlib.Path(unit).parent) for unit in edges_of(unit_of))
    assert {room for room, count in units.items() if count > MOST_UNITS} == set()


def test_no_ring_of_files():
    assert rings.rings(edges_of(include_id)) == []


def test_no_ring_of_units():
    assert rings.rings(edges_of(unit_of)) == []


@pytest.mark.parametrize("floor", ["passes", "runtime"])
def test_passes_and_runtime_know_no_op_of_pytorch_by_name(floor):
    compared = re.compile(r'[=!]= "aten\.|(?:starts|ends)_with\("aten|contains\("aten|\{"aten')
    found = [p for p in SOURCES if floor_of(p) == floor and compared.search(p.read_text())]
    assert found == []


NAMESPACE = re.compile(r"^namespace (spmdx\S*) \{", re.MULTILINE)
TYPE = re.compile(r"^(?:struct|class|enum class) (\w+)\b(?! *;)[^;{]*\{", re.MULTILINE)


def test_no_two_headers_define_a_type_of_one_name():
    """The linker keeps one of two destructors that bear the same name."""
    homes = collections.defaultdict(set)
    for path in SOURCES:
        text = path.read_text()
        for name in TYPE.findall(text) if path.suffix == ".h" else []:
            homes[NAMESPACE.search(text)[1], name].add(path)
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


def product_files() -> list[pathlib.Path]:
    files = [ROOT / "CMakeLists.txt", ROOT / "Makefile"]
    for folder in PRODUCT_FOLDERS:
        for suffix in ("*.h", "*.cpp", "*.py", "*.pyi", "*.cmake"):
            files += (ROOT / folder).rglob(suffix)
    return sorted(files)


@pytest.mark.parametrize("path", product_files(), ids=include_id)
def test_every_file_starts_with_its_licence(path):
    mark = "//" if path.suffix in (".h", ".cpp") else "#"
    lines = path.read_text().splitlines()
    assert lines and lines[0] == f"{mark} SPDX-License-Identifier: Apache-2.0"
