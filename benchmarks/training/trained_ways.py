# SPDX-License-Identifier: Apache-2.0
"""The ways to train a net: by PyTorch, by torch.compile, by spmdx with a compiler or without."""

import time
import warnings

import spmdx
import torch
from trained_nets import NETS, loss_of

WAYS = ("eager", "torch.compile", "torch.compile, all", "aten", "inductor")
OURS = ("aten", "inductor")
WARM = 6  # steps: plans, kernels and their comparison, memory


class Training:
    """A net on one device, its optimizer and its batch, the same in each way."""

    def __init__(self, net, way):
        torch.manual_seed(0)
        self._is_ours = way in OURS
        device = "spmdx" if self._is_ours else "cpu"
        model, batch = NETS[net]()
        self._model = model.to(device)
        self._batch = tuple(t.to(device) for t in batch) if batch else None
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=1e-3)
        self._forward = torch.compile(self._model) if "compile" in way else self._model
        self._update = self._optimizer.step
        if way == "torch.compile, all" or "compile" in way and not batch:
            self._update = torch.compile(self._optimizer.step)
        if not batch:
            for parameter in self._model.parameters():
                parameter.grad = (torch.randn(parameter.shape) * 1e-2).to(device)
        if self._is_ours:
            spmdx.sync(wait=True)

    def step(self):
        """One step; its loss."""
        loss = torch.zeros(())
        if self._batch:
            x, expected = self._batch
            loss = loss_of(self._forward(x), expected)
            loss.backward()
        self._update()
        if self._batch:
            self._optimizer.zero_grad()
        if self._is_ours:
            spmdx.mark_step()
        return loss.detach()

    def seconds(self, steps):
        """Of so many steps, until all of their results are there."""
        began = time.perf_counter()
        for _ in range(steps):
            self.step()
        if self._is_ours:
            spmdx.sync(wait=True)
        return time.perf_counter() - began

    def numbers(self):
        """The next loss, and the sum of each parameter's absolute values after that step."""
        loss = self.step()
        sums = [p.detach().abs().sum().item() for p in self._model.parameters()]
        return [loss.item(), *sums]


def serve(pipe, net, way):
    """In a process of its own: times so many steps for each number, until it is given None."""
    torch.set_num_threads(1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if way == "inductor":
            spmdx.set_compiler("inductor", compile_now=True)
        training = Training(net, way)
        for _ in range(WARM):
            training.seconds(1)
        pipe.send("ready")
        while steps := pipe.recv():
            pipe.send(training.seconds(steps))
        compiled = spmdx.explain().segments.compiled_flops if way == "inductor" else None
        numbers = training.numbers()
    said = [str(w.message) for w in caught if "spmdx" in str(w.message)]
    pipe.send({"compiled_flops": compiled, "numbers": numbers, "said": said})


def serve_first_steps(pipe, net, compiler):
    """In a process of its own: times the first steps of a program, however many it is told."""
    torch.set_num_threads(1)
    spmdx.set_compiler(compiler)
    training = Training(net, "aten")
    pipe.send("ready")
    pipe.send(training.seconds(pipe.recv()))
    pipe.recv()
    spmdx.set_compiler(None)
