# SPDX-License-Identifier: Apache-2.0
"""_C.pyi says of the compiled module what it offers: its names, and the signatures it tells."""

import ast
import inspect
import pathlib
import re

import pytest
import spmdx._C as compiled

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "python" / "spmdx"
STUB = PACKAGE / "_C.pyi"
STUB_OF_REPLAYS = PACKAGE / "_replay" / "replays.pyi"  # of the module within it
# What pybind11 writes, and what the stub does.
WRITTEN = [
    (r"\btyping\.SupportsInt \| typing\.SupportsIndex\b", "int"),
    (r"\btyping\.SupportsFloat \| typing\.SupportsIndex\b", "float"),
    (r"\b(?:typing|collections\.abc|torch|spmdx\._C\.replays|spmdx\._C)\.", ""),
    (r"'([^']*)'", r'"\1"'),
]
VAGUE = {"object", "dict", "list"}  # pybind11 knows no more of these: the stub may


def stub_of(body: list[ast.stmt]) -> dict[str, ast.stmt]:
    """What the stub declares in a class or a file, by name."""
    named = [s for s in body if isinstance(s, ast.ClassDef | ast.FunctionDef)]
    data = [s for s in body if isinstance(s, ast.AnnAssign)]
    return {s.name: s for s in named} | {ast.unparse(s.target): s for s in data}


DECLARED = stub_of(ast.parse(STUB.read_text()).body)
OF_REPLAYS = stub_of(ast.parse(STUB_OF_REPLAYS.read_text()).body)
CLASSES = {
    name: stub_of(s.body)
    for name, s in (DECLARED | OF_REPLAYS).items()
    if isinstance(s, ast.ClassDef)
}


def told(text: object) -> ast.FunctionDef | None:
    """The signature that the first line of a docstring gives, in the words of the stub."""
    line = text.strip().split("\n")[0] if isinstance(text, str) else ""
    for pattern, ours in WRITTEN:
        line = re.sub(pattern, ours, line)
    line = line if line[:1] != "(" else "get" + line  # a property's
    return ast.parse(f"def {line}: ...").body[0] if re.match(r"\w+\(.*\) -> ", line) else None


def offered(owner: object) -> dict[str, ast.FunctionDef | None]:
    """What a module or a class offers of its own, with what it tells of the signature."""
    inits = inspect.isclass(owner) and told(owner.__init__.__doc__) is not None
    names = [n for n in vars(owner) if not n.startswith("_")] + ["__init__"] * inits
    found = {name: vars(owner)[name] for name in names}
    texts = {n: v.fget.__doc__ if isinstance(v, property) else v.__doc__ for n, v in found.items()}
    return {n: told(t) if not isinstance(found[n], str) else None for n, t in texts.items()}


def differs(said: ast.expr | None, annotation: ast.expr | None) -> bool:
    """Whether a type is another than the compiled module tells. The stub may know more, or Any."""
    words, ours = ast.unparse(said) if said else "", ast.unparse(annotation) if annotation else ""
    fits = re.fullmatch(re.escape(ours).replace("Any", ".*"), words)
    return fits is None and words not in VAGUE


def mismatch(said: ast.FunctionDef, stub: ast.FunctionDef) -> str:
    """How two signatures differ; empty where they do not."""
    theirs, ours = said.args.args, stub.args.args
    if len(theirs) != len(ours) or len(said.args.defaults) != len(stub.args.defaults):
        return "as many arguments, of which as many have a default"
    for a, b in zip(theirs, ours, strict=True):
        is_self = b.arg == "self"
        if not re.fullmatch(r"arg\d+", a.arg) and a.arg != b.arg:
            return f"the argument {b.arg} is called {a.arg}"
        if not is_self and differs(a.annotation, b.annotation):
            return f"the argument {b.arg} is {ast.unparse(a.annotation)}"
    for a, b in zip(said.args.defaults, stub.args.defaults, strict=True):
        if ast.unparse(b) != "..." and ast.dump(a) != ast.dump(b):
            return f"a default is {ast.unparse(a)}, not {ast.unparse(b)}"
    return f"it gives {ast.unparse(said.returns)}" if differs(said.returns, stub.returns) else ""


def test_the_stub_names_what_the_module_has():
    names = {name for name in dir(compiled) if not name.startswith("_")}
    assert set(DECLARED) | {"replays"} == names
    assert set(OF_REPLAYS) == {n for n in dir(compiled.replays) if not n.startswith("_")}


def class_of(name):
    return getattr(compiled, name, None) or getattr(compiled.replays, name)


@pytest.mark.parametrize("name", CLASSES)
def test_the_stub_names_what_a_class_has(name):
    assert set(CLASSES[name]) == set(offered(class_of(name)))


@pytest.mark.parametrize("name", [None, *CLASSES], ids=lambda name: name or "functions")
def test_signatures_are_those_that_the_module_tells(name):
    stub, owner = (CLASSES[name], class_of(name)) if name else (DECLARED | OF_REPLAYS, compiled)
    signatures = {n: s for n, s in offered(owner).items() if s is not None}
    if name is None:
        signatures |= {n: s for n, s in offered(compiled.replays).items() if s is not None}
    said = {n: mismatch(s, stub[n]) for n, s in signatures.items()}
    assert not {n: text for n, text in said.items() if text}


def test_most_signatures_are_told():
    assert sum(s is not None for s in offered(compiled).values()) > 70
