# SPDX-License-Identifier: Apache-2.0
"""What is as before when cuts were chosen: programs give what plain PyTorch gives on the CPU."""

import collections
import copy
import random

import numpy
import pytest
import spmdx
import torch
from messages import message_of
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.nn.utils import parametrize

WIDTH, LAYERS = 4, 8


class Layers(nn.Sequential):
    """Equal layers in float64. Cases add what they keep, and a forward pass that changes it."""

    def __init__(self):
        torch.manual_seed(0)
        super().__init__(*(nn.Linear(WIDTH, WIDTH, dtype=torch.float64) for _ in range(LAYERS)))
        self.keep()

    def keep(self):
        pass

    def kept(self):
        return []

    def program(self, device):
        """Losses, gradients and what is kept, of two steps of three microbatches."""
        found, optimizer = [], torch.optim.SGD(self.parameters(), lr=0.1)
        for _ in range(2):
            for x in batch(device).chunk(3):
                loss = self(x).square().mean()
                loss.backward()
                found.append(loss.detach())
            found += [parameter.grad.clone() for parameter in self.parameters()]
            optimizer.step()
            optimizer.zero_grad()
        return [*found, *self.kept()]


def batch(device="spmdx"):
    torch.manual_seed(1)
    return torch.randn(6, WIDTH, dtype=torch.float64).to(device)


def piped(p, model, cuts=None):
    return spmdx.nn.pipeline(model.to("spmdx"), spmdx.Mesh(range(p), (p,), ("pipe",)), cuts=cuts)


def some_cuts(p):
    return [str(at * LAYERS // p) for at in range(1, p)]


def stages_of(model):
    shardings = [spmdx.get_annotation(parameter) for parameter in model.parameters()]
    return [None if s is None or s.stage is None else s.stage[1] for s in shardings]


def assert_same(got, want):
    assert len(got) == len(want)
    for at, (a, b) in enumerate(zip(got, want, strict=True)):
        a, b = a.detach().cpu(), b.detach().cpu()
        assert torch.allclose(a, b, rtol=1e-9, atol=1e-12), f"value {at}: {a} is not {b}"


class Generators(Layers):
    def keep(self):
        self.one, self.pair = torch.Generator().manual_seed(1), (random.Random(2), [])
        self.within = {"a": [torch.Generator().manual_seed(3)]}
        self.numpys = numpy.random.default_rng(4), numpy.random.RandomState(5)

    def forward(self, x):
        noise = torch.rand(WIDTH, generator=self.one, dtype=torch.float64).to(x.device)
        factor = torch.rand((), generator=self.within["a"][0]).item() + self.pair[0].random()
        return super().forward(x * (factor + sum(own.normal() for own in self.numpys)) + noise)


class GlobalNumbers(Layers):
    def keep(self):
        random.seed(0)
        numpy.random.seed(0)

    def forward(self, x):
        return super().forward(x * (random.random() + numpy.random.rand()) + random.gauss(0, 1))


class CpuTensors(Layers):
    """Counts by itself, in a container, by a view of a part and by numpy."""

    def keep(self):
        self.count, self.counts = torch.zeros(()), {"calls": torch.zeros(2, 3)}
        self.part, self.shared = self.counts["calls"][0, 1:], torch.zeros(2)

    def forward(self, x):
        self.count.add_(1)
        self.counts["calls"].add_(self.count)
        self.part.mul_(2)
        self.shared.numpy()[0] += 1
        return super().forward(x * self.count.item() + self.part.sum().item())

    def kept(self):
        return [self.count, self.counts["calls"], self.part, self.shared]


class ExchangedMemory(Layers):
    def keep(self):
        self.register_buffer("scale", torch.ones(WIDTH, dtype=torch.float64))
        self.own = torch.ones(2)

    def forward(self, x):
        self.scale.data = self.scale.data * 1.1
        self.own.data = torch.cat([self.own, self.own.sum()[None]])
        return super().forward(x * self.scale)

    def kept(self):
        return [self.scale, self.own]


class OwnList(list):
    def clear(self):
        raise AssertionError("methods of a class of the user are not called")


class Containers(Layers):
    def keep(self):
        self.seen = {"means": [[]], "pair": ([], {})}
        self.last, self.sums = collections.deque(maxlen=3), collections.defaultdict(float)
        self.times, self.order = collections.Counter(), collections.OrderedDict(a=1, b=2)
        self.lengths, self.own = set(), OwnList()

    def forward(self, x):
        y = super().forward(x)
        mean = y.detach().mean()
        for found in (self.seen["means"][0], self.seen["pair"][0], self.last, self.own):
            found.append(mean)
        self.seen["pair"][1][len(self.own)] = self.sums["a"] = self.sums["a"] + mean
        self.times["calls"] += 1
        self.lengths.add(len(self.own))
        self.order.move_to_end(next(iter(self.order)))
        return y * self.times["calls"] + self.order[next(iter(self.order))]

    def kept(self):
        (means,), (others, sums) = self.seen["means"], self.seen["pair"]
        counts = [len(self.lengths), self.times["calls"], *self.order.values()]
        found = [*means, *others, *sums.values(), *self.last, *self.own, *self.sums.values()]
        return [*found, torch.tensor(counts)]


class GradientsWithin(Layers):
    def forward(self, x):
        y = super().forward(x)
        y.sum().backward()
        return y.detach() * self[0].weight.sum()


class Told(Layers):
    def forward(self, x, generator, found, counts):
        noise = torch.rand(WIDTH, generator=generator, dtype=torch.float64)
        y = super().forward(x) * noise.to(x.device)
        found.append(y.detach().mean())
        counts.add_(1)
        return y

    def program(self, device):
        generator, found, counts = torch.Generator().manual_seed(2), [], torch.zeros(2)
        x = batch(device).requires_grad_() * 2
        x.retain_grad()
        self(x, generator, found=found, counts=counts).square().sum().backward()
        return [x.grad, *found, counts, torch.rand(1, generator=generator)]


class Normed(Layers):
    def keep(self):
        nn.utils.parametrizations.weight_norm(self[1])

    def program(self, device):
        with parametrize.cached():
            return [self(batch(device)), self[1].weight]


class WithABlock(Layers):
    def keep(self):
        self[2] = nn.Sequential(self[2])

    def program(self, device):
        """Gradients, and what hooks of them saw: of parameters, of a module and of the input."""
        seen, x = [], batch(device).requires_grad_().view(-1, WIDTH)

        def see(gradient):
            seen.append(gradient.norm())
            return gradient * 1.5

        def see_sum(parameter):
            seen.append(parameter.grad.sum())

        weight, within = self[1].weight, self[2][0]
        handles = [tensor.register_hook(see) for tensor in (weight, self[3].bias, x)]
        handles.append(weight.register_post_accumulate_grad_hook(see_sum))
        handles.append(within.register_full_backward_hook(lambda m, i, o: seen.append(o[0].norm())))
        handles.append(within.register_full_backward_pre_hook(lambda m, o: (see(o[0]),)))
        for expected in (6, 12, 12):
            while len(seen) == 12 and handles:
                handles.pop().remove()
            self(x).square().mean().backward()
            assert len(seen) == expected
        return [*seen, *(p.grad for p in self.parameters())]


class OtherParameters(Layers):
    def program(self, device):
        others = {name: p * 0.9 for name, p in self.named_parameters()}
        torch.func.functional_call(self, others, (batch(device),)).square().mean().backward()
        return [parameter.grad.clone() for parameter in self.parameters()]


@pytest.mark.parametrize("p", [2, 4])
@pytest.mark.parametrize("kind", Layers.__subclasses__())
def test_programs_where_a_call_changes_things(kind, p):
    want = kind().program("cpu")
    assert_same(piped(p, kind()).program("spmdx"), want)


class DeviceGenerator(Layers):
    def keep(self):
        self.own = torch.Generator("spmdx").manual_seed(1)

    def forward(self, x):
        noise = torch.rand(x.shape, generator=self.own, device=x.device, dtype=x.dtype)
        return super().forward(x + noise)


@pytest.mark.parametrize("p", [2, 4])
def test_a_generator_of_the_device(p):
    want = piped(p, DeviceGenerator(), some_cuts(p)).program("spmdx")
    assert_same(piped(p, DeviceGenerator()).program("spmdx"), want)


def test_a_call_that_cannot_be_planned_changes_nothing():
    model = CpuTensors()
    model[7].register_forward_hook(lambda module, given, y: y * y.sum().item())
    before = [*(value.clone() for value in model.kept()), torch.tensor(model.count._version)]
    with pytest.raises(spmdx.ShardingError, match="that cannot be planned"):
        piped(2, model)(batch())
    assert_same([*model.kept(), torch.tensor(model.count._version)], before)


@pytest.mark.filterwarnings("ignore")  # of torch, about read-only memory and old kinds of tensors
def test_modules_may_keep_things_of_any_kind():
    model, read_only = Layers(), numpy.ones(3)
    read_only.flags.writeable = False
    with FakeTensorMode():
        fake = torch.ones(3)
    with torch.inference_mode():
        inference = torch.ones(3), torch.ones(3, device="spmdx")
    model.odd = [fake, inference, torch.from_numpy(read_only), random.SystemRandom()]
    model.odd += [model.odd, torch.ones(3, device="meta"), torch.ones(1).expand(4), torch.empty(0)]
    model.quantized = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
    model.nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    model.others = {"lazy": nn.UninitializedParameter(), "sparse": torch.eye(3).to_sparse()}
    assert_same([piped(2, model)(batch())], [Layers()(batch("cpu"))])


@pytest.mark.parametrize("p", [2, 4])
def test_cuts_chosen_between_a_forward_and_its_backward(p):
    gradients = []
    for model, device in ((Layers(), "cpu"), (piped(p, Layers(), some_cuts(p)), "spmdx")):
        first = model(batch(device)).square().mean()
        if device == "spmdx":
            piped(p, model)
        (first + model(batch(device) * 2).square().mean()).backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    assert_same(*gradients)


def of_a_shared_encoder(prepare, device):
    encoder = Layers().to(device)
    heads = [nn.Linear(WIDTH, WIDTH, dtype=torch.float64).to(device) for _ in range(2)]
    models = [prepare(nn.Sequential(encoder, head)) for head in heads]
    for _ in range(2):
        sum(model(batch(device)).square().mean() for model in models).backward()
    return [p.grad for p in encoder.parameters()]


@pytest.mark.parametrize("p", [2, 4])
def test_two_models_that_share_an_encoder(p):
    got = of_a_shared_encoder(lambda model: piped(p, model), "spmdx")
    assert_same(got, of_a_shared_encoder(lambda model: model, "cpu"))


def of_many(model, x):
    given = {name: torch.stack([p, 2 * p]) for name, p in model.named_parameters()}
    return torch.func.vmap(lambda one: torch.func.functional_call(model, one, (x,)))(given)


TRANSFORMS = {
    "grad": lambda model, x: torch.func.grad(lambda x: model(x).sum())(x),
    "jvp": lambda model, x: torch.func.jvp(model, (x,), (x,))[1],
    "vmap of grad": lambda model, x: torch.func.vmap(torch.func.grad(lambda x: model(x).sum()))(x),
    "grad of vmap": lambda model, x: torch.func.grad(lambda x: torch.func.vmap(model)(x).sum())(x),
    "functionalize": lambda model, x: torch.func.functionalize(model)(x),
    "vmap of parameters": of_many,
}
TEXT = (
    "HERE: pipeline: cuts are chosen by a plan of the first call, and that is within a transform "
    "of torch.func. Expected a first call outside of it, whose gradients can be planned. Name the "
    "cuts, as cuts=['layers.4'], or call the model once before."
)


@pytest.mark.parametrize("p", [2, 4])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_first_call_within_a_transform(name, p):
    transform, model = TRANSFORMS[name], piped(p, Layers())
    assert message_of(spmdx.ShardingError, lambda: transform(model, batch())) == TEXT
    assert set(stages_of(model)) == {None}
    model(batch())
    assert len(set(stages_of(model))) == p
    assert_same([transform(model, batch())], [transform(Layers(), batch("cpu"))])


@pytest.mark.parametrize("p", [2, 4])
def test_a_first_call_within_vmap_of_the_inputs(p):
    model = piped(p, Layers())
    assert_same([torch.func.vmap(model)(batch())], [Layers()(batch("cpu"))])
    assert len(set(stages_of(model))) == p


@pytest.mark.parametrize("p", [2, 4])
def test_a_first_call_by_functional_call_puts_the_model_on_stages(p):
    model = piped(p, OtherParameters())
    other = copy.deepcopy(model)
    other.program("spmdx")
    assert set(stages_of(model)) == {None}
    assert set(stages_of(other)) == set(range(p))
    other.zero_grad()
    assert_same(Layers.program(other, "spmdx"), Layers().program("cpu"))


def test_parameters_that_the_call_has_as_one():
    model = piped(2, Layers())
    one = model[0].weight * 0.9
    torch.func.functional_call(model, {"0.weight": one, "7.weight": one}, (batch(),))
    assert stages_of(model)[0] == stages_of(model)[-2] == 0 and stages_of(model)[-1] == 1
