# SPDX-License-Identifier: Apache-2.0
"""Facts of modules, parameters and optimizers."""

import copy

import torch
from import_facts import error, fact, model, numbers
from torch import nn
from torch.nn.utils import fusion, prune


def trained(optimizer: type, **kwargs) -> list[torch.Tensor]:
    net = model()
    steps = optimizer(net.parameters(), lr=0.1, **kwargs)
    for _ in range(2):
        steps.zero_grad()
        net(numbers(5, 4)).square().mean().backward()
        steps.step()
    return list(net.state_dict().values())


@fact
def modules():
    net = model().eval()
    return net, net(numbers(2, 4)), sorted(net.state_dict()), [n for n, _ in net.named_modules()]


@fact
def moved_modules():
    net = model()
    weight = net[0].weight
    net.double().to("cpu").float().half().float()
    return net[0].weight is weight, net.to("meta")[0].weight.device, weight.device, error(net.cuda)


@fact
def lazy_modules():
    lazy = nn.Sequential(nn.LazyLinear(2), nn.LazyBatchNorm1d())
    before = [str(type(p).__name__) for p in lazy.parameters()], lazy[0].weight
    return before, lazy(numbers(2, 3)).shape, lazy


@fact
def loading_states():
    net, state = model(), {k: v + 1 for k, v in model().state_dict().items()}
    kept = net[0].weight
    loads = net.load_state_dict(state), net.load_state_dict(state, assign=True)
    return loads, net[0].weight is kept, type(net[0].weight), error(net.load_state_dict, {})


@fact
def making_parameters():
    class Own(nn.Parameter):
        pass

    made = nn.Parameter(), nn.Parameter(numbers(2), False), Own(numbers(2)), nn.Buffer(numbers(2))
    return made, [type(p).__name__ for p in made], error(nn.Parameter, [1.0]), nn.Parameter(made[1])


@fact
def hooks_of_modules():
    seen, net = [], model()
    net[0].register_forward_hook(lambda module, args, result: seen.append(result.shape))
    net[0].register_full_backward_hook(lambda module, grads, results: seen.append(len(results)))
    net[0].weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.shape))
    net(numbers(2, 4)).sum().backward()
    return seen


@fact
def parametrizations():
    net = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
    spectral = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2))
    return net(numbers(1, 3)), spectral(numbers(1, 3)), sorted(net.state_dict()), type(net).__name__


@fact
def utilities_of_modules():
    net = model()
    net(numbers(2, 4)).sum().backward()
    norm = nn.utils.clip_grad_norm_(net.parameters(), 0.1), nn.utils.get_total_norm([numbers(3)])
    vector = nn.utils.parameters_to_vector(net.parameters())
    packed = nn.utils.rnn.pack_sequence([numbers(3, 1), numbers(2, 1)])
    return (
        norm,
        vector,
        packed,
        packed.to("cpu").data.device,
        nn.utils.rnn.pad_packed_sequence(packed),
    )


@fact
def pruned_and_fused_modules():
    pruned = prune.l1_unstructured(nn.Linear(3, 2), "weight", 2)
    both = nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1)).eval()
    fused = fusion.fuse_conv_bn_eval(both[0], both[1])
    return pruned.weight_mask, fused.weight, nn.utils.skip_init(nn.Linear, 2, 2).weight.shape


@fact
def functional_calls():
    net = model().eval()
    zeros = {name: torch.zeros_like(p) for name, p in net.named_parameters()}
    return torch.func.functional_call(net, zeros, (numbers(1, 4),))


@fact
def sgd():
    return trained(torch.optim.SGD, momentum=0.9)


@fact
def adam_of_each_kind():
    kinds = {"foreach": True}, {"fused": True}, {"foreach": False, "amsgrad": True}, {}
    return [trained(torch.optim.AdamW, **kind) for kind in kinds]


@fact
def optimizers_that_capture():
    return error(trained, torch.optim.Adam, capturable=True)


@fact
def schedules_and_states():
    net = model()
    steps = torch.optim.Adam(net.parameters())
    rates = torch.optim.lr_scheduler.CosineAnnealingLR(steps, 4)
    net(numbers(2, 4)).sum().backward()
    steps.step()
    rates.step()
    steps.load_state_dict(copy.deepcopy(steps.state_dict()))
    return steps, rates.get_last_lr(), steps.state_dict()
