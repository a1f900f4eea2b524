# SPDX-License-Identifier: Apache-2.0
"""A thread plans programs that are new each time; others train, log, load and ask meanwhile.

python tests/python/helpers/threads.py --seconds 60
"""

import argparse
import contextlib
import faulthandler
import queue
import threading
import time
import warnings

import spmdx
import torch
import torch.nn.functional as F

QUESTIONS = (
    lambda x: spmdx.explain(),
    lambda x: spmdx.explain(x * 2),
    lambda x: spmdx.get_topology(),
    lambda x: spmdx.set_topology("nvlink"),
    lambda x: spmdx.get_gather_budget(),
    lambda x: spmdx.set_gather_budget(None),
    lambda x: spmdx.set_gather_budget(0),
    lambda x: spmdx.debug.counters(),
    lambda x: spmdx.debug.fallbacks(),
    lambda x: spmdx.debug.dump(),
    lambda x: spmdx.get_sharding(x.exp()),
    lambda x: spmdx.get_annotation(x),
    lambda x: x.local_shards,
    lambda x: x.sum().item(),
    lambda x: str(x),
    lambda x: x.cpu(),
    lambda x: x.redistribute(x.mesh, (None, "data")),
    lambda x: spmdx.mark_step(),
    lambda x: spmdx.sync(wait=True),
    lambda x: spmdx.visualize_sharding(x, file=open("/dev/null", "w")),
    lambda x: spmdx.runtime.memory_info(),
    lambda x: spmdx.register_rule("threads::pass_on", "*->*"),
)


@torch.library.custom_op("threads::pass_on", mutates_args=())
def pass_on(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


pass_on.register_fake(torch.empty_like)


class Hammer:
    """Threads that go on until the time is over, or one of them fails."""

    def __init__(self, seconds):
        self.until, self.errors, self.turns = time.monotonic() + seconds, [], {}
        self.mesh = spmdx.Mesh(range(4), (4,), ("data",))
        torch.ones(4).to("spmdx").sum().item()  # `explain` has something to tell of
        self.losses = queue.Queue(maxsize=100)

    def run(self, *works):
        threads = [threading.Thread(target=self._go_on, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _go_on(self, work):
        turn = 0
        try:
            while time.monotonic() < self.until and not self.errors:
                work(turn)
                turn += 1
        except BaseException as error:
            self.errors.append(error)
        self.turns[work.__name__] = turn

    def trains(self, turn):
        """New sizes each turn, so a new plan; backward runs on a thread of autograd."""
        x = torch.randn(4 + turn % 97, 3 + turn // 97).to("spmdx")
        spmdx.mark_sharding(x, self.mesh, ("data", None))
        w = torch.randn(x.shape[1], 5).to("spmdx").requires_grad_()
        loss = F.gelu(pass_on((x @ w).detach()) + x @ w).square().sum()
        loss.backward()
        spmdx.mark_step()
        want = torch.autograd.grad(
            F.gelu((y := x.cpu() @ (v := w.detach().cpu().requires_grad_())) + y.detach())
            .square()
            .sum(),
            v,
        )[0]
        torch.testing.assert_close(w.grad.cpu(), want, rtol=1e-4, atol=1e-4)

    def optimises(self, turn):
        """Gradients and parameters that Python has seen are dropped all the time."""
        model = torch.nn.Linear(8, 4).to("spmdx")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(20):
            loss = model(torch.ones(16, 8).to("spmdx")).square().mean()
            optimizer.zero_grad()
            loss.backward()
            [parameter.grad for parameter in model.parameters()]
            optimizer.step()
            if not self.losses.full():
                self.losses.put(loss.detach())

    def logs(self, turn):
        with contextlib.suppress(queue.Empty):
            assert 0 <= float(self.losses.get(timeout=0.1)) < 100

    def asks(self, turn):
        x = spmdx.mark_sharding(torch.ones(8, 4).to("spmdx"), self.mesh, ("data", None))
        QUESTIONS[turn % len(QUESTIONS)](x)

    def loads(self, turn):
        data = torch.utils.data.TensorDataset(torch.arange(24.0).view(12, 2))
        loader = torch.utils.data.DataLoader(data, batch_size=4)
        spec = spmdx.data.ShardingSpec(self.mesh, ("data",))
        batches = spmdx.data.device_loader(loader, input_sharding=spec)
        assert sum(x.sum().item() for (x,) in batches) == 276


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    faulthandler.dump_traceback_later(options.seconds + 60, exit=True)  # it hangs
    warnings.simplefilter("ignore")
    spmdx.runtime.set_device_count(4)
    hammer = Hammer(options.seconds)
    hammer.run(hammer.trains, hammer.asks, hammer.loads, hammer.optimises, hammer.logs)
    if hammer.errors:
        raise hammer.errors[0]
    print(hammer.turns)


if __name__ == "__main__":
    main()
