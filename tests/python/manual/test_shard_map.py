# SPDX-License-Identifier: Apache-2.0
"""What goes into a manual region and out of it; regions within regions, axes for the planner."""

import pytest
import spmdx
import torch
from messages import eight_devices
from regions import check, grid, line_of, numbers
from spmdx import collectives as comm


@pytest.fixture(scope="module", autouse=True)
def devices():
    eight_devices()


def test_lists_and_dicts_of_tensors_go_in_and_out():
    def local(batch, weights, scale, note):
        assert note == "as it is" and batch["x"].shape == (2, 3)
        total = comm.all_reduce(batch["x"].sum(), "i") * weights[0] + batch["y"]
        return {"total": total * scale, "x": [batch["x"] + weights[1]]}

    specs = ({"x": ("i", None), "y": ()}, None, None, None)
    run = spmdx.shard_map(local, line_of(4), specs, {"total": (), "x": [("i", None)]})
    x, y, weights = numbers(8, 3), numbers(), [numbers(), numbers(3)]
    result = run(
        {"x": x.to("spmdx"), "y": y.to("spmdx")}, [w.to("spmdx") for w in weights], 2.0, "as it is"
    )
    torch.testing.assert_close(result["total"].cpu(), (x.sum() * weights[0] + y) * 2.0)
    torch.testing.assert_close(result["x"][0].cpu(), x + weights[1])


def test_a_region_within_a_region_takes_other_axes():
    mesh = grid(2, 4)

    def inner(x):
        assert x.shape == (4, 2)
        return comm.all_reduce(x.sum(0), "j") + comm.all_reduce(x.sum(), ("i", "j"))

    def outer(x):
        assert x.shape == (4, 8)
        inside = spmdx.shard_map(
            lambda t: comm.all_gather(inner(t), "j"), mesh, ((None, "j"),), (None,), axes=("j",)
        )
        return inside(x) * (1 + comm.axis_index("i"))

    def reference(x):
        rows = []
        for i, block in enumerate(x.chunk(2)):
            one = sum(block.chunk(4, 1)).sum(0) + x.sum()
            rows.append(one.repeat(4) * (1 + i))
        return torch.cat(rows)

    run = spmdx.shard_map(outer, mesh, (("i", None),), ("i",), axes=("i",))
    check(run, reference, numbers(8, 8))


def test_an_axis_that_is_not_manual_is_left_to_the_planner():
    mesh = grid(4, 2)

    def local(x, w):
        assert x.shape == (2, 6) and w.shape == (6, 4)
        return comm.all_reduce((x @ w).sum(), "i")

    w = numbers(6, 4)
    run = spmdx.shard_map(local, mesh, (("i", None), None), (), axes=("i",))
    check(run, lambda x, w: (x @ w).sum(), numbers(8, 6), w)
    cut = spmdx.mark_sharding(w.to("spmdx"), mesh, (None, "j"))
    x = numbers(8, 6)
    torch.testing.assert_close(run(x.to("spmdx"), cut).cpu(), (x @ w).sum(), atol=1e-5, rtol=1e-5)


def test_random_numbers_differ_between_devices_and_follow_the_seed():
    run = spmdx.shard_map(lambda x: x + torch.rand_like(x), line_of(4), (("i",),), ("i",))

    def draw():
        torch.manual_seed(3)
        return run(torch.zeros(8).to("spmdx")).cpu()

    first = draw()
    assert torch.equal(first, draw()) and len(set(first.tolist())) == 8
    assert ((first >= 0) & (first < 1)).all()


def test_a_gradient_taken_inside_a_region_of_local_work_is_local():
    def local(x):
        return torch.func.grad(lambda t: (t * t).sum())(x) * comm.all_reduce(x.sum(), "i")

    run = spmdx.shard_map(local, line_of(2), (("i",),), ("i",))
    check(run, lambda x: 2 * x * x.sum(), numbers(6))
