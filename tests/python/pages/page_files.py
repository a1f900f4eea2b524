# SPDX-License-Identifier: Apache-2.0
"""The files that a page shows, put into a copy of those of the tree, and what is built of them."""

import pathlib
import re
import subprocess
from collections.abc import Sequence

MARKED = r"^<!-- {} -->\n```\w*\n(.*?)^```"
EDIT = r"(\S+), (after|before|in place of): (.+?)"


def marked(page: str, mark: str) -> list[tuple[str, ...]]:
    """What the groups of a mark hold, and the block below it."""
    return re.findall(MARKED.format(mark), page, re.MULTILINE | re.DOTALL)


def price(root: pathlib.Path, page: str) -> int:
    """How many files CONTRIBUTING.md says that the page's change touches."""
    text = (root / "CONTRIBUTING.md").read_text()
    (files,) = re.findall(rf"^\|[^|]*\| (\d+) \|.*`{page}`", text, re.MULTILINE)
    return int(files)


def insert(text: str, where: str, anchor: str, block: str) -> str:
    """The text with a block after, before or in place of the one line that holds the anchor."""
    lines = text.splitlines(keepends=True)
    at = [i for i, line in enumerate(lines) if anchor in line]
    assert len(at) == 1, f"{len(at)} lines hold {anchor!r}, expected one"
    first, last = at[0] + (where == "after"), at[0] + (where != "before")
    return "".join([*lines[:first], block, *lines[last:]])


def put_in(page: str, root: pathlib.Path, folder: pathlib.Path) -> list[str]:
    """Writes every file that the page adds or changes below the folder; their paths."""
    changed: dict[str, str] = {}
    for path, text in marked(page, r"new: (\S+)"):
        assert not (root / path).exists(), f"{path} exists: choose another example"
        changed[path] = text
    for path, where, anchor, text in marked(page, EDIT):
        before = changed.get(path) or (root / path).read_text()
        changed[path] = insert(before, where, anchor, text)
    for path, text in changed.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return sorted(changed)


TOOL = ("csrc/tools/spmdx_opt.cpp", "csrc/tools/write_hls.cpp")  # spmdx-opt


def unit(folder: pathlib.Path, root: pathlib.Path, room: pathlib.Path) -> pathlib.Path:
    """A file that is all files of a room, as the folder changes them: they are compiled as one."""
    files = {path.name: path for tree in (root, folder) for path in (tree / room).glob("*.cpp")}
    made = folder / "units" / f"{'_'.join(room.parts)}.cpp"
    made.parent.mkdir(exist_ok=True)
    made.write_text("".join(f'#include "{files[name]}"\n' for name in sorted(files)))
    return made


def build(
    folder: pathlib.Path,
    root: pathlib.Path,
    spmdx_opt: pathlib.Path,
    *mains: str,
    options: Sequence[str] = (),
) -> pathlib.Path:
    """A program of these files of the tree, and of the core as the folder changes it."""
    changed = [p for p in (folder / "csrc").rglob("*.cpp") if "bridge" not in p.parts]
    rooms = sorted({path.parent.relative_to(folder) for path in changed})
    units = [unit(folder, root, room) for room in rooms]
    sources = [folder / main if (folder / main).exists() else root / main for main in mains]
    program = folder / pathlib.Path(mains[0]).stem
    includes = [folder / "csrc", root / "csrc", root / "tests/core"]
    done = subprocess.run(
        ["g++", "-std=c++20", "-O0", *(f"-I{include}" for include in includes)]
        + [*units, *sources, spmdx_opt.parent / "libspmdx_core.a", "-pthread", *options]
        + ["-o", program],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return program


def run(program: pathlib.Path, *words: str, text: str = "") -> str:
    done = subprocess.run([program, *words], input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
