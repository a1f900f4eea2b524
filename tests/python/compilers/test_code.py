# SPDX-License-Identifier: Apache-2.0
"""What compilers are told of segments, shown to people."""

import pytest
import spmdx
import torch

IN_ITS_LANGUAGE = {
    "inductor": ("inductor", "torch.ops.aten.exp"),
    "xla": ("xla:cpu", "stablehlo.exponential"),
    "iree": ("iree:cpu", "stablehlo.exponential"),
    "onnxruntime": ("onnxruntime:cpu", "= Exp"),
    "hls": ("hls:sim", "#pragma HLS"),
}


def run_step(shape=(4, 8)):
    x = torch.linspace(-1, 1, 32).reshape(shape).to("spmdx")
    return ((x.exp() + 1).relu() * x).cpu()


@pytest.mark.parametrize("name", IN_ITS_LANGUAGE)
def test_it_is_in_the_language_of_the_compiler(name):
    pytest.importorskip({"xla": "jaxlib", "iree": "iree.compiler"}.get(name, "torch"))
    kind, said = IN_ITS_LANGUAGE[name]
    spmdx.set_compiler(name, compile_now=True)
    run_step()
    segments = spmdx.explain().segments
    assert [s.state for s in segments.segments] == ["compiled"]
    assert said in segments.segments[0].code()
    assert segments.code(kind) == segments.code(name) == segments.segments[0].code()


def test_equal_segments_are_shown_once_and_others_each():
    spmdx.set_compiler("inductor", compile_now=True)
    mesh = spmdx.Mesh(range(2), (2,), ("data",))
    x = spmdx.mark_sharding(torch.ones(4, 8).to("spmdx"), mesh, ("data", None))
    (x.exp() + 1).cpu()
    code = spmdx.explain().segments.code("inductor")
    assert code.count("def forward") == len({s.text for s in spmdx.explain().segments.segments})


def test_another_compiler_than_those_of_the_step_is_named():
    spmdx.set_compiler("inductor", compile_now=True)
    run_step()
    with pytest.raises(spmdx.ShardingError, match=r"kind 'hls:sim'. Expected one of 'inductor'"):
        spmdx.explain().segments.code("hls:sim")


def test_a_step_that_nothing_compiles_has_no_code():
    run_step()
    with pytest.raises(spmdx.ShardingError, match="those that have a compiler"):
        spmdx.explain().segments.code("cpu")


def test_code_is_there_for_what_was_compiled_before_the_compiler_went():
    spmdx.set_compiler("inductor", compile_now=True)
    run_step()
    report = spmdx.explain().segments
    spmdx.set_compiler(None)
    assert "torch.ops.aten.exp" in report.code("inductor")
