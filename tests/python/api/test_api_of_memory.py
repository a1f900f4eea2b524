# SPDX-License-Identifier: Apache-2.0
"""Views, writes and memory are on the device what they are on the CPU."""

import pytest
import spmdx
import torch
from api_cases import Cases, draw

case = Cases()


@case
def view_of_a_double_copy_written(d):
    y = draw(d, 3, 4).to(torch.float64)
    y.view(-1).add_(1)
    return y


@case
def cpu_copies_from_the_device(d):
    c = torch.zeros(3, 4)
    c.copy_(draw(d, 3, 4))
    return c


@case
def data_assigned(d):
    x, y = draw(d, 3), draw(d, 5)
    x.data = y
    x.add_(1)
    return x, y


@case
def data_written_in_place(d):
    x = draw(d, 3)
    x.data.add_(1)
    return x


@case
def detached_alias_written(d):
    x = draw(d, 3).requires_grad_()
    x.detach().mul_(2)
    return x


@case
def set_to_another_tensor(d):
    x, y = draw(d, 3), draw(d, 4)
    x.set_(y)
    x.add_(1)
    return x, y


@case
def out_argument_resized(d):
    x, out = draw(d, 3), torch.empty(0, device=d)
    torch.add(x, x, out=out)
    return out


@case
def view_kept_across_a_step(d):
    x = draw(d, 4, 4)
    v = x[1:3]
    spmdx.mark_step()
    x.add_(1)
    first = v.cpu().clone()
    v.mul_(2)
    spmdx.mark_step()
    return first, x, v


@case
def as_strided_written(d):
    x = draw(d, 4, 4)
    v = x.as_strided((2, 2), (4, 1), 1)
    v.add_(1)
    return x, v


@case
def index_put_and_mask_put(d):
    x = draw(d, 4, 4)
    x[torch.tensor([0, 2], device=d)] = 1.0
    x[x > 0.5] = 0
    return x


@case
def views_of_many_results(d):
    x = draw(d, 4, 4)
    a, b = x.chunk(2, 1)
    a.add_(1)
    x.unbind(0)[1].zero_()
    x.split([1, 3], 0)[1].mul_(3)
    return x, b


@case
def in_place_view_ops(d):
    x = draw(d, 3, 4)
    x.t_()
    x.add_(1)
    x.unsqueeze_(0)
    x.squeeze_(0)
    x.transpose_(0, 1)
    return x, x.stride()


@case
def diagonal_filled(d):
    x = draw(d, 4, 4)
    x.diagonal().fill_(7)
    x.triu_()
    return x


@case
def aliases_agree(d):
    x = draw(d, 4)
    v = x[1:]
    same = x.untyped_storage()._cdata == v.untyped_storage()._cdata
    return same, v.storage_offset(), v.is_contiguous(), x.untyped_storage().nbytes()


@case
def in_place_arithmetic(d):
    x, y = draw(d, 3), draw(d, 3, seed=2) * 2
    x.lerp_(y, 0.1)
    x.clamp_(-1, 1)
    x.copy_(y.double())
    x += 1
    x **= 2
    return x


@case
def channels_last(d):
    x = draw(d, 2, 3, 4, 4).to(memory_format=torch.channels_last)
    return x.stride(), x.is_contiguous(memory_format=torch.channels_last), x.cpu().stride(), x


@case
def inference_mode(d):
    with torch.inference_mode():
        x = draw(d, 3)
        x[1:].add_(1)
        return x.cpu().clone()


@case
def resized(d):
    x = draw(d, 2, 3)
    x.resize_(2, 2)
    y = draw(d, 2)
    y.resize_(2)
    return x, y


@pytest.mark.parametrize("name", sorted(case))
def test_gives_what_the_cpu_gives(name):
    case.check(name)


def test_host_buffer_may_be_reused_after_a_copy():
    x = torch.ones(3)
    y, z = x.to("spmdx"), torch.empty(3, device="spmdx").copy_(x)
    x.zero_()
    assert y.tolist() == z.tolist() == [1, 1, 1]


def test_write_to_an_expanded_view_raises_as_eager_does():
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.ones(3, 1, device="spmdx").expand(3, 4).add_(1)
