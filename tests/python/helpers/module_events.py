# SPDX-License-Identifier: Apache-2.0
"""A module, its optimizer and all that may happen to them, on the CPU or on a mesh."""

import copy
import io
import pickle
import random

import spmdx
import torch
from torch import nn
from torch.nn.utils import parametrize, prune


class Doubled(nn.Module):
    """A parametrization that inverts exactly."""

    def forward(self, half):
        return half * 2

    def right_inverse(self, whole):
        return whole / 2


class Weight(nn.Parameter):
    """A class of the user."""


class Net(nn.Module):
    """Embedding, linears and a head of the embedding's shape; buffers, read and written."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(6, 8)
        self.up = nn.Linear(8, 12)
        self.norm = nn.LayerNorm(12)
        self.down = nn.Linear(12, 8)
        self.head = nn.Linear(8, 6, bias=False)
        self.register_buffer("scale", torch.linspace(0.5, 1.5, 8))
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("rows", torch.zeros((), dtype=torch.int64))

    def forward(self, index):
        x = self.embedding(index) * self.scale
        with torch.no_grad():
            self.mean.lerp_(x.mean(0), 0.1)
            self.rows.add_(len(index))
        return self.head(self.down(self.norm(torch.sin(self.up(x)))))


def numbers(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class World:
    """A module, its optimizer and what else is alive, on one device; no ``mesh`` on the CPU."""

    def __init__(self, device, mesh):
        self.device, self.mesh = device, mesh
        self.net = Net()
        with torch.no_grad():
            for i, tensor in enumerate(self.net.parameters()):
                tensor.copy_(numbers(i, *tensor.shape) / 2)
        self.optimizer = torch.optim.SGD(self.net.parameters(), 0.05, momentum=0.9)
        self.kept = []  # graphs and tensors that stay alive beside the module
        self.refs = {}

    # ---- what the drafted number chooses

    def named(self):
        return dict(self.net.named_parameters(remove_duplicate=False))

    def one(self, n):
        named = self.named()
        return named[sorted(named)[n % len(named)]]

    def put(self, tensor):
        return tensor.to(self.device)

    def index(self, n):
        draw = torch.Generator().manual_seed(n)
        return self.put(torch.randint(6, (5 + n % 4,), generator=draw))

    def spec(self, n, rank):
        draw, axes = random.Random(n), list(self.mesh.axis_names)
        draw.shuffle(axes)
        entries = [None] * rank
        for axis in axes:
            if rank and draw.random() < 0.8:
                dim = draw.randrange(rank)
                entries[dim] = axis if entries[dim] is None else (*_tuple(entries[dim]), axis)
        return tuple(entries)

    def loss(self, n):
        out = self.net(self.index(n))
        return (out * self.put(numbers(n, *out.shape)).to(out.dtype)).square().mean()

    # ---- the beginning

    def begin(self, n):
        """To the device, with a graph and an optimizer from before, or without."""
        if n % 2:
            device, self.device = self.device, "cpu"
            self.keep_graph(n)
            self.device = device
        self.net.to(self.device)
        if n // 2:
            self.make_optimizer(n)

    # ---- marks; they mean nothing on the CPU

    def mark(self, n):
        if self.mesh:
            tensor = self.one(n)
            spmdx.mark_sharding(tensor, self.mesh, self.spec(n, tensor.dim()))

    def mark_buffer(self, n):
        if self.mesh:
            named = dict(self.net.named_buffers())
            tensor = named[sorted(named)[n % len(named)]]
            spmdx.mark_sharding(tensor, self.mesh, self.spec(n, tensor.dim()))

    def mark_all(self, n):
        if self.mesh:
            spmdx.fully_shard(self.net, self.mesh, axis=self.mesh.axis_names[0])

    def clear(self, n):
        if self.mesh:
            spmdx.clear_sharding(self.one(n))

    # ---- training

    def train_step(self, n):
        self.loss(n).backward()
        if n % 3 == 0:
            nn.utils.clip_grad_norm_(self.net.parameters(), 0.1)
        self.optimizer.step()
        if n % 2:
            self.optimizer.zero_grad(set_to_none=n % 4 == 1)

    def backward(self, n):
        self.loss(n).backward()

    def step(self, n):
        self.optimizer.step()

    def zero_grad(self, n):
        (self.optimizer if n % 3 else self.net).zero_grad(set_to_none=n % 2 == 0)

    def make_optimizer(self, n):
        trained = list(self.net.parameters())
        if n % 3 == 0:
            self.optimizer = torch.optim.SGD(trained, 0.05, momentum=0.9)
        elif n % 3 == 1:
            self.optimizer = torch.optim.Adam(trained, 0.02, eps=0.1)
        else:
            self.optimizer = torch.optim.SGD(trained[:1], 0.05, momentum=0.5)
            self.optimizer.add_param_group({"params": trained[1:], "lr": 0.01})

    def reload_optimizer(self, n):
        self.optimizer.load_state_dict(copy.deepcopy(self.optimizer.state_dict()))

    def freeze(self, n):
        self.one(n).requires_grad_(n % 2 == 0)

    def unfreeze_all(self, n):
        self.net.requires_grad_(True)

    def hook(self, n):
        parameter = self.one(n)
        if parameter.requires_grad:
            parameter.register_hook(lambda g: g * 0.5)

    # ---- conversions and moves

    def convert(self, n):
        dtype = [torch.float64, torch.float32][n // 5 % 2]
        if n % 5 == 0:
            self.net.to(dtype)
        elif n % 5 == 1:
            self.net.type(dtype)
        elif n % 5 == 2:
            self.net.double() if dtype is torch.float64 else self.net.float()
        elif n % 5 == 3:
            self.net.to(self.device, dtype)
        else:
            self.net.to(self.put(torch.ones(1, dtype=dtype)))

    def move_again(self, n):
        self.net.to(torch.device(self.device) if n % 2 else self.device)

    def share(self, n):
        self.net.share_memory()

    def there_and_back(self, n):
        graph = self.loss(n) if n % 2 else None
        self.refs = {}
        self.net.cpu()
        self.net.to(self.device)
        self.kept.append(graph)

    def empty(self, n):
        self.net.to_empty(device=self.device)
        self.fill(n)
        self.net.zero_grad()

    def fill(self, n):
        def fill(module):
            for i, tensor in enumerate([*module._parameters.values(), *module._buffers.values()]):
                if tensor is not None and tensor.is_floating_point():
                    tensor.detach().copy_(numbers(n + i, *tensor.shape).abs() / 2)
                elif tensor is not None:
                    tensor.fill_(3)

        self.net.apply(fill)

    def keep_graph(self, n):
        self.kept.append(self.loss(n))

    # ---- copies

    def deepcopy(self, n):
        self.net = copy.deepcopy(self.net)
        if n % 2:
            self.make_optimizer(n // 2)

    def copy(self, n):
        self.net = copy.copy(self.net)

    def save_and_load(self, n):
        if any(p.grad_fn is not None for p in self.net.buffers()) or parametrized(self.net):
            return
        file = io.BytesIO()
        torch.save(self.net, file)
        self.net = torch.load(io.BytesIO(file.getvalue()), weights_only=False)
        self.make_optimizer(n)

    def of_class(self, n):
        module = [self.net.up, self.net.down][n % 2]
        if not parametrized(module):
            module.weight = Weight(module.weight, module.weight.requires_grad)

    def copy_one(self, n):
        module = [self.net.up, self.net.down][n % 2]
        if not parametrized(module):
            module.weight = self.copied(module.weight, n // 2)

    def copy_state(self, n):
        state = self.net.state_dict()
        state = dict(state) if n % 4 else {k: copy.copy(v) for k, v in state.items()}
        self.net.load_state_dict(self.copied(state, n), assign=n % 3 != 0)

    def copied(self, things, n):
        if n % 4 == 1:
            return copy.deepcopy(things)
        if n % 4 == 2:
            return pickle.loads(pickle.dumps(things))
        if n % 4 == 3:
            file = io.BytesIO()
            torch.save(things, file)
            return torch.load(io.BytesIO(file.getvalue()))
        return copy.copy(things)

    def average(self, n):
        if parametrized(self.net):
            return
        averaged = torch.optim.swa_utils.AveragedModel(self.net)
        averaged.update_parameters(self.net)
        self.train_step(n)
        averaged.update_parameters(self.net)
        self.refs = {f"averaged.{k}": v for k, v in averaged.state_dict().items()}

    # ---- other tensors in the place of parameters

    def keep_refs(self, n):
        self.refs = self.net.state_dict()

    def load(self, n):
        state = {k: v.clone() for k, v in self.net.state_dict().items()}
        for i, key in enumerate(sorted(state)):
            if state[key].is_floating_point():
                state[key] = state[key] * (1 + 0.1 * (i % 3))
        self.net.load_state_dict(state, strict=n % 3 != 0, assign=n % 2 == 0)

    def load_own(self, n):
        self.net.load_state_dict(self.net.state_dict(), assign=n % 2 == 0)

    def tie(self, n):
        if not (parametrized(self.net.embedding) or parametrized(self.net.head)):
            self.net.head.weight = self.net.embedding.weight

    def untie(self, n):
        if not parametrized(self.net.head):
            self.net.head.weight = nn.Parameter(self.net.head.weight.detach().clone())

    def wrap_again(self, n):
        if not parametrized(self.net.down):
            self.net.down.weight = nn.Parameter(self.net.down.weight)

    def data(self, n):
        parameter = self.one(n)
        if n % 4 == 0:
            parameter.data = parameter.data * 1.5
        elif n % 4 == 1:
            parameter.data = self.put(numbers(n, *parameter.shape)).to(parameter.dtype)
        elif n % 4 == 2:
            parameter.data = parameter.data.clone()
        else:
            parameter.data = parameter.data

    def data_of_views(self, n):
        parameters = list(self.net.parameters())
        vector = nn.utils.parameters_to_vector(parameters).detach() * 1.1
        nn.utils.vector_to_parameters(vector, parameters)
        if n % 2:
            self.kept.append(vector)

    def write(self, n):
        with torch.no_grad():
            self.one(n).mul_(0.9)

    def swap(self, n):
        if not parametrized(self.net.up):
            other = nn.Parameter(self.net.up.weight.detach().clone() * 1.2)
            del self.kept[:]
            torch.utils.swap_tensors(self.net.up.weight, other)

    def call_with_others(self, n):
        others = {k: v.detach() * 1.5 for k, v in self.net.named_parameters()}
        out = torch.func.functional_call(self.net, others, (self.index(n),))
        self.refs = {"out": out.detach()}

    # ---- parametrizations

    def parametrize(self, n):
        module = [self.net.up, self.net.down, self.net.head][n % 3]
        if not parametrized(module):
            kinds = [
                lambda m: parametrize.register_parametrization(m, "weight", Doubled()),
                nn.utils.parametrizations.weight_norm,
                lambda m: prune.l1_unstructured(m, "weight", 0.3),
                lambda m: prune.random_structured(m, "weight", 0, 0),
            ]
            kinds[n // 3 % 4](module)

    def unparametrize(self, n):
        for module in (self.net.up, self.net.down, self.net.head):
            if parametrize.is_parametrized(module):
                parametrize.remove_parametrizations(module, "weight", leave_parametrized=True)
            elif prune.is_pruned(module):
                prune.remove(module, "weight")


def _tuple(entry):
    return entry if isinstance(entry, tuple) else (entry,)


def parametrized(module):
    return any(parametrize.is_parametrized(m) or prune.is_pruned(m) for m in module.modules())
