# SPDX-License-Identifier: Apache-2.0
"""What mkdocs is told beyond mkdocs.yml: pages made of notebooks, modules and files of the root."""

import pathlib
import posixpath
import re
from collections.abc import Iterator
from typing import Any

from mkdocs.structure.files import File
from nbconvert import MarkdownExporter
from nbconvert.preprocessors import CoalesceStreamsPreprocessor

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "spmdx"
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
OF_THE_ROOT = {name: f"project/{name.lower()}" for name in ("CHANGELOG.md", "CONTRIBUTING.md")}
OF_THE_ROOT["SECURITY.md"] = "project/security.md"
ELSEWHERE = ("__main__", "torch_xla")  # docs/torch_xla.md tells what is there
REFERENCE = "::: {}\n    options:\n      heading_level: 1\n      show_root_heading: true\n"
NOT_RUN = re.compile(r"^<!-- not run: (.+) -->$", re.MULTILINE)
FENCED = re.compile(r"^( *)(```+)[^\n]*\n.*?^\1\2 *$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"`(docs/[\w/]+\.md|[A-Z]+\.md)`")
# Blocks that hold what programs say: long lines, which are not code.
SAID = re.compile(r"^(<!-- (?:prints|said by: .+) -->\n+)```text$", re.MULTILINE)
ANSI = re.compile(r"\x1b\[[\d;]*m")


def public_modules(folder: pathlib.Path = PACKAGE, name: str = "spmdx") -> Iterator[str]:
    """The names of the package and of its public modules, in order."""
    yield name
    for path in sorted(folder.iterdir()):
        if path.stem.startswith("_") or path.stem in ELSEWHERE:
            continue
        if path.suffix == ".py":
            yield f"{name}.{path.stem}"
        elif (path / "__init__.py").exists():
            yield from public_modules(path, f"{name}.{path.name}")


def on_config(config: Any) -> Any:
    """Fills the parts of the nav that follow from what there is."""
    parts = {title: part for entry in config.nav for title, part in entry.items()}
    parts["Notebooks"] += [f"notebooks/{path.stem}.md" for path in NOTEBOOKS]
    parts["Reference"] += [{name: f"reference/{name}.md"} for name in public_modules()]
    parts["Project"] += list(OF_THE_ROOT.values())
    placed = set(_pages(config.nav))
    docs = pathlib.Path(config.docs_dir)
    found = (str(path.relative_to(docs)) for path in sorted(docs.rglob("*.md")))
    if more := [page for page in found if page not in placed]:
        config.nav.append({"More": more})
    return config


def _pages(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    else:
        for entry in nav.values() if isinstance(nav, dict) else nav:
            yield from _pages(entry)


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages that are made here."""
    for path in NOTEBOOKS:
        for name, content in _notebook(path):
            files.append(File.generated(config, name, content=content))
    for name in public_modules():
        files.append(File.generated(config, f"reference/{name}.md", content=REFERENCE.format(name)))
    for name, page in OF_THE_ROOT.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text()))
    return files


def _notebook(path: pathlib.Path) -> Iterator[tuple[str, str | bytes]]:
    """(name, content) of a notebook's page and of its pictures."""
    folder = f"{path.stem}_files"
    exporter = MarkdownExporter()
    exporter.register_preprocessor(CoalesceStreamsPreprocessor(), enabled=True)
    text, resources = exporter.from_filename(
        str(path), {"unique_key": path.stem, "output_files_dir": folder}
    )
    where = f"*This page is `examples/notebooks/{path.name}`, with what its cells printed.*"
    heading, _, rest = ANSI.sub("", text).lstrip().partition("\n")
    yield f"notebooks/{path.stem}.md", f"{heading}\n\n{where}\n{rest}"
    for name, picture in resources["outputs"].items():
        yield f"notebooks/{name}", picture


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links pages that are named by their paths, and shows what says that a block is not run."""
    here = page.file.src_uri
    markdown = SAID.sub(r"\1```{.text .said}", markdown)
    pieces, end = [], 0
    for block in FENCED.finditer(markdown):
        pieces += [_linked(markdown[end : block.start()], here, files), block[0]]
        end = block.end()
    return "".join([*pieces, _linked(markdown[end:], here, files)])


def _linked(text: str, here: str, files: Any) -> str:
    def link(named: re.Match[str]) -> str:
        path = named[1]
        target = OF_THE_ROOT.get(path) or path.removeprefix("docs/")
        if target == here or files.get_file_from_path(target) is None:
            return named[0]
        relative = posixpath.relpath(target, posixpath.dirname(here) or ".")
        return f"[{_title(ROOT / path)}]({relative})"

    shown = NOT_RUN.sub(r"*Not run by the tests: \1.*\n", text)
    return NAMED.sub(link, shown)


def _title(path: pathlib.Path) -> str:
    """The first heading of a page."""
    found = re.search(r"^# (.+)$", path.read_text(), re.MULTILINE)
    return found[1] if found else path.stem
