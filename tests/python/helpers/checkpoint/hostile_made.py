# SPDX-License-Identifier: Apache-2.0
"""Sound checkpoints in the folder that the program was given, from which others are made up."""

import json
import sys
import warnings
import zlib
from pathlib import Path

import spmdx
import torch
import torch.distributed.checkpoint as dcp

FOLDER = Path(sys.argv[1])
MANIFEST = "spmdx.manifest.json"
INDEX = "model.safetensors.index.json"


def sealed(body):
    """A manifest with a checksum that fits; ``body`` is JSON, or its text."""
    text = body if isinstance(body, str) else json.dumps(body)
    return f'{{"crc32": {zlib.crc32(text.encode())}, "manifest": {text}}}\n'


def made():
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.5)
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    w = torch.arange(16.0).reshape(4, 4).to("spmdx")
    spmdx.mark_sharding(w, spmdx.Mesh(range(4), (4,), ("a",)), ("a", None))
    return {"w": w, "n": 1, "o": optimizer}


def fresh():
    return {
        "w": torch.zeros(4, 4),
        "n": 0,
        "o": torch.optim.SGD(torch.nn.Linear(4, 4).parameters()),
    }


GOOD = FOLDER / "good"
spmdx.checkpoint.save(made(), GOOD)
BODY = (GOOD / MANIFEST).read_text()
PLAIN = FOLDER / "plain"
warnings.simplefilter("ignore")
dcp.save({"w": torch.arange(16.0).reshape(4, 4), "n": 1}, checkpoint_id=PLAIN)
META = (PLAIN / ".metadata").read_bytes()
