# SPDX-License-Identifier: Apache-2.0
"""Microbatches that look alike to the planner, and are not in what they read, keep or hand on."""

import pytest
import spmdx
import torch
import torch.nn.functional as F
from torch import nn

M, ROWS, WIDTH = 8, 4, 4

pytestmark = pytest.mark.usefixtures("double_precision")


class Loop:
    """A model, and what its programs need on the CPU and on stages."""

    def __init__(self, device, shape=(2,), m=M):
        torch.manual_seed(0)
        self.device, self.m, self.losses, self.mesh = device, m, [], None
        model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
        model.register_buffer("rows", torch.randn(M + ROWS, WIDTH))
        self.model = model.to(device)
        if device == "spmdx":
            devices = torch.Size(shape).numel()
            self.mesh = spmdx.Mesh(range(devices), shape, ("pipe", "data")[: len(shape)])
            spmdx.nn.pipeline(self.model, self.mesh, cuts=["2"])

    def put(self, tensor):
        tensor = tensor.to(self.device)
        if self.mesh is not None and "data" in self.mesh.axis_names:
            spmdx.mark_sharding(tensor, self.mesh, ("data", *[None] * (tensor.dim() - 1)))
        return tensor

    def uploads(self):
        return [self.put(torch.randn(ROWS, WIDTH)) for _ in range(self.m)]

    def batch(self):
        return self.put(torch.randn(M * ROWS, WIDTH))

    def learn(self, loss):
        loss.backward()
        self.losses.append(loss.detach())

    def found(self):
        if self.device == "spmdx":
            spmdx.mark_step()
        gradients = [p.grad for p in self.model.parameters()]
        return [t.detach().cpu() for t in [*self.losses, *gradients, *self.model.buffers()]]


def part(x, i):
    return x[ROWS * i : ROWS * (i + 1)]


def a_fixed_part_is_that_of_the_second(loop):
    x = loop.batch()
    for i in range(loop.m):
        loop.learn((loop.model(part(x, i)) - part(x, 1)).square().mean())


def a_part_made_before_is_that_of_the_last(loop):
    x = loop.batch()
    fixed = part(x, loop.m - 1)
    for i in range(loop.m):
        loop.learn((loop.model(part(x, i)) - fixed).square().mean())


def two_parts_are_one_in_the_second_and_the_last(loop):
    x = loop.batch()
    for i, j in enumerate([0, 1, 2, 5, 4, 3, 6, 7][: loop.m]):
        loop.learn((loop.model(part(x, i)) - part(x, j)).square().mean())


def parts_of_a_part_that_is_taken_twice(loop):
    x = loop.batch()
    for i in range(loop.m):
        loop.learn((loop.model(part(x, i)) * part(x, (3 * i) % M)[1:3].sum()).square().mean())


def a_view_made_before_is_that_of_the_second(loop):
    xs = loop.uploads()
    before = xs[1].t()
    for x in xs:
        h = loop.model(x)
        loop.learn(h.square().mean() + (h.sum() * x.t() * before).mean())


def an_upload_is_read_after_the_loop(loop):
    xs = loop.uploads()
    for x in xs:
        loop.learn(loop.model(x).square().mean())
    loop.losses.append(loop.model(xs[3]).sum().detach())


def an_upload_is_the_target_of_another(loop):
    xs = loop.uploads()
    for i, x in enumerate(xs):
        loop.learn((loop.model(x) - xs[(i + 3) % loop.m]).square().mean())


def positions_are_rows_of_a_buffer(loop):
    for i, x in enumerate(loop.uploads()):
        loop.learn(loop.model(x + loop.model.rows[i : i + ROWS]).square().mean())


def labels_are_parts_of_a_tensor(loop):
    x, y = loop.batch(), torch.randint(WIDTH, (M * ROWS,)).to(loop.device)
    for i in range(loop.m):
        logits = loop.model(part(x, i))
        right = (logits.argmax(1) == part(y, i)).sum()
        loop.learn(F.cross_entropy(logits, part(y, i)))
        loop.losses.append(right)


def a_table_is_written_row_by_row(loop):
    table = torch.zeros(M, device=loop.device)
    for i, x in enumerate(loop.uploads()):
        loss = loop.model(x).square().mean()
        table[i] = loss.detach()
        loop.learn(loss * (1 + table.sum()).detach())
    loop.losses.append(table)


def state_goes_round(loop):
    one = two = torch.ones(WIDTH, device=loop.device)
    for x in loop.uploads():
        h = loop.model(x + one)
        loop.learn(h.square().mean())
        one, two = two + 1, 0.5 * one + h.detach().sum(0).tanh()
    loop.losses += [one, two]


def some_losses_are_read_later(loop):
    for x in loop.uploads():
        loop.learn(loop.model(x).square().mean())
    loop.losses += [loop.losses[1] - loop.losses[2], torch.stack(loop.losses[1:6:2]).sum()]


def a_scalar_of_its_own(loop):
    for i, x in enumerate(loop.uploads()):
        loop.learn((loop.model(x) * (0.5 + i)).square().mean() / (i + 1))


def the_buffer_changes(loop):
    for x in loop.uploads():
        loop.learn(loop.model(x * loop.model.rows[2]).square().mean())
        with torch.no_grad():
            loop.model.rows.mul_(0.9)


PROGRAMS = [
    a_fixed_part_is_that_of_the_second,
    a_part_made_before_is_that_of_the_last,
    two_parts_are_one_in_the_second_and_the_last,
    parts_of_a_part_that_is_taken_twice,
    a_view_made_before_is_that_of_the_second,
    an_upload_is_read_after_the_loop,
    an_upload_is_the_target_of_another,
    positions_are_rows_of_a_buffer,
    labels_are_parts_of_a_tensor,
    a_table_is_written_row_by_row,
    state_goes_round,
    some_losses_are_read_later,
    a_scalar_of_its_own,
    the_buffer_changes,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("shape", [(2,), (2, 2), (2, 3), (2, 4)], ids=str)
@pytest.mark.parametrize("m", [5, M])
def test_results_are_those_of_one_device(program, shape, m):
    loops = Loop("cpu", m=m), Loop("spmdx", shape, m)
    for loop in loops:
        torch.manual_seed(1)
        program(loop)
    for a, b in zip(*(loop.found() for loop in loops), strict=True):
        torch.testing.assert_close(b, a, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(
    "first, second", [(range(M), [0, 1, 2, 5, 4, 3, 6, 7]), (range(M), [3] * M)]
)
def test_the_plan_of_one_step_is_right_for_other_parts_in_the_next(first, second):
    loops = Loop("cpu"), Loop("spmdx", (2, 2))
    for loop in loops:
        torch.manual_seed(1)
        x = loop.batch()
        for places in (first, second, first):
            for i, j in enumerate(places):
                loop.learn((loop.model(part(x, i)) - part(x, j)).square().mean())
            loop.losses += [p.grad.clone() for p in loop.model.parameters()]
            if loop.device == "spmdx":
                spmdx.mark_step()
    for a, b in zip(*(loop.found() for loop in loops), strict=True):
        torch.testing.assert_close(b, a, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("both", [True, False])
def test_loops_on_two_meshes_end_in_one_step(both):
    found = []
    for device in ("cpu", "spmdx"):
        one, other = Loop(device), Loop(device)
        if device == "spmdx":
            spmdx.nn.pipeline(other.model, spmdx.Mesh([2, 3], (2,), ("pipe",)), cuts=["2"])
        torch.manual_seed(1)
        an_upload_is_read_after_the_loop(one)
        if device == "spmdx":
            spmdx.mark_step()
        if both:
            an_upload_is_read_after_the_loop(one)
        else:
            one.model.zero_grad(set_to_none=False)
        an_upload_is_read_after_the_loop(other)
        found.append([*one.found(), *other.found()])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-9, atol=1e-10)


def test_frozen_tensors_of_another_stage():
    found = []
    for device in ("cpu", "spmdx"):
        loop = Loop(device)
        torch.manual_seed(1)
        adapters = [torch.randn(WIDTH, WIDTH).to(device) for _ in range(M)]
        if device == "spmdx":
            for adapter in adapters:
                spmdx.mark_stage(adapter, loop.mesh, 0)
        for x, adapter in zip(loop.uploads(), adapters, strict=True):
            loop.learn((loop.model(x) @ adapter).square().mean())
        found.append([*loop.found(), *(adapter.cpu() for adapter in adapters)])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-9, atol=1e-10)
