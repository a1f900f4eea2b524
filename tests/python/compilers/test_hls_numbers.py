# SPDX-License-Identifier: Apache-2.0
"""Circuits whose numbers are at the ends of what they can hold, and ops that read one twice."""

import shutil
import subprocess
import threading

import numpy as np
import pytest
import spmdx
import torch
from spmdx.compilers import Hls, hls_project, segment_of
from torch.nn import functional

pytestmark = pytest.mark.skipif(
    shutil.which("g++") is None or shutil.which("make") is None, reason="no g++, or no make"
)
X = torch.tensor([[-8.0, -5.0, -0.5, 3.0, 5.0, 20.0]])
BEYOND = {
    "mask": (lambda x: x.masked_fill(x < 0, -1e9).softmax(1)),
    "lowest": (lambda x: x.masked_fill(x < 0, torch.finfo(torch.float32).min).softmax(1)),
    "clamp": (lambda x: x.clamp(-1e9, 1e9)),
    "clamp above": (lambda x: x.clamp(max=3.4e38)),
    "compare": (lambda x: (x > -1e9).float() + (x < 1e12).float()),
    "pad": (lambda x: functional.pad(x, (1, 1), value=-1e9)),
    "where": (lambda x: torch.where(x > 0, 1e6, -1e6)),
    "times": (lambda x: x * 1e6),
}
ACTIVATIONS = {
    "sigmoid": torch.sigmoid,
    "silu": functional.silu,
    "softplus": functional.softplus,
    "softplus of others": (lambda x: functional.softplus(x / 4, beta=2, threshold=5)),
    "mish": functional.mish,
    "hardswish": functional.hardswish,
    "logsigmoid": functional.logsigmoid,
    "root": (lambda x: x.relu() ** 0.5),
    "power": (lambda x: (x.relu() * 0.25) ** 1.5),
}


class Net(torch.nn.Module):
    """What functions give of the same tensors."""

    def __init__(self, *functions):
        super().__init__()
        self.functions = functions

    def forward(self, *tensors):
        return [function(*tensors) for function in self.functions]


def project(module, inputs, folder, number):
    """What the circuit gives, of each result."""
    segment, constants = segment_of(module.eval(), inputs)
    hls_project(segment, folder, number, constants, inputs)
    made = subprocess.run(
        ["make", "-s", "LIMIT=inf"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr[-2000:]
    data = folder / "data"
    return [
        torch.from_numpy(np.fromfile(data / f"result{i}.bin", kept_in(kind))).reshape(kind.shape)
        for i, (_, kind) in enumerate(segment.outputs)
    ]


def kept_in(kind):
    return np.float32 if kind.dtype == "f32" else np.int32


def require_near(found, functions, inputs, check):
    """``check`` of what each function gives, by its name."""
    wrong = {}
    for result, (name, function) in zip(found, functions.items(), strict=True):
        try:
            check(result, function(*inputs))
        except AssertionError as error:
            wrong[name] = str(error)
    assert wrong == {}


def ended(tensor, number):
    """Where a fixed point stays."""
    _, whole = bits(number)
    return tensor.clamp(-(2.0 ** (whole - 1)), 2.0 ** (whole - 1) - quantum(number))


def bits(number):
    return tuple(map(int, number[6:-1].split(",")))


def quantum(number):
    width, whole = bits(number)
    return 2.0 ** (whole - width)


def near(number, quanta, rtol=0.0):
    """Equal but for so many quanta, where a fixed point stays."""
    return lambda found, expected: torch.testing.assert_close(
        found, ended(expected, number), rtol=rtol, atol=quanta * quantum(number)
    )


@pytest.mark.parametrize("number", ["fixed<16,6>", "fixed<24,8>", "fixed<12,6>"])
def test_constants_beyond_the_range_of_a_fixed_point_are_at_its_end(number, tmp_path):
    found = project(Net(*BEYOND.values()), [X], tmp_path, number)
    require_near(found, BEYOND, [X], near(number, 4))


def test_constants_of_floats_may_have_many_digits(tmp_path):
    largest = torch.finfo(torch.float32).max
    functions = BEYOND | {
        "many digits": lambda x: x.clamp(-(2.0**31), 2.0**53) + 2.0**56 + 123456789012345680.0,
        "largest": lambda x: torch.where(x > 0, largest, x),
        "numbers": lambda x: x.nan_to_num(),
    }
    found = project(Net(*functions.values()), [X], tmp_path, "float")
    require_near(found, functions, [X], torch.testing.assert_close)


@pytest.mark.parametrize(
    ("number", "scale"), [("fixed<16,12>", 100), ("fixed<24,16>", 1000), ("fixed<16,6>", 1.5)]
)
def test_factors_keep_their_digits(number, scale, tmp_path):
    factors = (1 / 1000, 0.3, 1 / 7, 3.3e-5, -0.0123)
    functions = {f"times {f}": lambda x, f=f: x * f for f in factors}
    functions |= {f"by {1 / f}": lambda x, f=f: x / (1 / f) for f in factors}
    kept = ended((X * scale / quantum(number)).round() * quantum(number), number)  # as it comes
    found = project(Net(*functions.values()), [kept], tmp_path, number)
    require_near(found, functions, [kept], near(number, 1, rtol=2e-4))


@pytest.mark.parametrize("number", ["fixed<16,12>", "fixed<24,16>"])
def test_means_keep_their_digits(number, tmp_path):
    functions = {
        "mean": lambda x: x.mean(1),
        "pool": lambda x: functional.avg_pool1d(x, 5),
        "pool of unequal windows": lambda x: functional.avg_pool1d(
            x, 7, 3, padding=3, count_include_pad=False
        ),
    }
    x = (torch.arange(30.0) * 7 % 31 * 20).reshape(1, 30)
    found = project(Net(*functions.values()), [x], tmp_path, number)
    require_near(found, functions, [x], near(number, 2, rtol=2e-4))


@pytest.mark.parametrize("number", ["float", "fixed<16,6>", "fixed<24,8>"])
def test_activations_are_right_where_exp_is_beyond_the_range(number, tmp_path):
    def of_floats(found, expected):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)

    found = project(Net(*ACTIVATIONS.values()), [X], tmp_path, number)
    check = of_floats if number == "float" else near(number, 6)
    require_near(found, ACTIVATIONS, [X], check)


def test_powers_of_zero(tmp_path):
    functions = {"0.1": lambda x: x**0.1, "2.5": lambda x: (x / 2) ** 2.5}
    x = torch.tensor([[0.0, 4.0]])
    found = project(Net(*functions.values()), [x], tmp_path, "fixed<16,6>")
    require_near(found, functions, [x], near("fixed<16,6>", 8))


TWICE = {
    "convolution": (lambda x: functional.conv1d(x, x, padding=1), torch.randn(3, 3, 3)),
    "its views": (
        lambda x: functional.conv1d(x.reshape(2, 4, 3), x.reshape(2, 4, 3)),
        torch.randn(24),
    ),
    "index": (lambda x: x[x], torch.tensor([2, 0, 1], dtype=torch.int32)),
    "index of others": (lambda x: x[x.long()], torch.tensor([2, 0, -1], dtype=torch.int32)),
    "gather": (lambda x: x.gather(0, x.long()), torch.tensor([2, 0, 1], dtype=torch.int32)),
    "product": (lambda x: x @ x, torch.randn(3, 3)),
    "cat": (lambda x: torch.cat([x, x.view(-1)]), torch.randn(5)),
}


@pytest.mark.parametrize("name", TWICE)
def test_ops_may_read_one_tensor_twice(name, tmp_path):
    function, x = TWICE[name]
    (found,) = project(Net(function), [x], tmp_path, "float")
    torch.testing.assert_close(found.to(x.dtype), function(x), rtol=1e-4, atol=1e-5)


def test_a_convolution_by_what_it_is_of_is_a_kernel():
    x = torch.randn(2, 2, 3, 3)

    def program(x):
        image = (x * 2).relu() + 1
        return functional.conv2d(image, image) * 2

    spmdx.set_compiler("hls", compile_now=True)
    torch.testing.assert_close(program(x.to("spmdx")).cpu(), program(x), rtol=1e-5, atol=1e-4)
    assert [s.state for s in spmdx.explain().segments.segments] == ["compiled"]


class Masked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.full((4, 4), -torch.inf).triu(1))

    def forward(self, x):
        return [(x @ x.mT + self.mask).softmax(-1)]


@pytest.mark.parametrize("number", ["float", "fixed<16,6>"])
def test_arrays_may_have_infinite_numbers(number, tmp_path):
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    found = project(Masked(), [x], tmp_path, number)
    limit = 1e-5 if number == "float" else 0.01
    torch.testing.assert_close(found, Masked()(x), rtol=0, atol=limit)


def test_arrays_with_no_number_are_floats_alone(tmp_path):
    module = Net(lambda x: x * torch.tensor([1.0, torch.nan, torch.inf]))
    x = torch.tensor([1.0, 2.0, 3.0])
    (found,), (expected,) = project(module, [x], tmp_path / "float", "float"), module(x)
    assert torch.equal(found.isnan(), expected.isnan()) and found[2] == torch.inf
    segment, constants = segment_of(module, [x])
    with pytest.raises(spmdx.ShardingError, match="a constant is no number"):
        hls_project(segment, tmp_path / "fixed", "fixed<16,6>", constants, [x])


def test_code_may_have_constants_and_composite_ops(tmp_path):
    torch.manual_seed(0)
    norm = torch.nn.RMSNorm(5)
    functions = {
        "constant": lambda x: x * torch.tensor(2.0) + torch.tensor([1.0, 2, 3, 4, 5]),
        "rows": lambda x: x[[2, 0]],
        "norm": norm,
        "cosine": lambda x: functional.cosine_similarity(x, x.flip(0)),
        "vector": lambda x: x[0] @ x.mT,
    }
    x = torch.randn(3, 5)
    with torch.no_grad():
        found = project(Net(*functions.values()), [x], tmp_path, "float")
        require_near(found, functions, [x], torch.testing.assert_close)


def test_integers_of_64_bits_come_and_go(tmp_path):
    module, x = Net(lambda x, i: x.argmax(1), lambda x, i: i + 1), torch.eye(4).flip(0)
    index = torch.tensor([3, 1, -2])
    segment, _ = segment_of(module, [x, index])
    Hls().compile(segment, tmp_path)
    found = Hls().load(segment, tmp_path)([x, index])
    assert all(map(torch.equal, found, module(x, index)))


def test_dtypes_that_segments_have_not_are_named():
    with pytest.raises(ValueError, match=r"a tensor is of torch\.complex64\. Expected one of f64"):
        segment_of(Net(lambda x: x * 2), [torch.tensor([1 + 2j])])


def test_numbers_of_products_at_once_are_looked_at(tmp_path):
    segment, _ = segment_of(torch.nn.ReLU(), [torch.ones(4)])
    for unroll in (0, -1):
        with pytest.raises(spmdx.ShardingError, match=f"unroll is {unroll}. Expected 1 or more"):
            hls_project(segment, tmp_path, unroll=unroll)


def test_two_kernels_may_run_at_once_and_share_no_counters(tmp_path):
    runs = []
    for name, function, x in (
        ("large", lambda x: (x * 2).relu(), torch.randn(40000)),
        ("small", lambda x: (x.mT * 1.5).mT, torch.randn(2, 2)),
    ):
        segment, _ = segment_of(Net(function), [x])
        (tmp_path / name).mkdir()
        Hls().compile(segment, tmp_path / name)
        runs.append((Hls().load(segment, tmp_path / name), x, function(x)))
    told = subprocess.run(
        ["nm", "-D", tmp_path / "large" / "libsegment.so"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert " segment\n" in told and " u " not in told  # a process has one of what nm calls u
    wrong = []

    def repeat(run, x, expected):
        wrong.extend(i for i in range(20) if not torch.equal(run([x])[0], expected))

    threads = [threading.Thread(target=repeat, args=each) for each in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_what_is_thrown_in_a_kernel_is_an_error_and_ends_no_process(tmp_path):
    segment, _ = segment_of(torch.nn.ReLU(), [torch.ones(4)])
    Hls().compile(segment, tmp_path)
    top = (tmp_path / "top.cpp").read_text()
    begin = top.index("{", top.index("void top(")) + 1
    thrown = ' if (in0) throw std::runtime_error("stream s0 is read, and is empty");'
    (tmp_path / "top.cpp").write_text(top[:begin] + thrown + top[begin:])
    subprocess.run(["make", "-s", "libsegment.so"], cwd=tmp_path, check=True)
    with pytest.raises(RuntimeError, match="stream s0 is read, and is empty"):
        Hls().load(segment, tmp_path)([torch.ones(4)])
