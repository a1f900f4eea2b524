# SPDX-License-Identifier: Apache-2.0
"""Trains and saves after every step; one process is killed or stopped at a point that is drawn.

    fault_injection.py FOLDER UNTIL [CASE]

It goes on from the checkpoint in FOLDER, if there is one, until step UNTIL. CASE is JSON: point,
process and signal, a seed, and how many events there are to choose from.
"""

import atexit
import contextlib
import hashlib
import json
import os
import pathlib
import random
import sys
import threading
import time

FOLDER = pathlib.Path(sys.argv[1])
UNTIL = int(sys.argv[2])
HERE = int(os.environ["RANK"])
BACKGROUND = "during a save in the background"
FILES = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.listdir", "os.scandir"}


class Trouble:
    """What happens to this process, if it is the one."""

    def __init__(self, case):
        mine = case.get("victim") == HERE
        self.point = case["point"] if mine else ""
        self.signal = case.get("signal", 0)
        self.random = random.Random(json.dumps(case))
        self.step = self.random.randrange(1, UNTIL)  # where a step matters
        self.events = case.get("events", {})
        self.count, self.counting, self.fatal = 0, "", -1
        sys.addaudithook(self._heard)

    def strike(self):
        (FOLDER / "struck").write_text(str(time.monotonic()))
        os.kill(os.getpid(), self.signal)

    def at(self, point, here=True):
        if here and self.point == point:
            self.point = ""
            self.strike()

    def soon(self, point, most, here=True):
        """Within ``most`` seconds."""
        if not here or self.point != point:
            return
        self.point, delay = "", self.random.uniform(0, most)

        def wait():
            time.sleep(delay)
            self.strike()

        threading.Thread(target=wait, daemon=True).start()

    @contextlib.contextmanager
    def among(self, point, heard, here=True):
        """At one of the events within; prints how many there were."""
        if here and self.point == point:
            self.fatal = self.random.randrange(self.events[point][HERE])
        self.count, self.counting = 0, heard
        yield
        self.counting, self.fatal = "", -1
        print("events", point, self.count, flush=True)

    def _heard(self, event, arguments):
        if event not in self.counting or not self.counting:
            return
        if event == "import" and not str(arguments[0]).startswith("spmdx"):
            return
        self.count += 1
        if self.count - 1 == self.fatal:
            self.strike()


case = json.loads(sys.argv[3]) if len(sys.argv) > 3 else {}
trouble = Trouble(case)
where = trouble.random.choice(("main", "before", "after"))
atexit.register(lambda: trouble.at("shutdown", where == "after"))
with trouble.among("import", {"import"}):
    import spmdx
import torch  # noqa: E402


@torch.library.custom_op("fault_injection::pass_on", mutates_args=())
def pass_on(x: torch.Tensor) -> torch.Tensor:
    trouble.soon("first collective", 0.005)
    trouble.soon("collective", 0.01, step == trouble.step)
    return x.clone()


pass_on.register_fake(torch.empty_like)
spmdx.register_rule("fault_injection::pass_on", "*->*")


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(64, 48)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(48, 48) for _ in range(3))

    def forward(self, index):
        x = self.table(index)
        x = x + (torch.ops.fault_injection.pass_on(x.detach()) - x.detach())
        for at, layer in enumerate(self.layers):
            trouble.at("tracing", at == trouble.step % 3 and step == trouble.step)
            x = x + torch.nn.functional.dropout(torch.nn.functional.gelu(layer(x)), 0.2)
        return x.square().mean()


def digest(model):
    together = hashlib.sha256()
    for value in model.state_dict().values():
        together.update(value.cpu().numpy().tobytes())
    return together.hexdigest()


def save():
    """In the background only if trouble is to come then; it comes at any time of the save."""
    global took, saving
    for point in ("during a save", BACKGROUND):
        trouble.soon(point, 1.5 * took, step == trouble.step)
    began = time.monotonic()
    if case.get("point") == BACKGROUND:
        last, saving = saving, (spmdx.checkpoint.async_save(state, FOLDER / "c"), step)
        if last is not None:  # it was waited for
            print("saved", last[1], flush=True)
        if step < trouble.step:
            saving[0].result()
    else:
        with trouble.among("saving", FILES, step == trouble.step):
            spmdx.checkpoint.save(state, FOLDER / "c")
        print("saved", step, flush=True)
    took = time.monotonic() - began


trouble.soon("rendezvous", 0.2)
mesh = spmdx.get_1d_mesh("data")
trouble.at("mesh")
torch.manual_seed(0)
model = Model().to("spmdx")
for parameter in list(model.parameters()):
    spmdx.mark_sharding(parameter, mesh, ("data", *[None] * (parameter.dim() - 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
rng = spmdx.checkpoint.rng_state()
state = {"model": model, "optimizer": optimizer, "rng": rng, "step": 0}
took, saving = 0.05, None  # seconds of the last save; one that runs, and of which step
step = 0
if (FOLDER / "c").exists():
    with trouble.among("loading", FILES):
        spmdx.checkpoint.load(state, FOLDER / "c")
    step = state["step"]
    print("resumed", step, flush=True)
while step < UNTIL:
    trouble.at("between steps", step == trouble.step)
    draw = torch.Generator().manual_seed(step)
    index = torch.randint(64, (24, 16), generator=draw).to("spmdx")
    loss = model(spmdx.mark_sharding(index, mesh, ("data", None)))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    trouble.soon("compiling", 0.1)
    print("step", step, loss.item().hex(), flush=True)
    step += 1
    state["step"] = step
    save()
if saving is not None:
    saving[0].result()
    print("saved", saving[1], flush=True)
print("natives", spmdx.debug.counters()["native_collectives"])
print("end", digest(model), flush=True)
trouble.at("shutdown", where == "main")
atexit.register(lambda: trouble.at("shutdown", where == "before"))
