# SPDX-License-Identifier: Apache-2.0
"""Training on a mesh gives what it gives on one device."""

import functools

import spmdx
import torch
from pipeline_loops import DTYPES, LOOPS, Program, nothing
from pipeline_models import CASES, data, make

ROWS, STEPS = 15, 3  # rows that no number of microbatches but 1, 3, 5 and 15 divides


def program(model_name, loop, m, device, **settings):
    """The program of a case, from its seeds."""
    dtype = DTYPES[loop]
    model = make(model_name, dtype).to(device)
    batches = data(model_name, STEPS, ROWS, dtype)
    torch.manual_seed(7)  # of dropout
    return Program(CASES[model_name], model, device, batches, m, **settings)


@functools.cache
def reference(model_name, loop, m, device):
    """Plain PyTorch on the CPU, or the same program on one device of spmdx."""
    end = spmdx.mark_step if device == "spmdx" else nothing
    return LOOPS[loop](program(model_name, loop, m, device, end_of_step=end))


def assert_close(got, want, what, relative):
    """Every element within `relative` of the tensor's largest one (or of 1e-3, for zeros)."""
    assert got.shape == want.shape and got.dtype == want.dtype, f"{what}: {got.shape} {got.dtype}"
    if not want.is_floating_point():
        assert torch.equal(got, want), what
        return
    scale = max(want.abs().max().item(), 1e-3)
    error = (got - want).abs().max().item() / scale
    assert error <= relative, f"{what}: differs by {error:.2e} of its largest element"


def assert_traces_agree(got, want, relative):
    """Losses, every gradient of every step, parameters and buffers at the end."""
    assert len(got.losses) == len(want.losses) == len(got.gradients) == len(want.gradients)
    for step, (a, b) in enumerate(zip(got.losses, want.losses, strict=True)):
        assert_close(torch.stack(a), torch.stack(b), f"losses of step {step}", relative)
    for step, (a, b) in enumerate(zip(got.gradients, want.gradients, strict=True)):
        assert a.keys() == b.keys(), f"gradients of step {step}: {a.keys() ^ b.keys()}"
        for name in a:
            assert_close(a[name], b[name], f"gradient of {name} in step {step}", relative)
    assert got.parameters.keys() == want.parameters.keys()
    for name in want.parameters:
        assert_close(got.parameters[name], want.parameters[name], f"{name} at the end", relative)


def check_equal(
    model_name,
    loop,
    mesh,
    p,
    m,
    cuts=None,
    schedule="1f1b",
    *,
    prepare=lambda model, mesh: None,
    data_axis=None,
    relative=1e-9,
    against=None,
):
    """Train a model of `CASES` by a loop of `LOOPS` on a mesh, and compare.

    Args:
        model_name, loop: which.
        mesh: the devices.
        p, m: the numbers of stages and of microbatches.
        cuts: modules at which the second and later stages begin; None means those of the case.
        schedule: of the pipeline.
        prepare: annotates the model before training; a pipeline by
            ``spmdx.nn.pipeline(model, mesh, axis="pipe", cuts=cuts, schedule=schedule)``.
        data_axis: the axis that cuts the rows of each microbatch; None cuts nothing.
        relative: how far elements may be apart, as a part of the largest one of their tensor.
        against: the device of the reference; None means the CPU, or where the model draws random
            numbers one device of spmdx.

    Returns:
        The trace on the mesh.
    """
    case = CASES[model_name]
    cuts = case.cuts.get(p, []) if cuts is None else cuts
    assert len(cuts) == p - 1, f"{p} stages begin at {cuts}"

    def mark(tensor):
        if data_axis is not None:
            spmdx.mark_sharding(tensor, mesh, (data_axis,) + (None,) * (tensor.dim() - 1))

    on_mesh = program(model_name, loop, m, "spmdx", end_of_step=spmdx.mark_step, mark=mark)
    missing = set(cuts) - {name for name, _ in on_mesh.model.named_modules()}
    assert not missing, f"{model_name} has no modules {missing}"
    prepare(on_mesh.model, mesh)
    torch.manual_seed(7)  # whatever the preparation drew
    got = LOOPS[loop](on_mesh)
    device = against or ("spmdx" if case.draws else "cpu")
    assert_traces_agree(got, reference(model_name, loop, m, device), relative)
    return got
