# SPDX-License-Identifier: Apache-2.0
"""What happens to a module: it, its tensors or its state are copied and take their places."""

import copy
import io
import pickle

import torch
from module_net import parametrized
from torch import nn


class Weight(nn.Parameter):
    """A class of the user."""


class Copies:
    """Events of a World."""

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
