# SPDX-License-Identifier: Apache-2.0
"""The benchmark of the search: its settings, that none is done twice, and what it shows."""

import importlib.util
import io
import json
import sys
from pathlib import Path

import pytest
from rich.console import Console

PATH = Path(__file__).parents[3] / "benchmarks" / "search.py"


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("benchmark_of_the_search", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def options(benchmark, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["search.py", *arguments])
    return benchmark.arguments()


def choice(strategy, step_ns):
    return {"strategy": strategy, "step_ns": step_ns, "peak_bytes": 5, "estimated_ns": step_ns}


def found(ratio, limit=0):
    chosen, best = choice("data=4", round(ratio * 10_000_000)), choice("model=4", 10_000_000)
    return {"limit": limit, "strategies": 9, "chosen": chosen, "best": best}


def test_settings_are_all_products_and_the_first_ones_have_all_models(benchmark, monkeypatch):
    wanted = benchmark.settings(options(benchmark, monkeypatch))
    assert len(wanted) == len(set(wanted)) == 30 * 3 * 3
    assert len({name for name, *_ in wanted[:30]}) == 30
    assert {place[1] for _, *place in wanted} == {"in-process", "nvlink", "gloo", "infiniband"}
    few = options(
        benchmark, monkeypatch, "--models", "^gpt, t", "--devices", "8", "--topologies", "nv"
    )
    assert benchmark.settings(few) == [("gpt, tiny", 8, "nvlink"), ("gpt, tied", 8, "nvlink")]


def test_what_is_known_is_not_done_again(benchmark, monkeypatch, tmp_path):
    path, known = tmp_path / "known.json", {"gpt, tiny | 4 | nvlink": [found(1)]}
    path.write_text(json.dumps(known))
    monkeypatch.setattr(benchmark, "ProcessPoolExecutor", None)  # nothing is to be started
    benchmark.run([("gpt, tiny", 4, "nvlink")], 1, known, path, None)
    assert json.loads(path.read_text()) == known


def test_what_is_beyond_is_shown_with_both_strategies(benchmark):
    shown = io.StringIO()
    known = {
        "gpt, tiny | 4 | nvlink": [found(1.01), found(1.05, limit=3_000_000)],
        "two towers | 8 | gloo": [{**found(1), "chosen": None}],
    }
    benchmark.show(Console(file=shown, width=200), known)
    text = shown.getvalue()
    assert "│ gpt, tiny  │        2 │       50% │       1.050 │" in text
    assert "│ all        │        3 │       33% │         inf │" in text
    assert "data=4: 10.500 ms" in text and "model=4: 10.000 ms" in text
    assert "4 nvlink" in text and "8 gloo" in text and " none " in text
