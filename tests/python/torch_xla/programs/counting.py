# SPDX-License-Identifier: Apache-2.0
"""Counters and metrics under torch_xla's names."""

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
import torch_xla.distributed.spmd as xs
from common import line


def steps_and_plans_are_counted(devices):
    t = torch.ones(8, 3).to("xla")
    torch_xla.sync(wait=True)
    met.clear_all()
    assert met.counter_value("ExecuteReplicated") is None
    for _ in range(3):
        t = t * 3 - devices
        torch_xla.sync()
    xm.wait_device_ops()
    assert met.counter_value("ExecuteReplicated") == 3
    assert met.metric_data("ExecuteReplicatedTime")[0] == 3
    plans = met.counter_value("UncachedCompile")
    assert plans >= 1 and met.metric_data("CompileTime")[0] == plans
    assert met.counter_value("CachedCompile") == 3 - plans


def what_goes_up_and_comes_down_is_counted(devices):
    met.clear_all()
    t = torch.ones(8, 3).to("xla")
    assert met.metric_data("OutboundData") is None
    xs.mark_sharding(t, line(devices), (0, None))
    count, total, samples = met.metric_data("OutboundData")
    assert (count, total, len(samples)) == (1, 96, 1)
    assert met.counter_value("VirtualDeviceUsage") == 1
    assert met.counter_value("CreateOpSharding") == 1
    t.cpu()
    assert met.metric_data("InboundData")[:2] == (1, 96)
    assert met.counter_value("ReplicateShardedData") == 1


def memory_that_is_taken_over_is_counted(devices):
    t = torch.ones(8, 5).to("xla")
    xs.mark_sharding(t, line(devices), (0, None))
    torch_xla.sync(wait=True)
    met.clear_all()
    t += devices + 0.5
    torch_xla.sync()
    assert met.metric_data("InputOutputAliasCount")[:2] == (1, 1)


def reports_have_names_and_values(devices):
    met.clear_all()
    xs.mark_sharding(torch.ones(8).to("xla"), line(devices), (0,))
    text = met.metrics_report()
    assert "Metric: OutboundData" in text and "Accumulator: 32B" in text
    assert "Counter: CreateOpSharding" in text
    short = met.short_metrics_report(counter_names=["CreateOpSharding"], metric_names=[])
    assert short == "Counter: CreateOpSharding\n  Value: 1\n"
    assert "CreateOpSharding" in met.counter_names() and "OutboundData" in met.metric_names()
    met.clear_counters()
    assert met.counter_names() == [] and met.metric_names()
    met.clear_metrics()
    assert met.metric_names() == []


def ops_without_a_rule_are_named(devices):
    met.clear_all()
    x = torch.eye(3).expand(8, 3, 3).contiguous().to("xla")
    xs.mark_sharding(x, line(devices), (0, None, None))
    torch.linalg.matrix_exp(x).cpu()
    assert "aten::linalg_matrix_exp" in met.executed_fallback_ops()
