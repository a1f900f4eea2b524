# SPDX-License-Identifier: Apache-2.0
"""Damages the files of small checkpoints; a load must refuse them or give every bit.

Run by itself it tries more:
python tests/python/helpers/checkpoint/checkpoint_damage.py --count 5000
"""

import argparse
import collections
import copy
import json
import random
import resource
import shutil
import sys
import tempfile
import time
import warnings
import zlib
from pathlib import Path

import spmdx
import torch
import torch.distributed.checkpoint as dcp
from checkpoints import LAYOUTS, MESHES, bits, placed, values

MANIFEST = "spmdx.manifest.json"
REST = {"step": 7, "rates": [0.5, 0.25], "name": "run"}


def flip(file, draw, others):
    content = bytearray(file.read_bytes())
    bit = draw.randrange(8 * len(content))
    content[bit // 8] ^= 1 << bit % 8
    file.write_bytes(content)
    return f"bit {bit} of {len(content)} bytes"


def cut(file, draw, others):
    length = draw.randrange(file.stat().st_size)
    file.write_bytes(file.read_bytes()[:length])
    return f"cut to {length}"


def extend(file, draw, others):
    file.write_bytes(file.read_bytes() + draw.randbytes(draw.randint(1, 100)))
    return "extended"


def blank(file, draw, others):
    content = bytearray(file.read_bytes())
    start = draw.randrange(len(content))
    content[start : start + 64] = bytes(len(content[start : start + 64]))
    file.write_bytes(content)
    return f"zeros from {start}"


def delete(file, draw, others):
    file.unlink()
    return "deleted"


def swap(file, draw, others):
    other = draw.choice(sorted(f for f in file.parent.iterdir() if f != file))
    mine = file.read_bytes()
    file.write_bytes(other.read_bytes())
    other.write_bytes(mine)
    return f"swapped with {other.name}"


def replace(file, draw, others):
    other = draw.choice(others) / file.name
    file.write_bytes(other.read_bytes())
    return f"that of {other.parent.name}"


ANY = (cut, extend, blank, delete, swap, replace)
ODD = (None, True, -1, 0, 1, 2**63, 10**30, 0.5, "", "w", "..", "__0_0.distcp", [], [0], {}, "int8")


def nodes(value, found):
    """Every place in JSON: (container, key)."""
    for key in value if isinstance(value, dict) else range(len(value)):
        found.append((value, key))
        if isinstance(value[key], dict | list):
            nodes(value[key], found)
    return found


def put_in(container, key, value):
    if isinstance(container, list):
        container.insert(key, value)
    else:
        container[str(value)[:9]] = value


def mutate(body, draw):
    """Change one place in the manifest."""
    (container, key), (other, its) = draw.choices(nodes(body, []), k=2)
    way = draw.choice(("odd", "odd", "near", "delete", "copy", "swap", "add", "rename"))
    if way == "near" and type(container[key]) is int:
        container[key] += draw.choice((-1, 1, 8))
    elif way == "delete":
        del container[key]
    elif way == "copy":
        container[key] = copy.deepcopy(other[its])
    elif way == "swap":
        container[key], other[its] = copy.deepcopy(other[its]), copy.deepcopy(container[key])
    elif way == "add":
        put_in(container, key, copy.deepcopy(other[its]))
    elif way == "rename" and isinstance(container, dict):
        container[f"{key}{draw.choice(('', 'x', '.0'))}"] = container.pop(key)
    else:
        container[key] = draw.choice(ODD)
    return f"{way} at {key}"


def swap_chunks(body, draw):
    """Two chunks of the same kind of entry change places: the bytes are there, but not theirs."""
    chunks = [chunk for entry in body["entries"].values() for chunk in entry[3]]
    one, other = draw.choices(chunks, k=2)
    one[2:], other[2:] = other[2:], one[2:]
    return "swapped chunks"


def double_box(body, draw):
    """A box is written twice, and another one by nobody."""
    chunks = draw.choice(list(body["entries"].values()))[3]
    if chunks:
        chunks[draw.randrange(len(chunks))] = copy.deepcopy(draw.choice(chunks))
    return "a box twice"


def forge(file, draw, others):
    """The manifest says something else, and its checksum fits."""
    path = file.parent / MANIFEST
    body = json.loads(path.read_text())["manifest"]
    change = draw.choice((mutate, mutate, mutate, swap_chunks, double_box))
    did = [change(body, draw) for _ in range(draw.randint(1, 2))]
    text = json.dumps(body)
    path.write_text(f'{{"crc32": {zlib.crc32(text.encode())}, "manifest": {text}}}\n')
    return ", ".join(did)


def make(folder):
    """Checkpoints of two sets of values and several layouts; {path: what is in it}."""
    made = {}
    for seed in (0, 1):
        for devices, layout in ((8, "2-D"), (3, "dim 0"), (1, "replicated")):
            path = folder / f"{seed} {devices}"
            spmdx.checkpoint.save({**placed(values(seed), layout, devices), **REST}, path)
            made[path] = values(seed)
    return made


def make_theirs(folder):
    """One that torch.distributed.checkpoint wrote: it has no manifest."""
    path = folder / "theirs"
    dcp.save({**placed(values(0), "2-D", 8), **REST}, checkpoint_id=path)
    return {path: values(0)}


def peak():
    """MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def outcome(path, expected, draw):
    """What a load of ``path`` does: "refused" or "equal"; or what is wrong with it."""
    layout, devices = draw.choice(list(LAYOUTS)), draw.choice(list(MESHES))
    tensors = placed(expected, layout, devices, like=True)
    before = {name: bits(t) for name, t in tensors.items()}
    state = {**tensors, "step": 0, "rates": [], "name": ""}
    began, held = time.process_time(), peak()
    try:
        spmdx.checkpoint.load(state, path)
    except spmdx.checkpoint.CheckpointError as error:
        same = all(bits(t) == before[name] for name, t in tensors.items()) and state["step"] == 0
        clear = str(path) in str(error) and "Expected" in str(error)
        return "refused" if same and clear else f"refused, but changed or unclear: {error}"
    except Exception as error:
        return f"raised {type(error).__name__}: {error}"
    finally:
        cost = f"{time.process_time() - began:.0f} s, {peak() - held} MiB"
        assert time.process_time() - began < 10 and peak() - held < 512, cost
    same = all(bits(t) == bits(expected[name]) for name, t in tensors.items())
    return "equal" if same and state.items() >= REST.items() else "other values without a word"


def trial(seed, made, ways):
    """(outcome, what was done) of one damage."""
    draw = random.Random(seed)
    path = draw.choice(sorted(made))
    file = draw.choice(sorted(path.iterdir()))
    kept = {f: f.read_bytes() for f in path.iterdir()}
    others = [p for p in made if p != path and (p / file.name).exists()]
    way = draw.choice([w for w in ways if others or w is not replace])
    did = way(file, draw, others)
    result = outcome(path, made[path], draw)
    for file_kept, content in kept.items():
        file_kept.write_bytes(content)
    return result, f"seed {seed}: {path.name}/{file.name}: {did}"


def trials(count, made, ways=(flip,), first=0):
    """({outcome: how many}, [what was wrong])."""
    counts, wrong = collections.Counter(), []
    for seed in range(first, first + count):
        result, did = trial(seed, made, ways)
        counts[result if result in ("refused", "equal") else "wrong"] += 1
        if result not in ("refused", "equal"):
            wrong.append(f"{did}: {result}")
    return counts, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5000, help="bits that are flipped")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    spmdx.runtime.set_device_count(8)
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp())
    failed = False
    for name, made, ways, count in (
        ("bits", make(folder), (flip,), options.count),
        ("files", make(folder), ANY, options.count // 5),
        ("forged manifests", make(folder / "again"), (forge,), 2 * options.count // 5),
        ("bits, without a manifest", make_theirs(folder), (flip,), options.count // 5),
    ):
        counts, wrong = trials(count, made, ways, options.first)
        print(f"{name}: {counts['refused']} refused, {counts['equal']} equal, {len(wrong)} wrong")
        print(*wrong[:20], sep="\n", end="\n" if wrong else "")
        failed = failed or bool(wrong)
    shutil.rmtree(folder)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
