# SPDX-License-Identifier: Apache-2.0
"""Pipelines whose stages are in many processes learn what one device learns."""

import pytest
from launch import run

CASES = [  # model, loop, microbatches, mesh, schedule, processes, devices of each
    ("gpt without dropout", "clipped", 4, "2", "1f1b", 2, 1),
    ("llama", "accumulated", 7, "2,2", "zb-h1", 2, 2),
    ("translator", "accumulated", 4, "4", "gpipe", 4, 1),
    ("unet", "momentum", 3, "4", "1f1b", 4, 1),
    ("resnet", "evaluated", 4, "2,2", "1f1b", 4, 1),
    ("gpt", "clipped", 4, "2,2", "1f1b", 2, 2),
    ("llama", "clipped", 4, "2", "1f1b", 3, 1),  # one of them has no stage, and reads the losses
    ("gpt", "clipped", 2, "2", "zb-h1", 2, 2),
]


@pytest.mark.parametrize("model, loop, m, shape, schedule, processes, devices", CASES)
def test_all_processes_learn_what_one_device_learns(
    model, loop, m, shape, schedule, processes, devices
):
    said = run("pipelined.py", processes, devices, model, loop, str(m), shape, schedule)
    assert len(set(said)) == 1 and "parameters" in said[0]


def test_all_processes_choose_the_same_cuts():
    options = ("gpt without dropout", "clipped", "4", "2,2", "1f1b", "chosen")
    said = run("pipelined.py", 2, 2, *options)
    assert len(set(said)) == 1 and "parameters" in said[0]
