# SPDX-License-Identifier: Apache-2.0
"""Facts of accelerators, of pinned memory and of the names of devices."""

import torch
from import_facts import error, fact


def fork_of_a_device():
    with torch.random.fork_rng(devices=[0]):
        return torch.rand(2)


@fact
def fork_rng():
    with torch.random.fork_rng():
        inside = torch.rand(2)
    return torch.equal(inside, torch.rand(2)), error(fork_of_a_device)


@fact
def seed_all():
    return error(torch.cuda.manual_seed_all, 3), error(torch.xpu.manual_seed_all, 3)


@fact
def cuda():
    ask = torch.cuda
    return ask.is_available(), ask.device_count(), ask.is_initialized(), torch.version.cuda


@fact
def other_devices():
    return torch.xpu.is_available(), torch.backends.mps.is_available(), torch.mtia.is_available()


@fact
def current_accelerator():
    return torch.accelerator.current_accelerator(), torch._C._get_accelerator()


@fact
def accelerator_available():
    return torch.accelerator.is_available(), torch.accelerator.current_accelerator(True)


@fact
def accelerator_count():
    return torch.accelerator.device_count()


@fact
def accelerator_index():
    return error(torch.accelerator.current_device_index), error(
        torch.accelerator.set_device_index, 0
    )


@fact
def accelerator_synchronize():
    return error(torch.accelerator.synchronize)


@fact
def accelerator_stream():
    return error(torch.accelerator.current_stream)


@fact
def accelerator_memory_allocated():
    return error(torch.accelerator.memory_allocated)


@fact
def accelerator_memory_stats():
    ask = torch.accelerator
    return [
        error(function)
        for function in (ask.memory_stats, ask.max_memory_allocated, ask.memory_reserved)
    ]


@fact
def accelerator_memory_info():
    return error(torch.accelerator.get_memory_info)


@fact
def accelerator_resets():
    return error(torch.accelerator.reset_peak_memory_stats), error(torch.accelerator.empty_cache)


@fact
def accelerator_capability():
    return error(torch.accelerator.get_device_capability)


@fact
def device_module():
    return torch.get_device_module().__name__, torch.get_device_module("cpu").__name__


@fact
def device_of_a_number():
    return error(torch.device, 0)


@fact
def to_a_number():
    return error(torch.ones(2).to, 0)


@fact
def to_cuda():
    return error(torch.ones(2).cuda), error(torch.ones(2).to, "cuda")


@fact
def streams_and_events():
    return torch.Stream(), torch.Event().device, error(torch.Stream, device="cuda")


@fact
def pin_memory():
    return error(torch.ones(2).pin_memory), error(lambda: torch.ones(2).pin_memory().is_pinned())


@fact
def pinned_when_made():
    return error(torch.zeros, 2, pin_memory=True), error(torch.tensor, [1.0], pin_memory=True)


@fact
def is_pinned():
    return torch.ones(2).is_pinned(), torch.ones(2).untyped_storage().is_pinned()


@fact
def pin_memory_of_a_storage():
    return error(lambda: torch.ones(2).untyped_storage().pin_memory().is_pinned("cpu"))


@fact
def device_names():
    return (
        torch.device("cpu"),
        torch.device("meta"),
        torch.device("cuda:1"),
        error(torch.device, "npu"),
    )


@fact
def name_of_privateuse1():
    return torch._C._get_privateuse1_backend_name()


@fact
def device_of_privateuse1():
    return error(torch.device, "privateuseone")


@fact
def another_name_for_privateuse1():
    if torch._C._get_privateuse1_backend_name() == "privateuseone":
        return "would be taken"  # and could not be taken back
    return error(torch.utils.rename_privateuse1_backend, "another")
