# SPDX-License-Identifier: Apache-2.0
"""docs/hardware.md: its table is what the profiles say, and its file can be loaded."""

import json
import re
import subprocess
import sys

import pytest
from spmdx import Hardware
from spmdx.hardware import hardware_names


@pytest.fixture(scope="module")
def page(root):
    return (root / "docs" / "hardware.md").read_text()


def row(profile):
    memory = f"{profile.memory_bytes / 2**30:g} GiB" if profile.memory_bytes else "not told"
    rates = ", ".join(f"{d} {rate / 1e12:g}" for d, rate in profile.flops_per_second.items())
    bandwidth = f"{profile.memory_bytes_per_second / 1e9:g}"
    return f"| `{profile.name}` | {memory} | {bandwidth} | {rates} |"


def test_the_table_is_that_of_the_profiles(page):
    told = [line for line in page.splitlines() if line.startswith("| `")]
    assert told == [row(Hardware.named(name)) for name in hardware_names()]


def test_the_file_of_the_page_is_one(page, tmp_path):
    (text,) = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    path = tmp_path / "my-device.toml"
    path.write_text(text)
    assert Hardware.load(path).flops_per_second == {"f32": 82.6e12, "bf16": 165.2e12}


def test_predicted_latencies_are_those_of_the_benchmark(page, root, tmp_path):
    path = tmp_path / "figures.json"
    command = [sys.executable, root / "benchmarks" / "latency.py", "--no-measuring", "--json", path]
    subprocess.run(command, check=True, capture_output=True)
    rows = [row for row in json.loads(path.read_text()) if row["by"] == "predicted"]
    assert len(rows) > 30
    for row in rows:
        assert _line(row) in page


def _line(row):
    """A row of the page's table, or how it begins, where no one published anything."""
    work = " × ".join(str(n) for n in (row["network"], row["batch"], row["sequence"]) if n)
    ms = f"{row['ms']:,.3g}" if row["ms"] < 100 else f"{row['ms']:,.0f}"
    told = f"| {work} | `{row['device']}` | {row['dtype']} | {ms} |"
    if "ratio" in row:
        told += f" {row['published_ms']:.4g} | {row['ratio']:.2f} | {row['published_by']} |"
    return told
