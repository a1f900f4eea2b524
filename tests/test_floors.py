# SPDX-License-Identifier: Apache-2.0
"""The floors of the tree: includes go down, the core knows no torch, every file starts well."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
CSRC = ROOT / "csrc"
FLOORS = ["base", "sharding", "graph", "rules", "passes", "runtime", "bridge", "bind"]
CORE = FLOORS[: FLOORS.index("bridge")]
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', re.MULTILINE)
TORCH_HEADERS = ("torch/", "ATen/", "c10/", "pybind11/", "Python.h")
SOURCES = sorted(p for p in CSRC.rglob("*") if p.suffix in (".h", ".cpp"))
PRODUCT_FOLDERS = ["csrc", "python", "tests", "examples", "benchmarks", "scripts", "cmake"]


def includes(path: pathlib.Path) -> list[tuple[str, str]]:
    """Pairs of the bracket and the path of every include."""
    return INCLUDE.findall(path.read_text())


def floor_of(path: pathlib.Path) -> str:
    return path.relative_to(CSRC).parts[0]


def include_id(path: pathlib.Path) -> str:
    return str(path.relative_to(ROOT))


def find_cycle(edges: dict[str, list[str]]) -> list[str] | None:
    """Some cycle of a graph, or None; depth-first."""
    done: set[str] = set()

    def visit(node: str, trail: list[str]) -> list[str] | None:
        if node in trail:
            return [*trail[trail.index(node) :], node]
        if node in done:
            return None
        for target in edges.get(node, []):
            if cycle := visit(target, [*trail, node]):
                return cycle
        done.add(node)
        return None

    return next((cycle for node in edges if (cycle := visit(node, []))), None)


def test_there_are_sources():
    assert {floor_of(p) for p in SOURCES} >= set(FLOORS)


def test_a_cycle_is_found():
    assert find_cycle({"a": ["b"], "b": ["c"], "c": ["b"]}) == ["b", "c", "b"]
    assert find_cycle({"a": ["b", "c"], "b": ["c"]}) is None


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


@pytest.mark.parametrize("floor", FLOORS)
def test_no_include_cycle_within_a_floor(floor):
    edges = {
        str(p.relative_to(CSRC)): [t for bracket, t in includes(p) if bracket == '"']
        for p in SOURCES
        if floor_of(p) == floor
    }
    assert find_cycle(edges) is None


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
