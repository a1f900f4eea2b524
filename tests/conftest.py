# SPDX-License-Identifier: Apache-2.0
"""What all tests share: the repository's root, spmdx-opt, the options --regen and --count."""

import gc
import os
import pathlib
import sys

import hardware
import pytest
import torch

# Each connection to a store looks up the name of an address, which nobody may answer.
os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:2")

ROOT = pathlib.Path(__file__).resolve().parent.parent


def pytest_addoption(parser):
    parser.addoption(
        "--regen", action="store_true", help="rewrite the expected part of the golden files"
    )
    parser.addoption(
        "--all-pairs", action="store_true", help="reshard between all pairs, not a sample of them"
    )
    parser.addoption("--count", type=int, help="how many random programs the random tests run")


def pytest_configure(config):
    if hardware.ON_GPU:  # convolutions and products of float32 as the CPU computes them
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    config.addinivalue_line("markers", "on_the_cpu(why): skipped where shards lie on a GPU")
    if config.getoption("--count"):  # read where the tests are collected, in every worker
        os.environ["RANDOM_PROGRAMS"] = str(config.getoption("--count"))


def pytest_runtest_setup(item):
    marker = item.get_closest_marker("on_the_cpu")
    if marker and hardware.ON_GPU:
        pytest.skip(f"shards lie on a GPU: {marker.args[0]}")


@pytest.fixture
def double_precision():
    """Tensors are made in float64 where nothing else is said."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.fixture(scope="session")
def root() -> pathlib.Path:
    return ROOT


@pytest.fixture(scope="session")
def spmdx_opt(root) -> pathlib.Path:
    """The spmdx-opt under test: $SPMDX_OPT, or the one in build/."""
    path = pathlib.Path(os.environ.get("SPMDX_OPT", root / "build" / "spmdx-opt"))
    if not path.exists():
        pytest.fail(f"{path} does not exist. Run `make build`, or set SPMDX_OPT to a built one.")
    return path


_OF_LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


@pytest.fixture(scope="module", autouse=True)
def what_lives_is_not_looked_at_again():
    """Garbage is looked for among what a file of tests makes.

    What was imported before, and is kept, takes seconds to look through.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def no_process_group_is_left():
    """A file of tests leaves neither a process group nor a launcher's variables to the next one."""
    before = {name: os.environ.get(name) for name in _OF_LAUNCHERS}
    yield
    now = {name: os.environ.get(name) for name in _OF_LAUNCHERS}
    left = [f"{name}={value}" for name, value in now.items() if value != before[name]]
    for name, value in before.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()
        left.append("a process group")
    assert not left, f"these tests leave {', '.join(left)} to those that run after them"
