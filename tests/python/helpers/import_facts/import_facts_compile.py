# SPDX-License-Identifier: Apache-2.0
"""Facts of torch.compile, torch.export and what lies below them."""

import re

import torch
from import_facts import error, fact, model, numbers
from torch import nn


class Counting:
    """A backend that runs the graph as it is, and remembers its text."""

    def __init__(self) -> None:
        self.graphs: list[str] = []

    def __call__(self, graph, inputs):
        self.graphs.append(graph.code)
        return graph.forward


def compiled(function, *args, backend=None, **kwargs):
    """What a compiled function returns, the code of its graphs and how often it was cut."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    counting = backend or Counting()
    result = torch.compile(function, backend=counting, **kwargs)(*args)
    graphs = getattr(counting, "graphs", [])
    return result, graphs, len(torch._dynamo.utils.counters["graph_break"])


@fact
def compiled_functions():
    return compiled(lambda x: (x.sin() + 1).sum(-1), numbers(2, 3), fullgraph=True)


@fact
def compiled_modules():
    return compiled(model(), numbers(2, 4), fullgraph=True)


@fact
def modules_eager():
    return compiled(model(), numbers(2, 4), backend="eager")


@fact
def modules_aot_eager():
    return compiled(model(), numbers(2, 4), backend="aot_eager")


@fact
def modules_inductor():
    return compiled(model(), numbers(2, 4), backend="inductor")


@fact
def training():
    net = model()
    steps = torch.optim.SGD(net.parameters(), lr=0.1)
    step = torch.compile(net, backend="aot_eager", fullgraph=True)
    for _ in range(2):
        step(numbers(2, 4)).sum().backward()
        steps.step()
    return list(net.parameters())


@fact
def compiled_optimizers():
    net = model()
    steps = torch.optim.Adam(net.parameters())
    net(numbers(2, 4)).sum().backward()
    torch.compile(steps.step, backend="eager")()
    return list(net.parameters())


@fact
def dynamic_shapes():
    torch._dynamo.reset()
    counting = Counting()
    function = torch.compile(lambda x: x.view(-1) * x.shape[0], backend=counting, dynamic=True)
    results = [function(numbers(n, 2)).sum() for n in (2, 3, 5)]
    return results, counting.graphs


@fact
def in_inference_mode():
    with torch.inference_mode():
        return compiled(model(), numbers(2, 4), backend="aot_eager")


@fact
def graph_breaks():
    def cut(x):
        y = x.sin()
        if y.sum() > 0:
            return y + 1
        return y - 1

    return compiled(cut, numbers(3)), error(compiled, cut, numbers(3), fullgraph=True)


@fact
def copies_inside():
    import copy

    def copied(x):
        return copy.deepcopy(x) + copy.copy(x) + x.to("cpu").clone()

    return compiled(copied, numbers(3))


@fact
def parameters_made_inside():
    def made(x):
        return nn.Parameter(x) * 2, torch.nn.functional.linear(x, torch.ones(2, 3))

    return compiled(made, numbers(3))


@fact
def modules_moved_inside():
    net = model()

    def moved(x):
        net.to(torch.float32)
        return net(x)

    result, graphs, cuts = compiled(moved, numbers(2, 4))
    return result, [code.count("\n") for code in graphs], cuts  # lines: variables are named ours


@fact
def modules_converted_after_a_cut():
    net = model()
    result, graphs, cuts = compiled(lambda x: net.to(x.dtype)(x), numbers(2, 4).double())
    return result, [code.count("\n") for code in graphs], cuts


@fact
def states_loaded_inside():
    net, state = model(), model().state_dict()

    def load(x):
        net.load_state_dict(state)
        return net(x)

    return compiled(load, numbers(2, 4))


@fact
def storages_inside():
    def emptied(x):
        y = x + 1
        y.untyped_storage().resize_(0)
        return x * 2

    return compiled(emptied, numbers(4))


@fact
def devices_inside():
    def asks(x):
        acc = torch.accelerator.current_accelerator()
        return x + (1 if acc is None else 2), str(x.device), x.is_cpu, torch.cuda.is_available()

    return compiled(asks, numbers(3), fullgraph=True)


@fact
def random_numbers_inside():
    torch.manual_seed(3)
    return compiled(lambda x: torch.rand_like(x) + torch.randn(3), numbers(3), fullgraph=True)


@fact
def checkpoints_inside():
    def kept(x):
        return torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=False)

    x = numbers(3).requires_grad_()
    result = compiled(kept, x, backend="aot_eager", fullgraph=True)
    result[0].sum().backward()
    return result, x.grad


@fact
def autocast_inside():
    def cast(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ x

    return compiled(cast, numbers(2, 2), fullgraph=True)


@fact
def transforms_inside():
    def gradients(x):
        return torch.func.vmap(torch.func.grad(lambda t: t.sin().sum()))(x)

    return compiled(gradients, numbers(2, 2), backend="aot_eager", fullgraph=True)


@fact
def subclasses_inside():
    class Tagged(torch.Tensor):
        pass

    return compiled(lambda x: x.sin() + 1, numbers(2).as_subclass(Tagged), backend="eager")


@fact
def lists_inside():
    def listed(x):
        return [p + 1 for p in (x, x[1:])], x.tolist(), x.numel()

    return compiled(listed, numbers(3))


@fact
def recompilations():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    function = torch.compile(lambda x: x + 1, backend="eager")
    for value in (numbers(2), numbers(2).double(), numbers(2).requires_grad_()):
        function(value)
    return sorted(torch._dynamo.utils.counters["stats"].items())


@fact
def explanations():
    torch._dynamo.reset()
    told = torch._dynamo.explain(model())(numbers(2, 4))
    return told.graph_count, told.graph_break_count, told.op_count


@fact
def exports():
    program = torch.export.export(model(), (numbers(2, 4),))
    return program.graph, sorted(program.state_dict), program.module()(numbers(2, 4))


@fact
def exports_with_dynamic_shapes():
    rows = torch.export.Dim("rows", min=2, max=64)
    program = torch.export.export(model(), (numbers(4, 4),), dynamic_shapes=({0: rows},))
    return program.run_decompositions().graph, program.range_constraints


@fact
def make_fx():
    from torch.fx.experimental.proxy_tensor import make_fx as traced

    weight = numbers(3, 4)
    return traced(lambda x: (x @ weight.t()).relu(), tracing_mode="real")(numbers(2, 4)).code


@fact
def backends():
    return torch._dynamo.list_backends(), torch._dynamo.list_backends(exclude_tags=None)


@fact
def devices_of_the_compiler():
    from torch._dynamo.device_interface import get_registered_device_interfaces
    from torch.utils._triton import has_triton

    return sorted(name for name, _ in get_registered_device_interfaces()), has_triton()


@fact
def texts_in_compiled_functions():
    return compiled(lambda x: f"{x}" + repr(x * 2), numbers(3), backend="eager")


@fact
def states_loaded_in_compiled_functions():
    net = model()

    def load(x):
        net.load_state_dict(net.state_dict(), assign=True)
        return net(x)

    return compiled(load, numbers(2, 4), backend="eager")


@fact
def random_checkpoints_in_compiled_functions():
    from torch.utils.checkpoint import checkpoint

    def noisy(x):
        return checkpoint(lambda x: nn.functional.dropout(x.sin(), 0.3), x, use_reentrant=False)

    found = []
    for backend in ("aot_eager", "aot_eager_decomp_partition"):
        x = numbers(8).requires_grad_()
        y, *graphs = compiled(noisy, x, backend=backend)
        y.sum().backward()
        found.append((y, x.grad, graphs))
    return found


@fact
def rows_of_subclasses_in_compiled_functions():
    class Plain(torch.Tensor):
        __torch_function__ = torch._C._disabled_torch_function_impl

    x = numbers(3, 2).as_subclass(Plain)
    rows, *graphs = compiled(lambda x: list(x), x, backend="eager")
    by_mask = error(compiled, lambda x: x[x > 0.5], x)  # names a class by its address
    return [type(row).__name__ for row in rows], graphs, re.sub(r"\d+", "", by_mask)


@fact
def linearized():
    value, along = torch.func.linearize(torch.sin, numbers(3))
    return value, along(numbers(3))
