# SPDX-License-Identifier: Apache-2.0
"""Loads FOLDER/big in all processes; prints the bytes that this one read, holds, and grew by.

pretrained_load.py FOLDER: holds "small" as well, which is loaded first, as a first call compiles.
"""

import ctypes
import json
import re
import sys

import spmdx
import torch
import transformers
from spmdx._integrations.pretrained.parts import Stored
from spmdx.integrations.pretrained import from_pretrained

READ = [0]
read_stored = Stored.read


def counted(self, index, target):
    read_stored(self, index, target)
    READ[0] += target.nbytes


def status(key):
    return int(re.search(key + r":\s+(\d+)", open("/proc/self/status").read())[1]) * 1024


def main(folder):
    ctypes.CDLL(None).mallopt(-3, 1 << 16)  # M_MMAP_THRESHOLD: what is freed is given back
    mesh = spmdx.get_1d_mesh("model")
    auto = transformers.AutoModelForCausalLM
    from_pretrained(auto, f"{folder}/small", mesh)
    Stored.read = counted
    open("/proc/self/clear_refs", "w").write("5")
    before = status("VmRSS")
    model = from_pretrained(auto, f"{folder}/big", mesh)
    grown = status("VmHWM") - before
    held = sum(map(own, model.parameters()))
    with torch.no_grad():
        total = model(torch.arange(16).view(2, 8).to("spmdx")).logits.double().sum().item()
    print(json.dumps({"read": READ[0], "held": held, "grown": grown, "sum": total}))


def own(parameter):
    """Bytes that this process holds of it: devices that hold the same share one shard."""
    if spmdx.get_annotation(parameter) is None:
        return parameter.nbytes
    shards = parameter.local_shards
    return sum({s.data.data_ptr(): s.data.nbytes for s in shards}.values())


if __name__ == "__main__":
    main(sys.argv[1])
