# SPDX-License-Identifier: Apache-2.0
"""What players that recover share: tensors, an act that is refused, and steps that work."""

import spmdx
import torch

HERE = spmdx.runtime.process_index()
COUNT = spmdx.runtime.global_runtime_device_count()
LAST = spmdx.runtime.process_count() - 1
MESH = spmdx.Mesh(range(COUNT), (COUNT,), ("data",))


def numbers() -> torch.Tensor:
    return spmdx.mark_sharding(torch.arange(4.0 * COUNT).to("spmdx"), MESH, ("data",))


def replica(value: float = 1.0) -> torch.Tensor:
    return spmdx.mark_sharding(torch.full((4,), value).to("spmdx"), MESH, (None,))


def refused(act, *kinds: type) -> str:
    """What ``act`` raises in this process; all of them have recovered then."""
    try:
        act()
    except (spmdx.CommError, *kinds) as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        spmdx.runtime.recover()
        return str(error)
    raise AssertionError("nobody was told")


def used(x: torch.Tensor) -> None:
    (x * 10).cpu()


def works() -> None:
    """Steps of all kinds run, with the right numbers."""
    x = numbers()
    for turn in range(3):
        assert (x * turn).sum().item() == turn * sum(range(4 * COUNT))
    assert (replica(3.0) + 1).cpu().tolist() == [4.0] * 4
