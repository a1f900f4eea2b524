# SPDX-License-Identifier: Apache-2.0
"""What spmdx shows in a notebook: in few lines, once, with the names that a reader knows."""

import linecache
import re
import sys
import types

import pytest
import spmdx
import torch


@pytest.fixture
def mesh():
    spmdx.runtime.set_device_count(8)
    spmdx.sync(wait=True)
    return spmdx.Mesh(range(8), (4, 2), ("data", "model"))


@pytest.fixture
def shell(monkeypatch):
    """IPython, as far as it is asked: cell 3 runs, and its code is in a file with a number."""
    path = "/somewhere/1234567.py"
    compiler = types.SimpleNamespace(
        format_code_name=lambda name: ("Cell", "In[3]") if name == path else None
    )
    shell = types.SimpleNamespace(execution_count=3, compile=compiler)
    monkeypatch.setitem(linecache.cache, path, (1, None, ["x\n"], path))
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    shell.path = path
    return shell


def halves(shell, mesh, lines):
    """The report of so many sums that cross devices, written in a cell of the shell."""
    x = spmdx.mark_sharding(torch.ones(8, 64).to("spmdx"), mesh, ("data", None))
    spmdx.mark_step()
    code = "".join(f"total = x.sum(0) * total.max() * {n}\n" for n in range(lines))
    scope = {"x": x, "total": torch.ones(1, device="spmdx")}
    exec(compile(code, shell.path, "exec"), scope)
    return spmdx.explain(scope["total"])


def test_lines_are_called_after_their_cells(shell, mesh):
    report = halves(shell, mesh, 1)
    assert [c.source for c in report.collectives] == ["In[3]:1"]
    assert {s.source for s in report.spans} <= {"In[3]:1", ""}
    assert not any("1234567" in v.source for v in report.values)


def test_the_lines_of_annotations_are_called_after_their_cells(shell, mesh):
    code = 'x = spmdx.mark_sharding(torch.ones(8, 64).to("spmdx"), mesh, ("data", None))\nx = x + 1'
    scope = {"spmdx": spmdx, "torch": torch, "mesh": mesh}
    exec(compile(code, shell.path, "exec"), scope)
    told = [v.provenance for v in spmdx.explain(scope["x"]).values]
    assert any("In[3]:1" in why for why in told)
    assert not any("1234567" in why for why in told)


def test_errors_begin_with_the_line_of_a_cell(shell, mesh):
    wrong = {
        "spmdx.mark_sharding(torch.ones(8), mesh, (None,))": "In[3]:2: mark_sharding: tensor is on",
        "torch.ones(3, device='spmdx') + torch.ones(2, device='spmdx')": "In[3]:2: aten.add.Tensor",
    }
    for code, said in wrong.items():
        with pytest.raises((ValueError, RuntimeError), match=re.escape(said)):
            exec(
                compile("\n" + code, shell.path, "exec"),
                {"spmdx": spmdx, "torch": torch, "mesh": mesh},
            )
    elsewhere = compile("spmdx.Mesh([0, 0], (2,), ('x',))", "/somewhere/train.py", "exec")
    with pytest.raises(ValueError, match=r"^train\.py:1: "):
        exec(elsewhere, {"spmdx": spmdx})


def test_a_report_of_work_that_devices_repeat_is_shown():
    same = spmdx.debug.BalanceReport("a.py:1", "aten.mm", 1, 8, 8, "f32[64, 8]", "('data', None)")
    report = spmdx.debug.Report("Mesh(data=8)", [], [], [], 0, flops=8, balance=[same])
    assert "8 devices do the same" in report._repr_html_()
    assert "8 devices do the same" in str(report)


def test_few_collectives_are_shown_and_many_are_folded(shell, mesh):
    few, many = halves(shell, mesh, 1), spmdx.explain(matrices(mesh, 9))
    assert few._repr_html_().count("<details>") == 2
    assert len(many.collectives) > 6
    assert many._repr_html_().count("<details>") == 3
    head = many._repr_html_().split("<details>")[0]
    assert "The 6 dearest collectives" in head and head.count("all_") == 6
    assert f"All {len(many.collectives)} rows" in many._repr_html_()


def matrices(mesh, layers):
    """So many products that have to be summed over devices, one after the other."""
    x = torch.ones(16, 32).to("spmdx")
    for _ in range(layers):
        up, down = (torch.ones(32, 32).to("spmdx") for _ in range(2))
        spmdx.mark_sharding(up, mesh, (None, "model"))
        spmdx.mark_sharding(down, mesh, ("model", None))
        x = (x @ up).relu() @ down
    return x


def test_a_drawing_that_ends_its_cell_is_shown_once(shell, mesh, capsys):
    x = spmdx.mark_sharding(torch.ones(8, 4).to("spmdx"), mesh, ("data", None))
    table = spmdx.visualize_sharding(x)
    assert "0, 1" in capsys.readouterr().out
    assert table._ipython_display_() is None  # nothing more
    shell.execution_count = 4
    with pytest.raises(NotImplementedError):  # shown as any other table
        table._ipython_display_()


def test_a_drawing_that_went_to_a_file_is_shown(shell, mesh, tmp_path):
    x = spmdx.mark_sharding(torch.ones(8, 4).to("spmdx"), mesh, ("data", None))
    with open(tmp_path / "drawn.txt", "w") as file:
        table = spmdx.visualize_sharding(x, file=file)
    with pytest.raises(NotImplementedError):
        table._ipython_display_()


def test_a_time_line_without_a_file_is_a_figure(mesh, tmp_path, monkeypatch):
    figures = pytest.importorskip("matplotlib.figure")
    monkeypatch.chdir(tmp_path)
    report = spmdx.explain(matrices(mesh, 1))
    assert isinstance(report.timeline(), figures.Figure)
    assert report.timeline("step.json") is None
    assert [path.name for path in tmp_path.iterdir()] == ["step.json"]
    with pytest.raises(spmdx.ShardingError, match="no op that takes time"):
        spmdx.debug.Report(None, [], [], [], 0).timeline()


def test_local_bytes_of_modules_optimizers_and_tensors(mesh):
    layer = torch.nn.Linear(8, 4, bias=False)
    assert spmdx.debug.local_bytes(layer) == 8 * 4 * 4
    layer.to("spmdx")
    spmdx.mark_sharding(layer.weight, mesh, ("data", "model"))
    assert spmdx.debug.local_bytes(layer) == 4 * 4
    assert spmdx.debug.local_bytes([layer, {"again": layer.weight, "step": 3}]) == 4 * 4
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
    layer(torch.ones(2, 8).to("spmdx")).sum().backward()
    optimizer.step()
    assert spmdx.debug.local_bytes(optimizer) == 4 * 4
    with pytest.raises(spmdx.ShardingError, match="holds a object"):
        spmdx.debug.local_bytes([object()])
