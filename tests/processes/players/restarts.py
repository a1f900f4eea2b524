# SPDX-License-Identifier: Apache-2.0
"""Trains with a checkpoint after every step, under a launcher that starts it again when it dies.

    restarts.py FOLDER UNTIL

In FOLDER, ``strikes`` holds a line for each attempt that is to be struck: the process, and the
seconds after which it kills itself, counted from the start of its program or, with ``+N:``, from
the start of the attempt's Nth step.
"""

import hashlib
import os
import pathlib
import signal
import sys
import threading
import time

FOLDER, UNTIL = pathlib.Path(sys.argv[1]), int(sys.argv[2])
ATTEMPT, HERE = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")), int(os.environ["RANK"])


def say(*words) -> None:
    """One line in one write: the processes share an output that nobody buffers."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def strikes() -> tuple[int, str]:
    lines = (FOLDER / "strikes").read_text().splitlines() if (FOLDER / "strikes").exists() else []
    if ATTEMPT >= len(lines):
        return -1, "0"
    process, delay = lines[ATTEMPT].split()
    return int(process), delay


def strike_after(seconds: float) -> None:
    def strike() -> None:
        time.sleep(seconds)
        with open(FOLDER / "struck", "a") as file:
            file.write(f"{ATTEMPT}\n")
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=strike, daemon=True).start()


victim, delay = strikes()
if victim == HERE and not delay.startswith("+"):
    strike_after(float(delay))

import spmdx  # noqa: E402
import torch  # noqa: E402

mesh = spmdx.get_1d_mesh("data")
torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Dropout(0.2), torch.nn.Linear(32, 16)
).to("spmdx")
spmdx.fully_shard(model, mesh, axis="data")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
rng = spmdx.checkpoint.rng_state()
state = {"model": model, "optimizer": optimizer, "rng": rng, "step": 0}
if (FOLDER / "c").exists():
    spmdx.checkpoint.load(state, FOLDER / "c")
say("attempt", ATTEMPT, "from", state["step"])
begun = state["step"]
for step in range(begun, UNTIL):
    if victim == HERE and delay.startswith(f"+{step - begun}:"):
        strike_after(float(delay.split(":")[1]))
    draw = torch.Generator().manual_seed(step)
    batch = torch.randn(24, 16, generator=draw).to("spmdx")
    loss = (model(spmdx.mark_sharding(batch, mesh, ("data", None))) - 1).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    say("step", step, loss.item().hex())
    state["step"] = step + 1
    spmdx.checkpoint.save(state, FOLDER / "c")
together = hashlib.sha256()
for value in model.state_dict().values():
    together.update(value.cpu().numpy().tobytes())
say("end", together.hexdigest())
