# SPDX-License-Identifier: Apache-2.0
"""What is told of kinds of devices and cannot be meant is refused."""

import pytest
import spmdx
import torch
from spmdx.errors import ShardingError


def refused(*expected):
    return pytest.raises(ShardingError, match="(?s)" + ".*".join(expected))


def test_meshes_of_one_kind_and_of_mixed_kinds_are_told_apart():
    spmdx.runtime.set_devices(["cpu"] * 4 + ["cpu@v100-32"] * 4)
    for ids in (range(4), [5]):
        alike = spmdx.Mesh(ids, (len(ids),), ("kind",))
        with refused(r"all devices of Mesh\(kind=.*\) are of one kind, cpu", "several kinds"):
            spmdx.auto.place(alike)
    unlike = spmdx.Mesh([0, 4, 5, 1], (2, 2), ("a", "b"))
    with refused(r"no axis has one kind at each coordinate of Mesh\(a=2, b=2,"):
        spmdx.auto.place(unlike)


def test_hardware_that_is_none():
    for told, what in ((None, "NoneType"), ("", "''"), (0, "int")):
        for kind in ("cpu", "cpu@v100-32"):
            with refused(what, "Expected"):
                spmdx.runtime.set_devices([kind] * 8, hardware={kind: told})


def test_own_profiles_are_not_called_as_built_in_ones():
    mine = spmdx.Hardware("v100-32", {"f32": 1e6}, 1e6)
    for kinds in ([mine, "cpu@v100-32"], ["cpu@v100-32", mine]):
        with refused("'cpu@v100-32' means two profiles", "another name", "dataclasses.replace"):
            spmdx.runtime.set_devices(kinds * 4)
    spmdx.runtime.set_devices([mine] * 8)  # which says what it means
    spmdx.runtime.set_devices([mine, "cpu@v100-32"] * 4, hardware={"cpu@v100-32": mine})
    built_in = spmdx.Hardware.named("v100-32")
    spmdx.runtime.set_devices([built_in, "cpu@v100-32"] * 4)
    assert spmdx.runtime.get_devices() == ["cpu@v100-32"] * 8


def test_what_no_kind_takes_is_refused_with_its_dtype():
    spmdx.runtime.set_devices(["hls:sim"] * 8)
    mesh = spmdx.Mesh(range(8), (2, 4), ("kind", "data"))
    spmdx.auto.place(mesh, "kind")
    x = spmdx.mark_sharding(torch.ones(4, 4).double().to("spmdx"), mesh, ("data", None))
    y = x.exp()
    with refused(r"test_errors_of_kinds.py:\d+: no device", "runs aten.exp of f64;", "hls:sim"):
        spmdx.mark_step()
    spmdx.auto.place(None)
    del x, y
