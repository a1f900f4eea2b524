# SPDX-License-Identifier: Apache-2.0
"""A random program as a Python file that shows the difference between the CPU and the device."""

import torch

OPTIMIZERS = {
    "sgd": "torch.optim.SGD([{}], lr=0.05, momentum=0.9)",
    "adamw": "torch.optim.AdamW([{}], lr=0.05, eps=0.01)",
}
START = '''\
# SPDX-License-Identifier: Apache-2.0
"""The program of seed {seed}, made smaller."""
import spmdx
import torch
import torch.nn.functional as F

spmdx.runtime.set_device_count({count})
mesh = spmdx.Mesh({ids}, {shape}, {axes})


def run(device):
    def mark(value, spec):
        if device != "cpu":
            spmdx.mark_sharding(value, mesh, spec)

    def step():
        if device != "cpu":
            spmdx.mark_step()

    generator = torch.Generator().manual_seed({seed})
'''
BACKWARD = """\
wanted = [v for v in ({names},) if v.requires_grad]
rows = [torch.linspace(0.5, 1.5, v.shape[-1] if v.dim() else 1) for v in wanted]
rows = [row.to(torch.float64).to(device) for row in rows]
if wanted:
    totals = [(v * row).sum().real for v, row in zip(wanted, rows, strict=True)]
    sum(totals).backward()
gradients = [None if x.grad is None else x.grad.clone() for x in ({leaves},)]
"""
END = """\
    values = [{names}, {leaves}, *gradients]
    return [None if v is None else v.detach().cpu() for v in values]


for want, got in zip(run("cpu"), run("spmdx"), strict=True):
    if want is not None:
        torch.testing.assert_close(got, want, rtol={close}, atol={close})
print("equal")
"""


def text_of(program):
    ids, shape = program.mesh
    given = {
        "seed": program.seed,
        "count": max(ids) + 1,
        "ids": list(ids),
        "shape": shape,
        "axes": program.axes,
        "names": ", ".join(program.made()),
        "leaves": ", ".join(program.leaves()),
        "close": program.close,
    }
    body = [START.format(**given).rstrip("\n")]
    for i in program.inputs:
        body.append(f"    {i.name} = {drawn(i)}.to(device)")
        body += [f"    {i.name}.requires_grad_()"] if i.gradient else []
        body += [f"    mark({i.name}, {i.spec})"] if i.spec else []
    step = [*program.lines, *BACKWARD.format(**given).splitlines()]
    if program.steps > 1:
        optimizer = OPTIMIZERS[program.optimizer].format(given["leaves"])
        body += [f"    optimizer = {optimizer}", f"    for _ in range({program.steps}):"]
        if program.clip is not None:
            step.append(f"torch.nn.utils.clip_grad_norm_([{given['leaves']}], {program.clip})")
        step += ["optimizer.step()", "optimizer.zero_grad()", "step()"]
    pad = "    " * (2 if program.steps > 1 else 1)
    body += [pad + line for line in step]
    return "\n".join(body) + "\n" + END.format(**given)


def drawn(i):
    """The expression that makes an input from `generator`."""
    if i.index:
        return f"torch.randint(8, {i.shape}, generator=generator)"
    drawn_as = torch.float64 if i.dtype.is_floating_point else i.dtype
    made = f"torch.randn({i.shape}, dtype={drawn_as}, generator=generator)"
    return made if i.dtype == drawn_as else f"{made}.to({i.dtype})"
