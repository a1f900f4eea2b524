# SPDX-License-Identifier: Apache-2.0
"""What happens to a module: other tensors, or parametrizations, in the place of parameters."""

import torch
from module_net import numbers, parametrized
from torch import nn
from torch.nn.utils import parametrize, prune


class Doubled(nn.Module):
    """A parametrization that inverts exactly."""

    def forward(self, half):
        return half * 2

    def right_inverse(self, whole):
        return whole / 2


class Tensors:
    """Events of a World."""

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
