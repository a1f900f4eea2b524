# SPDX-License-Identifier: Apache-2.0
"""Ways to move, convert, save, copy and inspect a module with its optimizer."""

import copy
import io
import pickle

import safetensors.torch
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune


def loaded(thing, **how):
    """Saved and loaded as files are."""
    file = io.BytesIO()
    torch.save(thing, file)
    file.seek(0)
    return torch.load(file, **how)


def flagged(setter, act):
    """With one of PyTorch's switches on."""
    setter(True)
    try:
        return act()
    finally:
        setter(False)


def swapping(act):
    """While PyTorch swaps the parameters of a module that is converted or loaded."""
    return flagged(torch.__future__.set_swap_module_params_on_conversion, act)


def on_cpu(s):
    return {name: t.detach().cpu() for name, t in s.net.state_dict().items()}


# ---- moved and converted -------------------------------------------------------------------------


def refilled(s):
    """The module with numbers that are the same to the last bit everywhere, and no gradients."""
    s.net.zero_grad()
    with torch.no_grad():
        for i, t in enumerate((*s.net.parameters(), *s.net.buffers())):
            t.copy_((torch.linspace(-1, 1, t.numel()).view_as(t) * (i + 2)).sin())
    return s.net


def emptied(s):
    s.net.to_empty(device=s.device)
    refilled(s)


MOVES = {
    "to_device": lambda s: s.net.to(s.device) is s.net,
    "to_text": lambda s: s.net.to(s.device.type) is s.net,
    "to_tensor": lambda s: s.net.to(s.x.double()) is s.net,
    "to_dtype": lambda s: s.net.to(torch.float64) is s.net,
    "to_both": lambda s: s.net.to(s.device, torch.float64, non_blocking=True) is s.net,
    "to_ints": lambda s: s.net.to(torch.int64),
    "to_format": lambda s: s.net.to(memory_format=torch.channels_last) is s.net,
    "type": lambda s: s.net.type(torch.float64) is s.net,
    "double": lambda s: s.net.double() is s.net,
    "bfloat16": lambda s: refilled(s).bfloat16().float() is s.net,
    "half": lambda s: refilled(s).half().double() is s.net,
    "float": lambda s: s.net.float() is s.net,
    "part": lambda s: s.net.up.double().float() is s.net.up,
    "apply": lambda s: s.net.apply(lambda m: m.eval()).training,
    "_apply": lambda s: s.net._apply(lambda t: t.clone()) is s.net,
    "_apply_scaled": lambda s: s.net._apply(lambda t: t * 2) is s.net,
    "to_empty": emptied,
    "share_memory": lambda s: s.net.share_memory() is s.net,
    "swapped": lambda s: (
        flagged(torch.__future__.set_swap_module_params_on_conversion, s.net.double) is s.net
    ),
    "overwritten": lambda s: (
        flagged(torch.__future__.set_overwrite_module_params_on_conversion, s.net.double) is s.net
    ),
    "requires_grad_": lambda s: s.net.up.requires_grad_(False) is s.net.up,
    "eval": lambda s: (s.net.eval().training, s.net.train(True).training, s.net(s.x)),
    "zero_grad": lambda s: s.net.zero_grad(),
    "zero_grad_kept": lambda s: s.net.zero_grad(set_to_none=False),
    "compile": lambda s: s.net.compile(backend="eager"),
    "cuda": lambda s: s.net.cuda(),
}

# ---- looked at -----------------------------------------------------------------------------------


def assigned_wrongly(s):
    s.net.up.weight = torch.ones(2)


LOOKS = {
    "parameters": lambda s: [p.detach() for p in s.net.parameters()],
    "named_parameters": lambda s: [n for n, _ in s.net.named_parameters(remove_duplicate=False)],
    "named_buffers": lambda s: dict(s.net.named_buffers()),
    "named_modules": lambda s: [n for n, _ in s.net.named_modules()],
    "children": lambda s: [type(m).__name__ for m in s.net.children()],
    "get": lambda s: (
        s.net.get_parameter("up.weight") is s.net.up.weight,
        s.net.get_buffer("scale"),
    ),
    "get_missing": lambda s: s.net.get_parameter("up.nothing"),
    "count": lambda s: sum(p.numel() * p.element_size() for p in s.net.parameters()),
    "devices": lambda s: {p.device.type == s.device.type for p in s.net.parameters()},
    "repr": lambda s: (repr(s.net), s.net.up.extra_repr()),
    "dir": lambda s: sorted(n for n in dir(s.net) if not n.startswith("_")),
    "missing": lambda s: s.net.nothing,
    "assigned_wrongly": assigned_wrongly,
    "state_dict": lambda s: s.net.state_dict(),
    "state_dict_vars": lambda s: s.net.state_dict(keep_vars=True, prefix="a."),
    "state_is_memory": lambda s: s.net.state_dict()["scale"].is_set_to(s.net.scale),
    "optimizer_repr": lambda s: repr(s.optimizer),
    "optimizer_state": lambda s: s.optimizer.state_dict(),
    "forward": lambda s: (s.net(s.x), s.net.up(s.x)),
    "same_weights": lambda s: (s.net.up.weight == s.net.tied.weight).all(),
    "is_parameter": lambda s: isinstance(s.net.up.weight, nn.Parameter),
    "lookup": lambda s: {p: n for n, p in s.net.named_parameters()}[s.net.up.weight],
    "in_list": lambda s: any(p is s.net.up.weight for p in s.net.parameters()),
}

# ---- saved, loaded and copied --------------------------------------------------------------------


def averaged(s):
    average = torch.optim.swa_utils.AveragedModel(s.net)
    s.train()
    average.update_parameters(s.net)
    average.update_parameters(s.net)
    return average.state_dict()


def exponential(s):
    keep = torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
    average = torch.optim.swa_utils.AveragedModel(s.net, multi_avg_fn=keep, use_buffers=True)
    average.update_parameters(s.net)
    s.train()
    average.update_parameters(s.net)
    return average.state_dict()


def optimizer_reloaded(s):
    """Of an optimizer with numbers on the CPU beside its moments."""
    s.optimizer = torch.optim.AdamW(s.net.parameters(), 0.1)
    s.train()
    state = loaded(s.optimizer.state_dict(), map_location="cpu")
    s.optimizer = torch.optim.AdamW(s.net.parameters(), 0.5)
    s.optimizer.load_state_dict(state)


def replaced(s, net):
    """The copy takes the place, with an optimizer of its own."""
    kept, s.net = s.net, net
    s.optimizer = torch.optim.SGD(net.parameters(), 0.1)
    return kept.up.weight is net.up.weight


def with_hooks(s):
    seen = []
    s.net._register_state_dict_hook(lambda m, state, prefix, meta: seen.append(len(state)))
    s.net.register_load_state_dict_pre_hook(lambda m, state, *rest: seen.append(sorted(state)))
    s.net.register_load_state_dict_post_hook(lambda m, keys: seen.append(keys.missing_keys))
    s.net.load_state_dict(s.net.state_dict())
    return seen


def through_safetensors(s):
    """As one does with tensors of any device."""
    state = {n: t.contiguous() for n, t in s.other().items() if n != "tied.weight"}
    data = safetensors.torch.save(state, {"format": "pt"})
    return s.net.load_state_dict(safetensors.torch.load(data), strict=False)


COPIES = {
    "load": lambda s: s.net.load_state_dict(s.other()),
    "load_own": lambda s: s.net.load_state_dict(s.net.state_dict()),
    "load_cpu": lambda s: s.net.load_state_dict({n: t.cpu() for n, t in s.other().items()}),
    "load_half": lambda s: s.net.load_state_dict({n: t.half() for n, t in s.other().items()}),
    "load_views": lambda s: s.net.load_state_dict(
        {n: t.t().contiguous().t() if t.dim() > 1 else t for n, t in s.other().items()}
    ),
    "load_missing": lambda s: s.net.load_state_dict({}, strict=False).missing_keys,
    "load_missing_strict": lambda s: s.net.load_state_dict({}),
    "load_other_shape": lambda s: s.net.load_state_dict({"scale": torch.ones(3)}, strict=False),
    "load_unexpected": lambda s: s.net.load_state_dict({**s.other(), "b": s.x}, strict=False),
    "assign": lambda s: s.net.load_state_dict(s.other(), assign=True),
    "assign_saved": lambda s: s.net.load_state_dict(loaded(s.other()), assign=True),
    "assign_doubles": lambda s: s.net.load_state_dict(
        {n: t.double() for n, t in s.other().items()}, assign=True
    ),
    "assign_part": lambda s: s.net.load_state_dict(
        {"up.bias": s.other()["up.bias"]}, assign=True, strict=False
    ),
    "swap": lambda s: swapping(lambda: s.net.load_state_dict(s.other())),
    "swap_cpu": lambda s: swapping(lambda: s.net.load_state_dict(on_cpu(s))),
    "swap_assign": lambda s: swapping(lambda: s.net.load_state_dict(s.other(), assign=True)),
    "hooks": with_hooks,
    "deepcopy": lambda s: replaced(s, copy.deepcopy(s.net)),
    "pickle": lambda s: replaced(s, pickle.loads(pickle.dumps(s.net))),
    "save": lambda s: replaced(s, loaded(s.net, weights_only=False)),
    "save_state": lambda s: s.net.load_state_dict(loaded(s.other(), weights_only=True)),
    "save_map_location": lambda s: s.net.load_state_dict(loaded(s.other(), map_location=s.device)),
    "save_to_cpu": lambda s: s.net.load_state_dict(loaded(s.other(), map_location="cpu")),
    "shallow": lambda s: (copy.copy(s.net).up is s.net.up, copy.copy(s.net).scale is s.net.scale),
    "both": lambda s: (lambda net, o: o.param_groups[0]["params"][0] is net.up.weight)(
        *copy.deepcopy((s.net, s.optimizer))
    ),
    "averaged": averaged,
    "exponential": exponential,
    "optimizer_reloaded": optimizer_reloaded,
    "safetensors": through_safetensors,
    "setstate": lambda s: s.net.__setstate__(s.net.__dict__),
}

# ---- other tensors in the place of parameters, other forms of them -------------------------------


def swapped(s):
    other = nn.Parameter(torch.ones_like(s.net.up.bias))
    s.optimizer.zero_grad()
    torch.utils.swap_tensors(s.net.up.bias, other)
    return other


def normed_the_old_way(s):
    layer = nn.utils.weight_norm(s.net.up)
    made = layer(s.x)
    nn.utils.remove_weight_norm(layer)
    return made


def parametrized(register):
    """Made, used and taken off again."""

    def way(s):
        register(s.net.up)
        made, kept = s.net(s.x), [n for n, _ in s.net.named_parameters()]
        copied = copy.deepcopy(s.net)(s.x)
        parametrize.remove_parametrizations(s.net.up, "weight")
        return made, kept, copied

    return way


def pruned(s):
    prune.l1_unstructured(s.net.up, "weight", 0.5)
    made = s.net(s.x), s.net.up.weight_mask, prune.is_pruned(s.net)
    prune.remove(s.net.up, "weight")
    return made


def hooked(s):
    seen, up = [], s.net.up
    handles = [
        up.register_forward_pre_hook(lambda m, a: (a[0] * 2,)),
        up.register_forward_hook(lambda m, a, k, out: out + 1, with_kwargs=True),
        up.register_full_backward_pre_hook(lambda m, g: seen.append(g[0].sum())),
        up.register_full_backward_hook(lambda m, i, o: seen.append((i[0] is None, o[0].shape))),
    ]
    s.train()
    for handle in handles:
        handle.remove()
    return seen


PARAMETERS = {
    "parameter": lambda s: setattr(s.net.up, "bias", nn.Parameter(s.net.up.bias)),
    "parameter_of_data": lambda s: setattr(s.net.up, "bias", nn.Parameter(s.net.up.bias.data)),
    "data": lambda s: setattr(s.net.up.weight, "data", s.net.up.weight.data * 2),
    "data_other": lambda s: setattr(s.net.up.bias, "data", torch.zeros_like(s.net.up.bias)),
    "data_doubles": lambda s: [setattr(p, "data", p.data.double()) for p in s.net.parameters()],
    "data_in_place": lambda s: [p.data.clamp_(-0.5, 0.5) for p in s.net.parameters()],
    "buffer": lambda s: setattr(s.net, "shift", s.net.shift * 2),
    "buffer_written": lambda s: s.net.scale.mul_(2),
    "register": lambda s: (s.net.register_buffer("b", s.x), s.net.register_parameter("c", None)),
    "list": lambda s: nn.ParameterList([s.net.up.weight])[0] is s.net.up.weight,
    "dict": lambda s: list(nn.ParameterDict({"a": s.net.up.bias}).keys()),
    "removed": lambda s: delattr(s.net.up, "bias"),
    "init": lambda s: (nn.init.zeros_(s.net.up.bias), nn.init.constant_(s.net.up.weight, 0.1))[0],
    "swap": swapped,
    "set_submodule": lambda s: s.net.set_submodule("norm", nn.Identity()),
    "vector": lambda s: nn.utils.parameters_to_vector(s.net.parameters()),
    "vector_back": lambda s: nn.utils.vector_to_parameters(
        nn.utils.parameters_to_vector(s.net.parameters()).detach() * 2, s.net.parameters()
    ),
    "clip": lambda s: nn.utils.clip_grad_norm_(s.net.parameters(), 0.01),
    "clip_value": lambda s: nn.utils.clip_grad_value_(s.net.parameters(), 0.001),
    "functional_call": lambda s: torch.func.functional_call(
        s.net, {n: t for n, t in s.other().items() if n != "tied.weight"}, (s.x,)
    ),
    "functional_grad": lambda s: torch.func.grad(
        lambda p: torch.func.functional_call(s.net, p, (s.x,)).square().mean()
    )({n: p.detach() for n, p in s.net.named_parameters()}),
    "weight_norm": parametrized(parametrizations.weight_norm),
    "orthogonal": parametrized(
        lambda m: parametrizations.orthogonal(m, orthogonal_map="householder")
    ),
    "old_weight_norm": normed_the_old_way,
    "prune": pruned,
    "hooks": hooked,
    "train": lambda s: s.train(),
    "add_group": lambda s: s.optimizer.add_param_group({"params": [nn.Parameter(s.x)]}),
    "scheduler": lambda s: torch.optim.lr_scheduler.StepLR(s.optimizer, 1, 0.1).step(),
    "frozen": lambda s: setattr(s.net.up.weight, "requires_grad", False),
    "skip_init": lambda s: nn.utils.skip_init(nn.Linear, 2, 3, device=s.device).weight.shape,
    "trace": lambda s: torch.jit.trace(s.net.eval(), s.x)(s.x + 1),
    "export": lambda s: torch.export.export(s.net.eval(), (s.x,)).module()(s.x + 1),
    "fx": lambda s: torch.fx.symbolic_trace(s.net)(s.x),
}

TABLES = {"moves": MOVES, "looks": LOOKS, "copies": COPIES, "parameters": PARAMETERS}
WAYS = {f"{table}.{name}": way for table, ways in TABLES.items() for name, way in ways.items()}
