# SPDX-License-Identifier: Apache-2.0
"""docs/why_gathered.md: its commands, typed one after the other, print what it says."""

import os
import re
import subprocess
import sys

import pytest

BLOCK = r"^```{}\n(.*?)^```"


@pytest.fixture(scope="module")
def page(root):
    return (root / "docs" / "why_gathered.md").read_text()


@pytest.fixture(scope="module")
def shell(page, spmdx_opt, tmp_path_factory):
    """Runs a command where a reader is who has saved the program of the page."""
    folder = tmp_path_factory.mktemp("why")
    (program,) = re.findall(BLOCK.format("python"), page, re.MULTILINE | re.DOTALL)
    (folder / "why.py").write_text(program)
    (folder / "build").mkdir()
    (folder / "build" / "spmdx-opt").symlink_to(spmdx_opt)
    unset = {name: text for name, text in os.environ.items() if not name.startswith("SPMDX_")}
    path = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]

    def run(command):
        return subprocess.run(
            ["sh", "-c", command],
            cwd=folder,
            env={**unset, "PATH": path, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        ).stdout

    return run


def test_each_command_prints_what_follows_it(page, shell):
    pairs = r"^```sh\n(.*?)\n```\n```text\n(.*?)^```"
    shown = re.findall(pairs, page, re.MULTILINE | re.DOTALL)
    assert len(shown) == 4
    for command, text in shown:
        printed = iter(shell(command).splitlines())
        missing = [line for line in text.splitlines() if line not in printed]
        assert not missing, f"{command} does not print, in this order, {missing}"


def test_the_decisions_of_a_dump_are_those_that_are_made_again(shell):
    shell("SPMDX_DUMP=again python why.py")
    dumped = shell("cat again/001-09-decisions.txt")
    again = shell("build/spmdx-opt --topology nvlink --decisions again/001-08-expand-gathered.txt")
    assert re.sub(r"  // why\.py:\d+$", "", dumped, flags=re.MULTILINE) == again
    from_the_start = "--topology nvlink --pass propagate --decisions again/001-00-traced.txt"
    assert shell(f"build/spmdx-opt {from_the_start}") == again


def test_the_sums_of_the_page_are_right(page):
    text = " ".join(page.split())
    assert "receive 122880 bytes" in text and 122880 == 24576 + 98304
    assert "the other 663552 bytes take 2654 ns" in text and 663552 == 786432 - 122880
    assert 2654 == 663552 * 4 // 1000  # picoseconds a byte
