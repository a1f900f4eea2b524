# SPDX-License-Identifier: Apache-2.0
"""Every page of the docs runs as it is printed, and every file that it names exists."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def name(page):
    return str(page.relative_to(ROOT)).removeprefix("docs/")


def blocks(page):
    """The ```python blocks of a page, joined: later ones build on earlier ones."""
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def not_run(page):
    """[(reason, code)] of the ```py blocks, which need what is not installed."""
    marked = r"(?:^<!-- not run: (.+) -->\n)?^```py\n(.*?)^```"
    return re.findall(marked, page.read_text(), re.MULTILINE | re.DOTALL)


def dumps(page):
    """[(pass, lines)] of the excerpts that a page gives as what SPMDX_DUMP writes."""
    marked = r"^<!-- dump: ([\w-]+) -->\n```text\n(.*?)^```"
    found = re.findall(marked, page.read_text(), re.MULTILINE | re.DOTALL)
    return [(name, [line for line in text.splitlines() if line != "…"]) for name, text in found]


def prints(page):
    """What a page says that its blocks print, in one ```text block a mark."""
    marked = r"^<!-- prints -->\n```text\n(.*?)^```"
    return re.findall(marked, page.read_text(), re.MULTILINE | re.DOTALL)


def run(page, folder, **environment):
    """Pasted in an empty folder, with no variable set."""
    script = folder / "train.py"  # a name that no package has, unlike some pages
    script.write_text("\n".join(blocks(page)))
    unset = {name: text for name, text in os.environ.items() if not name.startswith("SPMDX_")}
    return subprocess.run(
        [sys.executable, "-P", str(script)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        env={**unset, **environment},
    )


def holds(text, lines):
    """Whether these lines come in this order; where an op was written does not count."""
    written = iter([re.sub(r"  // \S+:\d+$", "", line) for line in text.splitlines()])
    return all(line in written for line in lines)


def folder_paths(page):
    """Paths of the repository that a page names in back-quotes."""
    named = re.findall(
        r"`((?:csrc|python|tests|examples|benchmarks|docs)/[\w/.*{},-]+)`", page.read_text()
    )
    return [path.rstrip("/") for path in named if not set(path) & set("*{}")]


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=name)
def test_the_blocks_of_a_page_run(page, tmp_path):
    done = run(page, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    for printed in prints(page):
        assert printed in done.stdout


@pytest.mark.parametrize("page", [p for p in PAGES if dumps(p)], ids=name)
def test_the_dumps_of_a_page_are_what_is_written(page, tmp_path):
    done = run(page, tmp_path, SPMDX_DUMP=str(tmp_path / "dumps"))
    assert done.returncode == 0, done.stdout + done.stderr
    for name, lines in dumps(page):
        texts = [path.read_text() for path in (tmp_path / "dumps").glob(f"*-{name}.txt")]
        assert any(holds(text, lines) for text in texts), f"no dump after {name} has {lines}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_code_of_a_page_is_run_or_says_why_not(page):
    for reason, code in not_run(page):
        assert reason, f"a ```py block has no mark <!-- not run: why -->: {code}"
        ast.parse(code)
    kinds = set(re.findall(r"^```.*?(\w*py\w*)", page.read_text(), re.MULTILINE | re.IGNORECASE))
    assert kinds <= {"python", "py"}  # and no other name of Python, which nothing would run


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_files_named_by_a_page_exist(page):
    missing = [path for path in folder_paths(page) if not (ROOT / path).exists()]
    assert not missing, f"{page.name} names files that do not exist: {missing}"


def test_the_readme_and_the_tour_have_blocks():
    with_blocks = {page.name for page in PAGES if blocks(page)}
    assert {"README.md", "sharding.md", "add_an_op.md"} <= with_blocks
    assert len(dumps(ROOT / "docs" / "sharding.md")) == 5
    assert len(prints(ROOT / "docs" / "hugging_face.md")) == 1
    assert {"coming_from/ddp.md", "coming_from/jax.md"} <= {name(p) for p in PAGES if blocks(p)}
    assert len(not_run(ROOT / "docs" / "coming_from" / "jax.md")) == 1
