# SPDX-License-Identifier: Apache-2.0
"""What others measured: the rows, the machines, and how each is predicted."""

import dataclasses
from collections.abc import Callable
from typing import Any

import llamas
import megatron
from published import Row, llama_3, megatron_2021, megatron_2022, torchtitan
from spmdx import Hardware, Topology
from spmdx.topology import Level


@dataclasses.dataclass(frozen=True)
class Table:
    """A published table.

    Attributes:
        name, unit: of it and its figures, of which more is faster.
        hardware: the profile of its devices.
        rows: what was measured.
        predict: seconds of a row's step on a device like ``hardware``.
        fitted_on: the row on which the device's constant is fitted.
    """

    name: str
    unit: str
    hardware: Hardware
    rows: list[Row]
    predict: Callable[[Row, Hardware], float]
    fitted_on: int = 0


def machine(name, nvlink, network):
    """Nodes of 8 on NVLink, whose collectives are NCCL's; picoseconds of a byte, each way."""
    fast, slow = Level(8, 8_000, 500, nvlink, "ring"), Level(0, 15_000, 2_000, network, "ring")
    return Topology(name, (fast, slow))


SELENE = machine("Selene", 4, 40)  # NVLink 3: 250 of 300 GB/s; HDR: 25 GB/s a device
GRAND_TETON = machine("Grand Teton", 3, 20)  # NVLink 4: 330 of 450 GB/s; RoCE: 50 GB/s a device
# "96GB HBM2e with 2.4 TB/sec peak memory bandwidth"
H100_HBM2E = dataclasses.replace(
    Hardware.named("h100-80"), memory_bytes=96 * 10**9, memory_bytes_per_second=2.4e12
)


def _of_megatron(row: Row, hardware: Hardware) -> float:
    found = megatron.predicted(row.shape, row.strategy, row.samples, hardware, SELENE)
    return found.step_ns / 1e9


def _of_llama(selective: bool) -> Callable[[Row, Any], float]:
    def predict(row: Row, hardware: Hardware) -> float:
        found = llamas.predicted(
            row.shape, row.strategy, row.samples, hardware, GRAND_TETON, selective
        )
        return found.step_ns / 1e9

    return predict


A100, H100 = Hardware.named("a100-80"), Hardware.named("h100-80")
TERA, TOKENS = "TFLOP/s a device", "tokens/s a device"
TABLES = [
    Table("Megatron-LM 2021", TERA, A100, megatron_2021(), _of_megatron),
    Table("Megatron-LM 2022", TERA, A100, megatron_2022(), _of_megatron),
    Table("Llama 3 405B", TERA, H100, llama_3(), _of_llama(selective=False)),
    Table("torchtitan 8B", TOKENS, H100_HBM2E, torchtitan(), _of_llama(selective=True)),
]
