# SPDX-License-Identifier: Apache-2.0
"""One program on several meshes: what lies on one is at hand on the other."""

import itertools
import threading

import pytest
import spmdx
import torch

MESHES = {
    "eight": ((8,), range(8)),
    "two by two": ((2, 2), range(4)),
    "three": ((3,), [7, 5, 6]),
    "reversed": ((2, 4), range(7, -1, -1)),
}
PAIRS = list(itertools.permutations(MESHES, 2))


@pytest.fixture(autouse=True)
def eight_devices():
    spmdx.runtime.set_device_count(8)
    spmdx.sync(wait=True)


def mesh_of(name):
    shape, ids = MESHES[name]
    return spmdx.Mesh(ids, shape, ("a", "b")[: len(shape)])


def cut(tensor, mesh, dim=0):
    spec = [None] * tensor.dim()
    spec[dim] = tuple(mesh.shape())
    return spmdx.mark_sharding(tensor.to("spmdx"), mesh, tuple(spec))


def table(rows, columns):
    return torch.arange(float(rows * columns)).view(rows, columns)


@pytest.mark.parametrize("rows", [24, 10, 1])
@pytest.mark.parametrize("first, second", PAIRS)
def test_a_result_on_one_mesh_is_read_on_another(first, second, rows):
    x, y = table(rows, 6), table(rows, 6).flip(0)
    h = cut(x, mesh_of(first)) * 2
    spmdx.mark_step()
    there = cut(y, mesh_of(second), dim=1)
    torch.testing.assert_close((h + there).cpu(), x * 2 + y)
    torch.testing.assert_close((h.t() @ there).cpu(), (x * 2).t() @ y)
    torch.testing.assert_close(h.cpu(), x * 2)


@pytest.mark.parametrize("first, second", PAIRS)
def test_annotating_data_anew_moves_it_to_the_other_mesh(first, second):
    x = table(10, 6)
    moved = cut(x, mesh_of(first))
    spmdx.sync(wait=True)
    spmdx.mark_sharding(moved, mesh_of(second), (None, tuple(mesh_of(second).shape())))
    torch.testing.assert_close((moved + 1).cpu(), x + 1)
    spmdx.sync(wait=True)
    assert spmdx.get_sharding(moved).mesh == mesh_of(second)
    torch.testing.assert_close(moved.cpu(), x)


@pytest.mark.parametrize("first, second", PAIRS)
def test_values_of_no_mesh_serve_both(first, second):
    position = torch.arange(6, device="spmdx") * 1.0
    left, right = cut(table(9, 6), mesh_of(first)), cut(table(9, 6), mesh_of(second), dim=1)
    a, b = left + position, right * position
    spmdx.mark_step()
    expected = torch.arange(6.0)
    torch.testing.assert_close(a.cpu(), table(9, 6) + expected)
    torch.testing.assert_close(b.cpu(), table(9, 6) * expected)
    torch.testing.assert_close((right - position).cpu(), table(9, 6) - expected)
    torch.testing.assert_close((left - position).cpu(), table(9, 6) - expected)


def test_a_move_between_meshes_is_counted():
    h = cut(table(8, 4), mesh_of("eight")) * 2
    spmdx.mark_step()
    there = cut(table(8, 4), mesh_of("two by two"))
    report = spmdx.explain(h + there)
    (move,) = report.collectives
    # Device 3 gets the rows 6 and 7, 16 bytes each, and holds neither.
    assert (move.kind, move.bytes) == ("send_recv", 32)
    assert "from another mesh" in move.cause


def test_what_was_left_behind_does_not_hinder_the_next_step():
    kept = cut(table(8, 4), mesh_of("eight")) + torch.arange(4, device="spmdx")
    position = torch.arange(4, device="spmdx") + 1
    other = cut(table(8, 4), mesh_of("three")) + position
    spmdx.mark_step()
    torch.testing.assert_close(
        (other * position).cpu(), (table(8, 4) + torch.arange(1, 5)) * torch.arange(1, 5)
    )
    torch.testing.assert_close(kept.cpu(), table(8, 4) + torch.arange(4))


def two_models():
    torch.manual_seed(0)
    models = [torch.nn.Linear(6, 8).double(), torch.nn.Linear(6, 8).double()]
    for model, name in zip(models, ("two by two", "three"), strict=True):
        model.to("spmdx")
        spmdx.mark_sharding(model.weight, mesh_of(name), (mesh_of(name).axis_names[0], None))
    return models


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("cut_between", [False, True])
@pytest.mark.parametrize("set_to_none", [False, True])
def test_models_on_two_meshes_train_in_one_program(squared, cut_between, set_to_none):
    """A gradient that is computed from nothing annotated lies on the mesh of its parameter."""
    models, x = two_models(), table(4, 6).double().to("spmdx")
    plain = [torch.nn.Linear(6, 8).double(), torch.nn.Linear(6, 8).double()]
    for ours, theirs in zip(models, plain, strict=True):
        theirs.load_state_dict({n: t.cpu() for n, t in ours.state_dict().items()})

    def train(models, x, between):
        for _ in range(3):
            for model in models:
                model.zero_grad(set_to_none=set_to_none)
            losses = [model(x) for model in models]
            losses = [(y.square() if squared else y).sum() for y in losses]
            between()
            for loss in losses:
                loss.backward()
            with torch.no_grad():
                for model in models:
                    for p in model.parameters():
                        p -= 1e-4 * p.grad
            between()

    train(models, x, spmdx.mark_step if cut_between else lambda: None)
    train(plain, x.cpu(), lambda: None)
    for ours, theirs in zip(models, plain, strict=True):
        for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(p.cpu(), q)
            torch.testing.assert_close(p.grad.cpu(), q.grad)
        sharding = spmdx.get_sharding(ours.weight.grad)
        assert sharding.spec == spmdx.get_sharding(ours.weight).spec
        assert sharding.mesh == spmdx.get_sharding(ours.weight).mesh


def test_threads_train_models_on_meshes_of_their_own():
    failed = []

    def train(devices):
        try:
            model = torch.nn.Linear(6, 8).to("spmdx")
            if devices:
                mesh = spmdx.Mesh(range(devices), (devices,), ("a",))
                spmdx.mark_sharding(model.weight, mesh, ("a", None))
            optimizer = torch.optim.SGD(model.parameters(), 1e-4)
            for _ in range(30):
                loss = model(table(4, 6).to("spmdx")).square().sum()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                loss.item()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=train, args=(n,)) for n in (0, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_a_value_is_overwritten_from_another_mesh_while_it_is_read():
    a, b = cut(torch.ones(6, 6), mesh_of("two by two")), cut(torch.ones(6, 6), mesh_of("three"))
    e = b * 2
    spmdx.mark_step()  # lies on the mesh of b, and is not annotated
    t = e + b
    e.zero_()
    e.add_(a)
    spmdx.mark_step()
    assert (e.cpu().sum(), t.cpu().sum()) == (36, 108)


@pytest.mark.parametrize("first, second", PAIRS)
def test_what_was_read_before_it_is_annotated_for_another_mesh(first, second):
    x, y, z = table(4, 4), table(4, 4) + 1, table(4, 4) + 2
    left, moved, right = x.to("spmdx"), cut(y, mesh_of(first)), z.to("spmdx")
    doubled = left * 2
    spmdx.mark_step()
    product = doubled @ moved
    spmdx.mark_sharding(right, mesh_of(second), (mesh_of(second).axis_names[0], None))
    right += 1
    spmdx.mark_sharding(moved, mesh_of(second), (mesh_of(second).axis_names[0], None))
    spmdx.mark_step()
    torch.testing.assert_close(product.cpu(), x * 2 @ y)
    torch.testing.assert_close(right.cpu(), z + 1)
    torch.testing.assert_close(moved.cpu(), y)
    assert spmdx.get_sharding(moved).mesh == mesh_of(second)
