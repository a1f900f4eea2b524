# SPDX-License-Identifier: Apache-2.0
"""docs/support.md and docs/releases.md say what the files say that decide."""

import re
import tomllib

import pytest


@pytest.fixture(scope="module")
def page(root):
    return (root / "docs/support.md").read_text()


def column(page, title):
    """{first cell: second cell} of the table below a title."""
    section = page.split(f"\n## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]
    return {row[0]: row[1] for row in cells}


def first(pattern, path):
    found = re.search(pattern, path.read_text(), re.MULTILINE)
    assert found, f"{path} has no {pattern}"
    return found


def test_what_is_needed_is_what_the_build_asks_for(page, root):
    needed = column(page, "To run and to build")
    project = tomllib.loads((root / "pyproject.toml").read_text())
    cmake, compat = root / "CMakeLists.txt", root / "csrc/bridge/backend/compat.h"
    python = needed["Python"].split()[0]
    assert project["project"]["requires-python"] == f">={python}"
    assert first(r"find_package\(Python (\S+) ", cmake)[1] == python
    assert needed["CMake"].split()[0] == first(r"VERSION (\d+\.\d+)\)$", cmake)[1]
    assert project["tool"]["scikit-build"]["cmake"]["version"] == f">={needed['CMake'].split()[0]}"
    torch = needed["PyTorch, to build with"].split()[0]
    assert f'#error "spmdx needs PyTorch {torch} or newer"' in compat.read_text()
    major, minor = torch.split(".")
    assert f"TORCH_VERSION_MAJOR == {major} && TORCH_VERSION_MINOR < {minor})" in compat.read_text()
    assert needed["C++"].startswith("C++" + first(r"CMAKE_CXX_STANDARD (\d+)", cmake)[1] + ":")
    assert needed["operating system"] == "Linux"
    assert "Operating System :: POSIX :: Linux" in project["project"]["classifiers"]


def test_what_tests_use_is_what_is_pinned(page, root):
    pins = dict(re.findall(r"^(\S+)==(\S+)$", (root / "requirements.txt").read_text(), re.M))
    used = column(page, "What every test run uses")
    assert len(used) >= 6
    assert used == {name: pins.get(name) for name in used}


def test_the_versions_that_wheels_are_tried_with_are_those_of_the_makefile(page, root):
    versions = first(r"^TORCH \?= (.+)$", root / "Makefile")[1].split()
    assert f"for PyTorch {versions[0]} and {versions[1]}." in page and len(versions) == 2


def test_the_least_compiler_is_the_one_the_readme_names(page, root):
    (compiler,) = re.findall(r"g\+\+ \d+", page)
    assert f"{compiler} or newer" in (root / "README.md").read_text()


def test_a_version_is_one_everywhere(root):
    version = first(r'__version__ = "(.+)"', root / "python/spmdx/_version.py")[1]
    assert first(r"project\(spmdx VERSION (\S+) ", root / "CMakeLists.txt")[1] == version
    unreleased = f"## [{version}] - unreleased" in (root / "CHANGELOG.md").read_text()
    says_so = f"{version}, is not released yet" in (root / "docs/releases.md").read_text()
    assert unreleased == says_so


def test_nothing_is_deprecated_while_the_page_says_so(root):
    assert "Nothing is deprecated now." in (root / "docs/releases.md").read_text()
    sources = (root / "python/spmdx").rglob("*.py")
    assert [path for path in sources if "FutureWarning" in path.read_text()] == []
