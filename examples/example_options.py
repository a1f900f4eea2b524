# SPDX-License-Identifier: Apache-2.0
"""The options that the examples share, and the devices that they ask for."""

import argparse
import os

import spmdx


def parse(about, steps):
    """The options of the command line; on `--cpu` no devices are set up.

    Args:
        about: the docstring of the script; its first line is the description.
        steps: how many there are by default.
    """
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--devices", type=int, default=8, help="virtual devices")
    parser.add_argument("--cpu", action="store_true", help="plain PyTorch on the CPU")
    options = parser.parse_args()
    if not options.cpu and "WORLD_SIZE" not in os.environ:  # torchrun's processes are the devices
        spmdx.runtime.set_device_count(options.devices)
    return options
