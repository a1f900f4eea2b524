# SPDX-License-Identifier: Apache-2.0
"""``out=`` is written and takes the size of the result, whichever way an op is recorded."""

import pytest
import spmdx
import torch
from cuts import line

ATEN = torch.ops.aten
A = torch.tensor([[1.0, -2.0], [3.0, -4.0]])
OPS = {
    "zeros": lambda a, o: torch.zeros(3, out=o),
    "ones": lambda a, o: torch.ones(2, 2, out=o),
    "full": lambda a, o: torch.full((3,), 2, out=o),
    "arange": lambda a, o: torch.arange(4, out=o),
    "eye": lambda a, o: torch.eye(3, out=o),
    "linspace": lambda a, o: torch.linspace(0, 4, 5, out=o),
    "masked_select": lambda a, o: torch.masked_select(a, a > 0, out=o),
    "take": lambda a, o: torch.take(a, torch.tensor([3, 0], device=a.device), out=o),
    "nonzero": lambda a, o: torch.nonzero(a > 0, out=o),
    "addbmm": lambda a, o: torch.addbmm(a, a[None], a[None], out=o),
    "renorm": lambda a, o: torch.renorm(a, 2, 0, 1.0, out=o),
    "to_copy": lambda a, o: ATEN._to_copy.out(a, out=o),
    "as_strided_copy": lambda a, o: torch.as_strided_copy(a, (2,), (1,), out=o),
    "as_strided_scatter": lambda a, o: ATEN.as_strided_scatter.out(a, a[0], (2,), (1,), out=o),
    "repeat_interleave": lambda a, o: ATEN.repeat_interleave.Tensor_out(a.long().abs()[0], out=o),
    "sum": lambda a, o: torch.sum(a, 0, dtype=o.dtype, out=o),
    "kron": lambda a, o: torch.kron(a.to(o.dtype), a.to(o.dtype), out=o),
    "cat": lambda a, o: torch.cat([a.to(o.dtype), a.to(o.dtype)], out=o),
}
DRAWN = {
    "rand": lambda o: torch.rand(3, out=o),
    "randint": lambda o: torch.randint(5, (3,), out=o),
    "randperm": lambda o: torch.randperm(3, out=o),
}


def said(work):
    try:
        return work()
    except (RuntimeError, TypeError) as error:
        return type(error)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64], ids=str)
def test_what_is_given_as_out_holds_the_result(name, dtype):
    for sizes in ((0,), (3,), (2, 2)):
        found = []
        for device, devices in (("cpu", 0), ("spmdx", 0), ("spmdx", 2), ("spmdx", 3)):
            a, out = A.to(device), torch.full(sizes, 7, dtype=dtype).to(device)
            if devices:
                spmdx.mark_sharding(a, line(devices), ("x", None))
            back = said(lambda a=a, out=out: OPS[name](a, out) is out)
            found.append((back, out.dtype, out.shape, out.cpu().tolist()))
        if found[0][0] is True:  # PyTorch takes this dtype
            assert all(one == found[0] for one in found), found


@pytest.mark.parametrize("name", DRAWN)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64], ids=str)
def test_random_numbers_fill_what_is_given_as_out(name, dtype):
    for device in ("cpu", "spmdx"):
        out = torch.full((3,), 7, dtype=dtype).to(device)
        if name == "rand" and dtype == torch.int64:
            with pytest.raises((RuntimeError, NotImplementedError)):
                DRAWN[name](out)
                out.cpu()
            continue
        assert DRAWN[name](out) is out
        assert out.dtype == dtype and (out.cpu() < 5).all()
