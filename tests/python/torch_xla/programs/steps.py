# SPDX-License-Identifier: Apache-2.0
"""Steps, seeds, saving, accumulated gradients, loops and values computed again."""

import copy
import io

import torch
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.spmd as xs
from common import line, refused, same
from torch_xla.debug import metrics
from torch_xla.experimental.gradient_accumulation import gradient_accumulation
from torch_xla.experimental.scan import scan
from torch_xla.experimental.scan_layers import scan_layers
from torch_xla.utils.checkpoint import checkpoint


def blocks_and_functions_are_steps(devices):
    x = torch.randn(8, 3)
    t = x.to("xla")
    xs.mark_sharding(t, line(devices), (0, None))
    torch_xla.sync(wait=True)
    metrics.clear_all()
    with torch_xla.step():
        y = t * 2
    xm.wait_device_ops()
    assert metrics.counter_value("ExecuteReplicated") == 1
    same(y, x * 2)

    @torch_xla.compile
    def doubled(value):
        return value + value

    same(doubled(t), x + x)
    same(torch_xla.compile(lambda value: value.exp(), full_graph=True)(t), x.exp())
    with refused(RuntimeError, "full_graph=True"):
        torch_xla.compile(lambda value: (value + 3).sum().item(), full_graph=True)(t)
    few = torch_xla.compile(lambda value: value * 5 - 1, max_different_graphs=1)
    few(t)
    few(t)
    with refused(RuntimeError, "max_different_graphs=1"):
        few(t[:5])
    with refused(NotImplementedError, "custom_compile_options"):
        torch_xla.compile(doubled, custom_compile_options={"a": True})


def closures_are_called_when_the_step_ends(devices):
    said = []
    xm.add_step_closure(lambda *values: said.append(values), args=(1, 2))
    assert said == []
    xm.mark_step()
    assert said == [(1, 2)]
    torch_xla.sync()
    assert said == [(1, 2)]


def seeds_make_draws_repeatable(devices):
    torch_xla.manual_seed(7)
    first = torch.randn(5, device="xla").cpu()
    torch_xla.manual_seed(7)
    assert torch.equal(torch.randn(5, device="xla").cpu(), first)
    kept = xm.get_rng_state()
    second = torch.rand(4, device="xla").cpu()
    xm.set_rng_state(kept)
    assert torch.equal(torch.rand(4, device="xla").cpu(), second)


def an_optimizer_steps_and_a_model_is_saved(devices):
    plain = torch.nn.Linear(4, 3)
    model = copy.deepcopy(plain).to("xla")
    xs.mark_sharding(model.weight, line(devices), (None, 0))
    x = torch.randn(6, 4)
    for module, place in ((plain, "cpu"), (model, "xla")):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
        for _ in range(2):
            module(x.to(place)).square().mean().backward()
            if place == "cpu":
                optimizer.step()
            else:
                xm.optimizer_step(optimizer, barrier=True)
            optimizer.zero_grad()
    with io.BytesIO() as file:
        xm.save(model.state_dict(), file)
        file.seek(0)
        saved = torch.load(file)
    for name, want in plain.state_dict().items():
        assert saved[name].device.type == "cpu"
        same(saved[name], want)
    with refused(NotImplementedError, "groups"):
        xm.optimizer_step(optimizer, groups=[[0]])


def gradients_of_several_batches_add_up(devices):
    plain = torch.nn.Linear(4, 3)
    model = copy.deepcopy(plain).to("xla")
    xs.mark_sharding(model.weight, line(devices), (0, None))
    x, y = torch.randn(3, 8, 4), torch.randint(3, (3, 8))
    want = 0.0
    for rows, labels in zip(x, y, strict=True):
        loss = F.cross_entropy(plain(rows), labels) / 3
        loss.backward()
        want = want + loss.detach()
    total = gradient_accumulation(
        lambda rows, labels: F.cross_entropy(model(rows), labels),
        (x.to("xla"), y.to("xla")),
        model,
    )
    torch_xla.sync()
    same(total.reshape(()), want)
    for mine, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        same(mine.grad, theirs.grad)
    with refused(ValueError, "lengths"):
        gradient_accumulation(lambda *rows: rows[0], (x[:2].to("xla"), y.to("xla")), model)


def what_is_carried_is_given_as_a_tuple(devices):
    model, x = torch.nn.Linear(4, 3).to("xla"), torch.randn(5, 8, 4).to("xla")

    def step(rows, count):
        return model(rows).square().mean(), count + 10

    ten = torch.tensor(10.0).to("xla")
    plain = sum(step(rows, ten)[0] for rows in x) / 5
    for options in ({"carried_tensors": (ten,)}, {"carried_tensors": [ten]}):
        total, count = gradient_accumulation(step, (x,), model, **options)
        same(total.reshape(()), plain.cpu())
        assert count.item() == 60
    (total,) = gradient_accumulation(lambda rows: step(rows, ten)[0], (x,), model, None)
    same(total, plain.cpu())


def loops_give_what_plain_loops_give(devices):
    x = torch.randn(4, 6)
    carry, rows = scan(lambda c, row: (c + row, c * row), torch.zeros(6).to("xla"), x.to("xla"))
    total, wanted = torch.zeros(6), []
    for row in x:
        wanted.append(total * row)
        total = total + row
    same(carry, total)
    same(rows, torch.stack(wanted))
    carry, (nothing, kept) = scan(
        lambda c, row: (c + row, (None, row)), torch.zeros(6).to("xla"), x.to("xla")
    )
    assert nothing is None
    same(carry, total)
    same(kept, x)
    layers = [torch.nn.Linear(6, 6) for _ in range(3)]
    want = torch.nn.Sequential(*layers)(x)
    same(scan_layers([layer.to("xla") for layer in layers], x.to("xla")), want)


def values_are_computed_again_in_backward(devices):
    layer = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh())
    x = torch.randn(4, 5, requires_grad=True)
    layer(x).square().sum().backward()
    want, wanted = x.grad, layer[0].weight.grad
    layer.zero_grad()
    layer.to("xla")
    t = x.detach().to("xla").requires_grad_(True)
    checkpoint(layer, t).square().sum().backward()
    same(t.grad, want)
    same(layer[0].weight.grad, wanted)
    with refused(ValueError, "use_reentrant"):
        checkpoint(layer, t, use_reentrant=False)


def a_compiled_function_ends_a_step(devices):
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    x = torch.randn(6, 4)
    want = model(x)
    model.to("xla")
    xs.mark_sharding(model[0].weight, line(devices), (0, None))
    t = x.to("xla")
    torch_xla.sync(wait=True)
    metrics.clear_all()
    result = torch.compile(model, backend="openxla")(t)
    xm.wait_device_ops()
    assert metrics.counter_value("ExecuteReplicated") == 1
    assert torch_xla._XLAC._get_xla_sharding_spec(result)
    same(result, want)
