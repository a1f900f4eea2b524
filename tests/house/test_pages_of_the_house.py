# SPDX-License-Identifier: Apache-2.0
"""What a contributor reads and runs first: that it is there, and that what it names exists."""

import os
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ["CHANGELOG.md", "CONTRIBUTING.md", "README.md", "SECURITY.md"]
CHECKS = ["lint", "types", "asan", "test"]  # the soonest done first
FOLDERS = "csrc|python|tests|examples|benchmarks|docs"
HOOK_TOOLS = {"ruff", "clang-format", "mypy"}


def text(name: str) -> str:
    return (ROOT / name).read_text()


def targets() -> set[str]:
    """Of the Makefile."""
    return set(re.findall(r"^([a-z-]+):", text("Makefile"), re.MULTILINE))


def made(page: str) -> set[str]:
    """What a page calls with make, in back-quotes or in a block."""
    return set(re.findall(r"(?:^|`)make ([a-z-]+)", text(page), re.MULTILINE))


def paths(page: str) -> list[str]:
    """Paths of the repository that a page has in back-quotes, without its wild cards."""
    named = re.findall(
        rf"`((?:(?:{FOLDERS})/|\.)[\w/.*{{}},-]+|docs|examples|[A-Z]+\.md)`", text(page)
    )
    return [path for path in named if not set(path) & set("*{}")]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_what_exists(page):
    assert not [path for path in paths(page) if not (ROOT / path).exists()]
    assert made(page) <= targets()


def test_the_contributor_is_told_paths_and_targets():
    assert len(paths("CONTRIBUTING.md")) > 15
    assert made("CONTRIBUTING.md") >= {*CHECKS, "format", "tsan"}
    assert len(paths("SECURITY.md")) >= 3


def test_ci_runs_the_checks_in_order():
    assert re.findall(r"^make (\w+)$", text(".ci/run"), re.MULTILINE) == CHECKS
    assert set(CHECKS) <= targets()
    assert os.access(ROOT / ".ci/run", os.X_OK)


def test_hooks_are_the_tools_that_make_installs():
    hooks = text(".pre-commit-config.yaml")
    entries = re.findall(r"entry: \.venv/bin/(\S+)", hooks)
    assert hooks.count("- id:") == len(entries) and set(entries) == HOOK_TOOLS
    assert all(re.search(rf"^{tool}==", text("requirements.txt"), re.MULTILINE) for tool in entries)
    assert "repo: local" in hooks and hooks.count("repo:") == 1 and "://" not in hooks


def test_the_changelog_has_the_version():
    version = re.search(r'__version__ = "(.+)"', text("python/spmdx/_version.py")).group(1)
    assert f"## [{version}]" in text("CHANGELOG.md")
