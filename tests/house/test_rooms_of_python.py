# SPDX-License-Identifier: Apache-2.0
"""The rooms of the Python package: imports go down, nothing runs in circles, and what is public."""

import ast
import importlib
import inspect
import pathlib
import pickle
import pkgutil

import pytest
import spmdx
from rings import rings
from spmdx._start.names import PLACES

if spmdx.runtime.global_runtime_device_count() < 8:
    spmdx.runtime.set_device_count(8)

PACKAGE = pathlib.Path(spmdx.__file__).parent
# From the ground up: modules of spmdx itself, and rooms by their dotted names.
GROUND, TOP, COMMAND = ["_version", "errors"], "__init__", "__main__"
ROOMS = [
    "_base",
    "_world",
    "_annotate",
    "_manual",
    "_device",
    "_compile",
    "_modules",
    "_program",
    "_replay.state",
    "_replay",
    "_segments",
    "_targets.onnx_rows",
    "_targets",
    "_compiling",
    "_machine",
    "_kinds",
    "_pipelines",
    "_rules",
    "_report.chakra",
    "_report.times",
    "_report",
    "_auto.parts",
    "_auto",
    "_auto.effects",
    "_export",
    "_data",
    "_checkpoint.format",
    "_checkpoint",
    "_checkpoint.safetensors",
    "public",
    "_start",
]
# Above what users import of spmdx: torch_xla's own tree of modules, which is one room here, other
# frames, and what both are made of.
ABOVE = [
    "_xla.device",
    "_xla",
    "torch_xla",
    "_integrations",
    "_integrations.deepspeed",
    "_integrations.hugging_face",
    "_integrations.lightning",
    "_integrations.pretrained",
    "integrations",
]
PUBLIC = {
    "auto",
    "checkpoint",
    "collectives",
    "compilers",
    "data",
    "debug",
    "errors",
    "integrations",
    "metrics",
    "nn",
    "pipelines",
    "rules",
    "runtime",
    "torch_xla",
}
MOST = 15  # modules of a room
# Imported where they are needed, since they import torch.distributed.checkpoint, rich, or onnx.
LATE = {"_checkpoint.format.metadata", "_report.drawing", "_targets.onnx_graph"}


def name_of(path: pathlib.Path) -> str:
    """Dotted, without "spmdx."; a package is what its __init__ is."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and parts[1:] else parts)


MODULES = {name_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def room_of(module: str) -> str:
    parts = MODULES[module].relative_to(PACKAGE).parent.parts
    return ".".join(parts[:1] if parts[:1] == ("torch_xla",) else parts) or "public"


def floor_of(module: str) -> int:
    if module in GROUND:
        return -1
    if module in (TOP, COMMAND):
        return len(ROOMS) + (module == COMMAND)
    return [*ROOMS, TOP, *ABOVE].index(room_of(module))


def is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def own_name(dotted: str) -> str | None:
    """The module of ours that has this dotted name, if one has."""
    name = TOP if dotted == "spmdx" else dotted.removeprefix("spmdx.")
    return name if name in MODULES and dotted.split(".")[0] == "spmdx" else None


def named_by(node: ast.AST) -> set[str]:
    """The modules of ours that an import statement names."""
    if isinstance(node, ast.Import):
        found = {own_name(alias.name) for alias in node.names}
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        inner = {own_name(f"{base}.{alias.name}") for alias in node.names}
        found = inner if inner != {None} else {own_name(base)}
    else:
        found = set()
    return {name for name in found if name is not None}


def imports(tree: ast.AST, in_function: bool | None = None) -> set[str]:
    """What is imported, but for types; in functions only, or everywhere."""
    found: set[str] = set()

    def walk(node: ast.AST, inside: bool) -> None:
        if is_for_types(node):
            return
        if not in_function or inside:
            found.update(named_by(node))
        inside = inside or isinstance(node, ast.FunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            walk(child, inside)

    walk(tree, False)
    return found


TREES = {name: ast.parse(path.read_text()) for name, path in MODULES.items()}
EDGES = {name: sorted(imports(tree)) for name, tree in TREES.items()}


def test_imports_are_seen():
    code = (
        "import spmdx.errors as e\nimport spmdx._C as _C\n"
        "def f():\n    from spmdx._world import hardware\n"
        "    from spmdx._annotate.mesh import Mesh\n"
        "if TYPE_CHECKING:\n    from spmdx.nn import fully_shard\n"
    )
    below = {"_world.hardware", "_annotate.mesh"}
    assert imports(ast.parse(code)) == {"errors", *below}
    assert imports(ast.parse(code), True) == below
    assert imports(ast.parse("import spmdx")) == imports(ast.parse("from spmdx import _C")) == {TOP}


def test_every_room_has_a_floor():
    assert {room_of(module) for module in MODULES} == {*ROOMS, *ABOVE}


@pytest.mark.parametrize("module", MODULES)
def test_imports_go_down(module):
    for target in EDGES[module]:
        assert floor_of(target) <= floor_of(module), f"{module} imports {target}, a room up"


def test_no_module_imports_itself_around_others():
    assert rings({name: set(targets) for name, targets in EDGES.items()}) == []


@pytest.mark.parametrize("module", MODULES)
def test_modules_are_imported_at_the_top_unless_they_cost(module):
    assert imports(TREES[module], True) <= LATE


@pytest.mark.parametrize("room", [r for r in [*ROOMS, *ABOVE] if r != "torch_xla"])
def test_a_room_has_few_modules(room):
    assert sum(room_of(module) == room for module in MODULES) <= MOST


def test_what_lies_in_the_package_itself_is_public_and_all_else_in_rooms_that_are_not():
    modules = {m.name: m.ispkg for m in pkgutil.iter_modules([str(PACKAGE)])}
    assert {name for name in modules if not name.startswith("_")} == PUBLIC
    assert {name for name, is_room in modules.items() if is_room} == {
        room.split(".")[0] for room in [*ROOMS, *ABOVE] if room != "public"
    }


def listed() -> list[tuple[str, object]]:
    """The public functions and classes, by the names that users write."""
    modules = [spmdx, *(importlib.import_module(f"spmdx.{name}") for name in sorted(PUBLIC))]
    pairs = []
    for module in modules:
        names = getattr(module, "__all__", [n for n in vars(module) if not n.startswith("_")])
        pairs += [(f"{module.__name__}.{name}", getattr(module, name)) for name in names]
    return [(name, value) for name, value in pairs if inspect.isroutine(value) or is_own(value)]


def is_own(value: object) -> bool:
    return inspect.isclass(value) and value.__module__.startswith("spmdx")


def helpers_of(module: str) -> set[str]:
    """What a public module has imported for itself: no `__all__` says otherwise."""
    source = TREES[module.removeprefix("spmdx.")]
    froms = (node for node in ast.walk(source) if isinstance(node, ast.ImportFrom))
    return {alias.asname or alias.name for node in froms for alias in node.names}


def test_what_is_public_bears_a_public_name():
    for name, value in listed():
        module, _, leaf = name.rpartition(".")
        if module != "spmdx" and not hasattr(importlib.import_module(module), "__all__"):
            if leaf in helpers_of(module):
                continue
        home = value.__module__
        assert not any(part.startswith("_") for part in home.split(".")), f"{name} is of {home}"
        assert getattr(importlib.import_module(home), value.__qualname__) is value


@pytest.mark.parametrize("name", PLACES)
def test_modules_of_rooms_are_found_by_their_public_names(name):
    module = importlib.import_module(f"spmdx.{name}")
    assert module is importlib.import_module(f"spmdx.{PLACES[name]}")
    assert pathlib.Path(module.__file__) == MODULES[PLACES[name]]


def test_pickles_name_no_room():
    mesh = spmdx.Mesh([0], (1,), ("a",))
    topology = spmdx.Topology.named("gloo")
    values = [mesh, spmdx.PartitionSpec("a"), topology, spmdx.Mesh, spmdx.mark_sharding]
    values += [spmdx.data.ShardingSpec, spmdx.ShardedTensor, spmdx.LocalShard]
    for value in values:
        written = pickle.dumps(value, protocol=0)
        assert b"spmdx._" not in written and pickle.loads(written) == value


def test_sources_of_what_is_public_are_found():
    for value in spmdx.Mesh, spmdx.Sharding, spmdx.ShardedTensor, spmdx.mark_sharding:
        assert inspect.getsource(value)
