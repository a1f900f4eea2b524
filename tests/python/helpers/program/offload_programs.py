# SPDX-License-Identifier: Apache-2.0
"""What the tests of state on hosts share: optimizers, and training with their state there."""

import functools

import spmdx
import torch
from zero_programs import mlp, one_step

ADAM = {"lr": 1e-2}
MOMENTUM = {"lr": 1e-2, "momentum": 0.9}
OPTIMIZERS = {
    f"{kind.__name__}, {'all at once' if foreach else 'one by one'}": functools.partial(
        kind, foreach=foreach, **options
    )
    for kind, options in (
        (torch.optim.Adam, ADAM),
        (torch.optim.AdamW, ADAM),
        (torch.optim.SGD, MOMENTUM),
    )
    for foreach in (False, True)
}
ADAMW = OPTIMIZERS["AdamW, all at once"]


def values_of(model, optimizer):
    """Parameters and state, on the CPU."""
    state = [v for of in optimizer.state.values() for v in of.values() if torch.is_tensor(v)]
    return [tensor.detach().cpu() for tensor in [*model.parameters(), *state]]


def trained(program, optimizer, mesh=None, m=1, clip=False, prepare=None, **options):
    """The model, its optimizer, and all numbers of them after three steps; norms behind them."""
    model, batch = program()
    if mesh is not None:
        model = model.to("spmdx")
    if prepare is not None:
        prepare(model, mesh)
    chosen = optimizer(model.parameters())
    if mesh is not None:
        spmdx.nn.zero(model, chosen, mesh, axis="data", offload=True, **options)
    torch.manual_seed(3)
    norms = [one_step(model, chosen, batch, mesh, m, clip) for _ in range(3)]
    norms = [norm.detach().cpu() for norm in norms if norm is not None]
    return model, chosen, values_of(model, chosen) + norms


def assert_equal(ones, others):
    for one, other in zip(ones, others, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def on_hosts(optimizer):
    """Of each parameter, whether its state lies there."""
    return [
        all(spmdx.get_sharding(v).on_host for v in state.values() if torch.is_tensor(v) and v.dim())
        for state in optimizer.state.values()
    ]


def mlp_of(width):
    """Three layers; a batch has 48 rows."""
    return mlp(3, width, rows=48, dtype=torch.float64)


@functools.cache
def plain(width, kind, m=1, clip=False):
    """The numbers of plain PyTorch."""
    return trained(mlp_of(width), OPTIMIZERS[kind], m=m, clip=clip)[2]


def cut_by_model(model, mesh):
    """As Megatron-LM cuts two layers."""
    spmdx.mark_sharding(model[0].weight, mesh, ("model", None))
    spmdx.mark_sharding(model[2].weight, mesh, (None, "model"))
