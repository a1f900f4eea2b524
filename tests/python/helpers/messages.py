# SPDX-License-Identifier: Apache-2.0
"""What the tests of messages share: the whole text of an error, and what provokes errors."""

import os
import re

import pytest
import spmdx
import torch


def message_of(error, call):
    """The message of what ``call`` raises; "HERE" is a line of the caller's file, or of this."""
    with pytest.raises(error) as caught:
        call()
    assert caught.type is error
    file = re.escape(os.path.basename(call.__code__.co_filename))
    return re.sub(rf"^({file}|messages\.py):\d+: ", "HERE: ", str(caught.value))


def eight_devices():
    """Without them ``grid`` cannot be made."""
    if spmdx.runtime.global_runtime_device_count() != 8:
        spmdx.runtime.set_device_count(8)


def grid():
    return spmdx.Mesh(range(8), (4, 2), ("i", "j"))


def device(*shape, dtype=None):
    return torch.zeros(*shape, dtype=dtype).to("spmdx")


def marked(spec, shape=(8, 8), mesh=None):
    return spmdx.mark_sharding(device(*shape), mesh or grid(), spec)


def region(local, *args, in_specs=None, out_specs=None, axes=None):
    """Runs ``local`` on the global ``args``, a 4x4 tensor where there are none."""
    args = args or (device(4, 4),)
    in_specs = (None,) * len(args) if in_specs is None else in_specs
    return spmdx.shard_map(local, grid(), in_specs, out_specs, axes=axes)(*args)


def cases(table):
    """Parameters for a test from rows of name, what to call and its message."""
    return [pytest.param(*row[1:], id=row[0]) for row in table]
