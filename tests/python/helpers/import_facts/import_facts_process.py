# SPDX-License-Identifier: Apache-2.0
"""Facts of the process, of PyTorch's flags and modes, and of random numbers."""

import gc
import hashlib
import logging
import os
import random
import signal
import sys
import threading

import torch
from import_facts import fact


@fact
def environment():
    values = hashlib.sha256(repr(sorted(os.environ.items())).encode()).hexdigest()
    return sorted(os.environ), values, os.getcwd()


@fact
def signal_handlers():
    return [(s.name, repr(signal.getsignal(s)).split(" at ")[0]) for s in signal.Signals]


@fact
def hooks_of_the_interpreter():
    hooks = sys.excepthook, sys.displayhook, sys.unraisablehook, threading.excepthook
    own = (sys.__excepthook__, sys.__displayhook__, sys.__unraisablehook__)
    same = [a is b for a, b in zip(hooks, own, strict=False)]
    return same, hooks[3] is threading.__excepthook__, sys.gettrace(), sys.getprofile()


@fact
def paths_and_finders():
    return sys.path, [repr(type(finder)) for finder in sys.meta_path], len(sys.path_hooks)


@fact
def python_threads():
    return [thread.name for thread in threading.enumerate()]


@fact
def native_threads():
    return len(os.listdir("/proc/self/task"))


@fact
def limits_of_the_interpreter():
    return sys.getrecursionlimit(), sys.getswitchinterval(), gc.isenabled(), gc.get_threshold()


@fact
def logging_handlers():
    loggers = [logging.getLogger(), *(logging.getLogger(n) for n in ("torch", "py.warnings"))]
    return [(x.name, x.level, [type(h).__name__ for h in x.handlers]) for x in loggers]


@fact
def python_random_numbers():
    random.seed(3)
    return random.random(), random.getstate()[1][:3]


@fact
def default_dtype_and_device():
    return torch.get_default_dtype(), torch.get_default_device()


@fact
def set_default_device():
    torch.set_default_device("cpu")
    made = torch.ones(2).device, torch.get_default_device()
    torch.set_default_device(None)
    return made


@fact
def default_device_as_context():
    with torch.device("meta"):
        return torch.ones(2).device, torch.get_default_device()


@fact
def set_default_dtype():
    torch.set_default_dtype(torch.float64)
    made = torch.ones(2), torch.tensor(1.5)
    torch.set_default_dtype(torch.float32)
    return made


@fact
def numbers_of_threads():
    return torch.get_num_threads(), torch.get_num_interop_threads()


@fact
def autograd_modes():
    modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    anomaly = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    return (
        modes,
        anomaly,
        torch.autograd.graph.get_gradient_edge(torch.ones(1, requires_grad=True))[1],
    )


@fact
def dispatch_modes():
    stack = torch.utils._python_dispatch._get_current_dispatch_mode_stack()
    return stack, torch.overrides._get_current_function_mode_stack()


@fact
def conversion_flags():
    future = torch.__future__
    return (
        future.get_overwrite_module_params_on_conversion(),
        future.get_swap_module_params_on_conversion(),
    )


@fact
def determinism_flags():
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.get_deterministic_debug_mode(),
        torch.utils.deterministic.fill_uninitialized_memory,
    )


@fact
def backend_flags():
    backends = torch.backends
    return (
        backends.mkldnn.flags is not None and backends.mkldnn.enabled,
        backends.cudnn.enabled,
        backends.cudnn.benchmark,
        backends.cudnn.allow_tf32,
        backends.cuda.matmul.allow_tf32,
        backends.opt_einsum.enabled,
        backends.nnpack.is_available(),
        torch.get_float32_matmul_precision(),
        torch.backends.quantized.engine,
    )


@fact
def attention_flags():
    cuda = torch.backends.cuda
    enabled = cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled(), cuda.math_sdp_enabled()
    return enabled, torch._C._get_sdp_priority_order()


@fact
def autocast_flags():
    kinds = ("cpu", "cuda")
    return (
        [(torch.is_autocast_enabled(k), torch.get_autocast_dtype(k)) for k in kinds],
        torch.is_autocast_cache_enabled(),
        torch.amp.is_autocast_available("cpu"),
    )


@fact
def print_options():
    return vars(torch._tensor_str.PRINT_OPTS)


@fact
def initial_seed():
    return (
        torch.initial_seed(),
        torch.default_generator.device,
        torch.default_generator.initial_seed(),
    )


@fact
def numbers_after_manual_seed():
    generator = torch.manual_seed(3)
    return torch.rand(3), torch.randn(3), torch.randperm(5), generator is torch.default_generator


@fact
def numbers_without_a_seed_of_ours():
    return torch.rand(2), torch.get_rng_state().sum(), torch.get_rng_state().shape


@fact
def fork_rng_of_the_cpu_alone():
    with torch.random.fork_rng(devices=[]):
        torch.rand(2)
    return torch.rand(2)


@fact
def generators():
    own = torch.Generator().manual_seed(5)
    clone = own.clone_state()
    return torch.rand(2, generator=own), torch.rand(2, generator=clone), own.device
