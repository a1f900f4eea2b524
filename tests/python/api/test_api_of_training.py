# SPDX-License-Identifier: Apache-2.0
"""Autograd, its hooks and transforms, and optimizers give what they give on the CPU."""

import pytest
import spmdx
import torch
from api_cases import Cases, build, draw
from torch import nn
from torch.utils.checkpoint import checkpoint

case = Cases()


@case
def gradient_accumulation(d):
    m = build(lambda: nn.Linear(3, 2), d)
    for i in range(3):
        m(draw(d, 4, 3, seed=i)).pow(2).sum().backward()
    return m.weight.grad, m.bias.grad


@case
def in_place_on_a_view_in_autograd(d):
    x = draw(d, 4, 6).requires_grad_()
    y = x * 2
    y[:, 1:3].mul_(3)
    y.t()[0].add_(1)
    y.pow(2).sum().backward()
    return x.grad


@case
def hooks(d):
    x = draw(d, 3).requires_grad_()
    x.register_hook(lambda g: g * 2)
    m = build(lambda: nn.Linear(3, 3), d)
    seen = []
    m.register_forward_hook(lambda module, args, out: seen.append(tuple(out.shape)))
    m.register_full_backward_hook(lambda module, gin, gout: (gin[0] * 3,))
    m(x * x).sum().backward()
    return x.grad, seen


@case
def custom_function(d):
    class Exp(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.exp()

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            return gradient * x.exp()

    x = draw(d, 3).requires_grad_()
    Exp.apply(x).sum().backward()
    return x.grad


def checkpointed(d, reentrant):
    m = build(lambda: nn.Linear(3, 3), d)
    x = draw(d, 2, 3).requires_grad_()
    checkpoint(lambda t: torch.relu(m(t)), x, use_reentrant=reentrant).sum().backward()
    return x.grad, m.weight.grad


@case
def checkpoint_reentrant(d):
    return checkpointed(d, True)


@case
def checkpoint_not_reentrant(d):
    return checkpointed(d, False)


@case
def autocast_cross_entropy(d):
    logits = (4 * draw(d, 32, 10)).to(torch.bfloat16)
    targets = torch.arange(32, device=d) % 10
    with torch.autocast(d, dtype=torch.bfloat16):
        return nn.functional.cross_entropy(logits, targets)


@case
def autocast_matmul(d):
    with torch.autocast(d, dtype=torch.bfloat16):
        y = draw(d, 3, 3) @ draw(d, 3, 3, seed=2)
    return str(y.dtype)


@case
def gradient_scaler(d):
    m = build(lambda: nn.Linear(3, 2), d)
    optimizer = torch.optim.SGD(m.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler(d)
    for i in range(2):
        optimizer.zero_grad()
        scaler.scale(m(draw(d, 4, 3, seed=i)).sum()).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    return m.weight, scaler.get_scale()


def optimized(d, make_optimizer, steps=3):
    m = build(lambda: nn.Linear(3, 2), d)
    optimizer = make_optimizer(m.parameters())
    for i in range(steps):
        optimizer.zero_grad()
        m(draw(d, 4, 3, seed=i)).pow(2).sum().backward()
        optimizer.step()
        spmdx.mark_step()
    return m.weight, m.bias


@case
def adamw(d):
    return optimized(d, lambda p: torch.optim.AdamW(p, lr=0.1))


@case
def adamw_single_tensor(d):
    return optimized(d, lambda p: torch.optim.AdamW(p, lr=0.1, foreach=False))


@case
def adamw_fused(d):
    return optimized(d, lambda p: torch.optim.AdamW(p, lr=0.1, fused=True))


@case
def adamw_capturable(d):
    return optimized(d, lambda p: torch.optim.AdamW(p, lr=0.1, capturable=d != "cpu"))


@case
def sgd_momentum(d):
    return optimized(d, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True))


@case
def adagrad_rmsprop(d):
    return optimized(d, torch.optim.Adagrad), optimized(d, torch.optim.RMSprop)


@case
def optimizer_made_before_the_move(d):
    torch.manual_seed(0)
    m = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(m.parameters(), lr=0.1)
    m.to(d)
    m(draw(d, 4, 3)).pow(2).sum().backward()
    optimizer.step()
    return m.weight, optimizer.param_groups[0]["params"][0] is m.weight


@case
def clip_grad_norm(d):
    m = build(lambda: nn.Linear(3, 2), d)
    m(draw(d, 4, 3)).pow(2).sum().backward()
    return nn.utils.clip_grad_norm_(m.parameters(), 0.5), m.weight.grad


@case
def boolean_mask_in_autograd(d):
    x = draw(d, 4, 4).requires_grad_()
    (x[x > 0] ** 2).sum().backward()
    return x.grad


@case
def vmap_of_grad(d):
    return torch.func.vmap(torch.func.grad(lambda x: (x**2).sum()))(draw(d, 3, 4))


@case
def functional_call_and_jacobian(d):
    m = build(lambda: nn.Linear(3, 2), d)
    y = torch.func.functional_call(m, dict(m.named_parameters()), (draw(d, 4, 3),))
    return y, torch.func.jacrev(lambda x: x.sin())(draw(d, 3))


@case
def compiled_with_aot_eager(d):
    torch._dynamo.reset()
    f = torch.compile(lambda x: (x * 2 + 1).relu(), backend="aot_eager")
    x = draw(d, 3).requires_grad_()
    f(x).sum().backward()
    return f(x), x.grad


@pytest.mark.parametrize("name", sorted(case))
def test_gives_what_the_cpu_gives(name):
    case.check(name)
