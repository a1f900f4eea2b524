# SPDX-License-Identifier: Apache-2.0
"""Execution traces of plans: files as Chakra's schema says, with what explain reports, that end."""

import collections
import copy
import json
import pickle
import sys

import pytest
import spmdx
import torch
from chakra_files import COLLECTIVE, COMPUTE, RECEIVE, SEND, read, replay
from messages import eight_devices, message_of
from spmdx._report.chakra import schema
from torch import nn

FACTORS = {  # bytes that a device receives, of those of its operand, in a group of n
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: n - 1,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
}
EXCHANGES = "send_recv", "collective_permute"  # of messages between two devices


@pytest.fixture(scope="module", autouse=True)
def devices():
    eight_devices()


def blocks(count, width=64):
    torch.manual_seed(0)
    layers = (m for _ in range(count) for m in (nn.Linear(width, width), nn.Tanh()))
    return nn.Sequential(*layers).to("spmdx")


def trained(model, mesh, optimizer=None, parts=1):
    """The report of a step of training, with so many microbatches."""
    optimizer = optimizer or torch.optim.AdamW(model.parameters())
    cut = ("data", None) if "data" in mesh.axis_names else (None, None)
    x = spmdx.mark_sharding(torch.randn(256, 64).to("spmdx"), mesh, cut)
    for _ in range(2):
        for part in x.chunk(parts):
            (model(part).square().mean() / parts).backward()
        optimizer.step()
        optimizer.zero_grad()
        spmdx.mark_step()
    return spmdx.explain()


def data_parallel():
    return trained(blocks(2), spmdx.Mesh(range(8), (8,), ("data",)))


def tensor_parallel():
    mesh, model = spmdx.Mesh(range(8), (2, 4), ("data", "model")), blocks(2)
    spmdx.mark_sharding(model[0].weight, mesh, ("model", None))
    spmdx.mark_sharding(model[2].weight, mesh, (None, "model"))
    return trained(model, mesh)


def zero_1():
    mesh, model = spmdx.Mesh(range(8), (8,), ("data",)), blocks(2)
    optimizer = torch.optim.AdamW(model.parameters())
    spmdx.nn.zero(model, optimizer, mesh, stage=1)
    return trained(model, mesh, optimizer)


def pipeline(stages):
    mesh = spmdx.Mesh(range(8), (stages, 8 // stages), ("pipe", "data"))
    model = blocks(4)
    cuts = [str(2 * s * 4 // stages) for s in range(1, stages)]
    spmdx.nn.pipeline(model, mesh, cuts=cuts, schedule="1f1b")
    return trained(model, mesh, parts=4)


PROGRAMS = {
    "data parallel": data_parallel,
    "tensor parallel": tensor_parallel,
    "zero 1": zero_1,
    "two stages": lambda: pipeline(2),
    "four stages": lambda: pipeline(4),
}


@pytest.fixture(scope="module", params=PROGRAMS)
def saved(request, tmp_path_factory):
    """A report with its traces, by device, and process groups."""
    report = PROGRAMS[request.param]()
    prefix = tmp_path_factory.mktemp("traces") / "step"
    paths = report.save_chakra(prefix)
    assert sorted(paths) == sorted(prefix.parent.iterdir()) and len(paths) == 9
    return report, *read(prefix, range(8))


def firsts(report):
    """A device of each stage; the first one where there are none."""
    ranks = len(report.pipeline.stages) if report.pipeline else 1
    return range(0, 8, 8 // ranks)


def test_every_op_and_collective_is_a_node_of_the_devices_that_run_it(saved):
    report, traces, _ = saved
    for device, nodes in traces.items():
        rank = device * len(firsts(report)) // 8
        here = [s for s in report.spans if s.rank in (None, rank) and s.name not in EXCHANGES]
        wanted = [(s.name, s.end_ns - s.start_ns, s.source) for s in here]
        found = [n for n in nodes if n.type in (COMPUTE, COLLECTIVE)]
        told = [(n.name, n.told["duration_nanos"], n.told["source"]) for n in found]
        assert told == wanted
        assert [n.micros for n in nodes] == [round(n.told["duration_nanos"] / 1000) for n in nodes]


def test_collectives_have_the_bytes_of_the_report(saved):
    report, traces, groups = saved
    wanted, found = collections.Counter(), collections.Counter()
    for c in report.collectives:
        wanted[c.kind] += c.bytes * c.count
    for device in firsts(report):
        for n in traces[device]:
            if n.type == COLLECTIVE:
                found[n.name] += n.told["comm_size"] * FACTORS[n.name](
                    len(groups[n.told["pg_name"]])
                )
    assert found + received(traces) == wanted


def received(traces):
    """Bytes by kind, of exchanges: of the device that receives most in each."""
    most = collections.defaultdict(int)
    for nodes in traces.values():
        here = collections.Counter()
        for n in nodes:
            if n.type == RECEIVE:
                here[n.name, n.told["comm_tag"]] += n.told["comm_size"]
        for key, size in here.items():
            most[key] = max(most[key], size)
    found = collections.Counter()
    for (kind, _), size in most.items():
        found[kind] += size
    return found


def test_ops_have_the_work_of_the_report(saved):
    report, traces, _ = saved
    ops = [n for device in firsts(report) for n in traces[device] if n.type == COMPUTE]
    assert abs(sum(n.told["num_ops"] for n in ops) - report.flops) <= len(ops)  # whole numbers
    assert all(n.told["tensor_size"] > 0 and n.told["is_cpu_op"] is False for n in ops)


def test_the_devices_of_a_trace_never_wait_for_each_other(saved):
    report, traces, groups = saved
    for nodes in traces.values():
        assert [n.id for n in nodes] == list(range(len(nodes)))
        assert all(dep < n.id for n in nodes for dep in n.deps)
    ends = replay(traces, groups)
    if report.pipeline:
        busy = {
            d: sum(n.told["duration_nanos"] for n in of if n.type == COMPUTE)
            for d, of in traces.items()
        }
        assert max(busy.values()) < max(ends.values()) <= report.step_ns
    else:
        assert set(ends.values()) == {report.step_ns}


# ---- exchanges ----------------------------------------------------------------------------------


def saved_of(result, folder, devices=range(8)):
    """The report of what is pending for a tensor, and its chakra_files."""
    report = spmdx.explain(result)
    report.save_chakra(folder / "step")
    return report, *read(folder / "step", devices)


def test_rows_that_change_places_are_messages_as_long_as_they_are(tmp_path):
    mesh = spmdx.Mesh(range(8), (8,), ("data",))
    x = spmdx.mark_sharding(torch.randn(20, 4).to("spmdx"), mesh, ("data", None))
    report, traces, groups = saved_of(x[1:] - x[:-1], tmp_path)  # of 3, … 3, 2 and no rows
    assert [c.kind for c in report.collectives] == ["collective_permute"]
    row = 4 * 4
    ends = {
        (*n.key[:2], n.told["comm_size"]) for of in traces.values() for n in of if n.type == SEND
    }
    assert ends == {(i + 1, i, row) for i in range(6)}
    assert received(traces) == {"collective_permute": row}
    replay(traces, groups)


def test_what_comes_from_another_mesh_is_sent_by_its_devices(tmp_path):
    first, second = spmdx.Mesh(range(4), (4,), ("i",)), spmdx.Mesh([4, 5], (2,), ("j",))
    x = spmdx.mark_sharding(torch.randn(8, 4).to("spmdx"), first, ("i", None))
    spmdx.mark_step()
    spmdx.mark_sharding(x, second, ("j", None))
    report, traces, groups = saved_of(x.exp(), tmp_path, range(6))
    assert [c.bytes for c in report.collectives] == [64]
    ends = {n.key[:2] for of in traces.values() for n in of if n.type == SEND}
    assert ends == {(0, 4), (1, 4), (2, 5), (3, 5)}
    assert [len(traces[d]) for d in range(6)] == [1, 1, 1, 1, 3, 3]
    replay(traces, groups)


# ---- devices that are asked for, and what is refused --------------------------------------------


def test_devices_have_their_ids_and_groups_the_order_of_the_mesh(tmp_path):
    mesh = spmdx.Mesh([7, 3, 5, 1], (2, 2), ("i", "j"))
    x = spmdx.mark_sharding(torch.randn(8, 8).to("spmdx"), mesh, (None, "j"))
    paths = spmdx.explain(x.sum(1)).save_chakra(tmp_path / "odd", ranks=[5, 7, 5])
    assert [path.name for path in paths] == ["odd.5.et", "odd.7.et", "odd.groups.json"]
    traces, groups = read(tmp_path / "odd", [5, 7])
    assert groups == {"1": [7, 3], "2": [5, 1]}
    names = [[n.told.get("pg_name") for n in of if n.type == COLLECTIVE] for of in traces.values()]
    assert names == [["2"], ["1"]]


def test_a_plan_for_more_devices_than_there_are_has_traces(tmp_path):
    with spmdx.plan_only():
        mesh = spmdx.Mesh(range(1024), (128, 8), ("data", "model"))
        weight = spmdx.mark_sharding(torch.zeros(64, 64, device="spmdx"), mesh, ("model", None))
        x = spmdx.mark_sharding(torch.zeros(256, 64, device="spmdx"), mesh, ("data", "model"))
        report = spmdx.explain((x @ weight).relu().sum())
    assert len(report.save_chakra(tmp_path / "step", ranks=[0, 1023])) == 3
    traces, groups = read(tmp_path / "step", [0, 1023])
    assert len(report.collectives) == 2
    for device, nodes in traces.items():
        of = [groups[n.told["pg_name"]] for n in nodes if n.type == COLLECTIVE]
        assert [len(group) for group in of] == [c.group_size for c in report.collectives]
        assert all(device in group for group in of)
    assert [n.name for n in traces[0]] == [n.name for n in traces[1023]]


def test_a_program_without_mesh_has_one_device(tmp_path):
    x = torch.ones(4, 4).to("spmdx")
    report, traces, groups = saved_of(x @ x, tmp_path, [0])
    (product,) = traces[0]
    assert product.told["num_ops"] == 2 * 4**3 == report.flops
    assert product.told["tensor_size"] == 3 * 64 and groups == {}


def test_a_copy_of_a_report_tells_the_same_and_has_no_plan(tmp_path):
    report = spmdx.explain(torch.ones(4).to("spmdx").exp())
    for copied in (copy.deepcopy(report), pickle.loads(pickle.dumps(report))):
        assert copied == report and json.dumps(copied.to_dict()) == json.dumps(report.to_dict())
        assert message_of(spmdx.ShardingError, lambda r=copied: r.save_chakra(tmp_path / "a")) == (
            "HERE: save_chakra: the report has no plan: it is a copy, or nothing was to be done. "
            "Expected one that spmdx.explain returned for a program. Save its traces where it is "
            "made."
        )


REFUSED = {
    "a device that is not there": (
        {"ranks": [0, 8]},
        "ranks has 8. Expected devices of the plan: 8 of them, from 0 to 7. Write ranks=[0], or "
        "leave it out for all.",
    ),
    "no device": (
        {"ranks": 3},
        "ranks is 3. Expected integers. Write range(8) or [0, 4].",
    ),
    "no path": (
        {"prefix": None},
        "the path is None. Expected that of files without their endings. Write 'traces/step'.",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_written_is_refused(what, tmp_path):
    mesh = spmdx.get_1d_mesh("data")
    x = spmdx.mark_sharding(torch.ones(8).to("spmdx"), mesh, ("data",))
    report, (given, message) = spmdx.explain(x.exp()), REFUSED[what]
    given = {"prefix": tmp_path / "step", **given}
    assert message_of(spmdx.ShardingError, lambda: report.save_chakra(**given)) == (
        f"HERE: save_chakra: {message}"
    )
    assert not list(tmp_path.iterdir())


def test_without_protobuf_it_is_said_what_to_install(monkeypatch, tmp_path):
    report = spmdx.explain(torch.ones(4).to("spmdx").exp())
    schema.messages.cache_clear()
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    with pytest.raises(ImportError, match=r"protobuf is not .* Run `pip install 'protobuf>=6'`"):
        report.save_chakra(tmp_path / "step")
