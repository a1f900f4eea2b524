# SPDX-License-Identifier: Apache-2.0
"""Devices of several kinds in one program: each runs what its own compiler makes."""

import pytest
import spmdx
import torch
from small_training import OPTIMIZERS, on, require_equal, training

pytest.importorskip("onnxruntime")

MESHES = {
    "2": (range(3, 5), ["cpu"] * 4 + ["onnxruntime:cpu"] * 4),
    "3, uneven": ((0, 4, 7), ["cpu"] * 3 + ["onnxruntime:cpu"] * 4 + ["cpu"]),
    "4, uneven": (range(4), ["cpu", "onnxruntime:cpu"] * 4),
    "8, uneven": (range(8), ["onnxruntime:cpu"] * 2 + ["cpu"] * 6),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", MESHES)
def test_data_parallel_training_over_kinds(name, optimizer):
    ids, kinds = MESHES[name]
    expected = training(lambda *given: given, OPTIMIZERS[optimizer])
    spmdx.runtime.set_devices(kinds, compile_now=True)
    assert spmdx.runtime.get_devices() == kinds
    mesh = spmdx.Mesh(ids, (len(ids),), ("data",))
    require_equal(training(on(mesh, True), OPTIMIZERS[optimizer]), expected)
    segments = spmdx.explain().segments
    assert {s.compiler for s in segments.segments if s.state == "compiled"} == {"onnxruntime"}
    assert 0 < segments.compiled_ops < 1


def test_devices_of_no_kind_of_their_own_have_the_compiler_in_force():
    spmdx.runtime.set_devices(["cpu"] * 4 + ["onnxruntime:cpu"] * 4, compile_now=True)
    spmdx.set_compiler("inductor", compile_now=True)
    mesh = spmdx.Mesh(range(8), (8,), ("data",))
    x = torch.randn(16, 4)
    y = spmdx.mark_sharding(x.to("spmdx"), mesh, ("data", None)).exp() * 2 + 1
    spmdx.mark_step()
    torch.testing.assert_close(y.cpu(), x.exp() * 2 + 1)
    found = [s.compiler for s in spmdx.explain().segments.segments]
    assert found == ["inductor"] * 4 + ["onnxruntime"] * 4
    spmdx.set_compiler(None)
    assert spmdx.compilers.get_compiler() is None
    spmdx.runtime.set_devices([])
    assert set(spmdx.runtime.get_devices()) == {"cpu"}
