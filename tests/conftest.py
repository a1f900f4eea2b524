# SPDX-License-Identifier: Apache-2.0
"""What all tests share: the repository's root, spmdx-opt, the options --regen and --count."""

import os
import pathlib

import pytest

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
    if config.getoption("--count"):  # read where the tests are collected, in every worker
        os.environ["RANDOM_PROGRAMS"] = str(config.getoption("--count"))


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
