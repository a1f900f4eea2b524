# SPDX-License-Identifier: Apache-2.0
"""Cases that run on the CPU and on the device; what they return is compared."""

from collections.abc import Callable

import torch


class Cases(dict[str, Callable]):
    """Functions of a device, by name. Decorates them."""

    def __call__(self, function):
        self[function.__name__] = function
        return function

    def check(self, name):
        """The case gives on the device what it gives on the CPU."""
        expected = host(self[name]("cpu"))
        assert_same(host(self[name]("spmdx")), expected)


def draw(device, *shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(device)


def build(make, device):
    torch.manual_seed(0)
    return make().to(device)


def host(value):
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if isinstance(value, (list, tuple)):
        return [host(v) for v in value]
    return value


def assert_same(got, expected):
    if isinstance(expected, torch.Tensor):
        assert got.dtype == expected.dtype and got.shape == expected.shape
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5, check_stride=False)
    elif isinstance(expected, list):
        assert len(got) == len(expected)
        for a, b in zip(got, expected, strict=True):
            assert_same(a, b)
    else:
        assert got == expected
