# SPDX-License-Identifier: Apache-2.0
"""Loads files that somebody made up, in a process that is measured: hostile.py FOLDER.

The last line it prints is JSON: what each load raised, its seconds, MiB by which memory grew, and
whether the state is what it was.
"""

import io
import json
import os
import pickle
import struct
import time
import zipfile
import zlib
from pathlib import Path

import spmdx
import torch
from hostile_made import BODY, FOLDER, GOOD, INDEX, MANIFEST, META, PLAIN, fresh, sealed
from hostile_manifests import MANIFESTS
from safetensors.torch import save_file


def pickled(*parts):
    content = b"".join(parts)
    return lambda path: (path / ".metadata").write_bytes(content)


def doubled(begin, step, count=40):
    """A value that is made of the one before, twice, again and again."""
    parts = [b"\x80\x04", begin, b"\x94"]
    for i in range(count):
        parts.append(step(bytes([i])) + b"\x94")
    return parts


def get(at):
    return b"h" + at


JOIN = b"cpathlib\nPosixPath\n\x940\x8c\x40" + b"a" * 64 + b"\x940"
RECORD = b"ctorch.distributed.checkpoint.metadata\n"


def path_bomb():
    data = b"\x80\x04" + JOIN
    for i in range(1, 40):
        data += b"h\0h" + bytes([i]) + b"h" + bytes([i]) + b"\x86R\x940"
    return pickled(data, b"h\x19.")


def key_bomb():
    return pickled(
        *doubled(b")", lambda i: get(i) + get(i) + b"\x86"), b"}", get(bytes([40])), b"Ns."
    )


def key_of_records():
    """An index whose name is an index, twice, and so on: hashing it would not end."""
    data, at = b"\x80\x04" + RECORD + b"MetadataIndex\n\x94\x8c\x01x\x94", 1
    for _ in range(40):
        name = get(bytes([at]))
        data += b"h\0)\x81}(\x8c\x03fqn" + name + b"\x8c\x06offset" + name + b"ub\x94"
        at += 1
    return pickled(data, b"}", get(bytes([at])), b"Ns.")


def changed(change):
    def write(path):
        metadata = pickle.loads(META)
        change(metadata)
        (path / ".metadata").write_bytes(pickle.dumps(metadata))

    return write


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def chunks_of(metadata):
    return metadata.state_dict_metadata["w"].chunks


METADATA = {
    "paths that double": path_bomb(),
    "tuples that double": key_bomb(),
    "records that double": key_of_records(),
    "lists that double": pickled(*doubled(b"]", lambda i: b"](" + get(i) + get(i) + b"e"), b"."),
    "deep lists": pickled(b"\x80\x04", b"]" * 500000, b"a" * 499999, b"."),
    "deep tuples": pickled(b"\x80\x04", b")", b"\x85" * 500000, b"."),
    "many lists": pickled(b"\x80\x04(", b"]" * (2 * 10**7), b"l."),
    "bytes that are not there": pickled(b"\x80\x05\x96", struct.pack("<Q", 2**40), b"."),
    "a text that is not there": pickled(b"\x80\x04\x8d", struct.pack("<Q", 2**40), b"."),
    "a number that is not there": pickled(b"\x80\x04\x8b", struct.pack("<i", 2**30), b"."),
    "a frame that is not there": pickled(b"\x80\x04\x95", struct.pack("<Q", 2**40), b"."),
    "a place in the memo": pickled(b"\x80\x04Nr", struct.pack("<I", 2**31), b"."),
    "a long number": pickled(b"\x80\x04\x8a\xff" + b"\x7f" * 255, b"."),
    "a long number as a size": changed(lambda m: vars(chunks_of(m)[0]).update(sizes=[10**300, 4])),
    "texts as sizes": changed(lambda m: vars(chunks_of(m)[0]).update(sizes="x" * 10**6)),
    "lists as sizes": changed(lambda m: vars(chunks_of(m)[0]).update(sizes=[nested(90)] * 2)),
    "no chunks": changed(lambda m: chunks_of(m).clear()),
    "a huge shape": changed(lambda m: vars(m.state_dict_metadata["w"]).update(size=[2**62] * 2)),
    "no places": changed(lambda m: vars(m).update(storage_data=None)),
    "places of nothing": changed(lambda m: m.storage_data.update(dict.fromkeys(m.storage_data))),
    "data of no planner": changed(lambda m: vars(m).update(planner_data="w")),
    "a path far behind": changed(lambda m: m.planner_data.update(w=("o", -1))),
    "a file elsewhere": changed(
        lambda m: [
            vars(p).update(relative_path="../good/__0_0.distcp") for p in m.storage_data.values()
        ]
    ),
}


def value(make):
    """The value n is a zip file that somebody made; all checksums fit."""

    def write(path):
        body = json.loads(BODY)["manifest"]
        chunk = body["entries"]["n"][3][0]
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as parts:
            make(parts)
        seed = zlib.crc32(json.dumps(["n", [], []]).encode())
        content = (path / chunk[2]).read_bytes() + stream.getvalue()
        (path / chunk[2]).write_bytes(content)
        length = len(stream.getvalue())
        chunk[3:] = [len(content) - length, length, zlib.crc32(stream.getvalue(), seed)]
        body["files"][chunk[2]][0] = len(content)
        (path / MANIFEST).write_text(sealed(body))

    return write


def array_of(size):
    """A pickle of a bytearray that is made of a size."""

    def make(parts):
        data = b"\x80\x02c__builtin__\nbytearray\nq\0" + size + b"\x85Rq\x01."
        parts.writestr("archive/data.pkl", data)
        parts.writestr("archive/version", b"3\n")

    return make


def packed(parts):
    parts.writestr("archive/version", b"3\n")
    text = b"X" + struct.pack("<i", 2**30 - 1) + b"a" * (2**30 - 1)
    data = b"\x80\x02" + text + b"."
    parts.writestr("archive/data.pkl", data, zipfile.ZIP_DEFLATED, 1)


VALUES = {
    "an array of a size": value(array_of(b"J\0\0\0\x40")),
    "an array of a long size": value(array_of(b"\x8a\x05\0\0\0\0\x10")),
    "a packed text": value(packed),
    "no zip file": value(lambda parts: None),
    "a zip file of nothing": value(lambda parts: parts.writestr("archive/version", b"3\n")),
}


def linked(kind):
    """A file of the checkpoint is a link to a sound one elsewhere, or a pipe."""

    def write(path, name):
        content = FOLDER / f"elsewhere {path.name} {name}"
        content.write_bytes((path / name).read_bytes())
        (path / name).unlink()
        if kind == "link":
            (path / name).symlink_to(content)
        else:
            os.mkfifo(path / name)

    return write


LINKS = {
    f"{kind} for {name} of {of.name}": (of, lambda path, k=kind, n=name: linked(k)(path, n))
    for kind in ("link", "pipe")
    for of, names in (
        (GOOD, ("__0_0.distcp", ".metadata", MANIFEST)),
        (PLAIN, (".metadata", "__0_0.distcp")),
    )
    for name in names
}


def header(text, size=None, data=64):
    content = text.encode()
    return (len(content) if size is None else size).to_bytes(8, "little") + content + bytes(data)


def tensors_file(content):
    return lambda path: (path / "model.safetensors").write_bytes(content)


def index(weights):
    text = weights if isinstance(weights, str) else json.dumps({"weight_map": weights})
    return lambda path: (path / INDEX).write_text(text)


ENTRY = '{"dtype":"F32","shape":%s,"data_offsets":%s}'
SAFE = {
    "a file above": index({"w": "../secret.safetensors"}),
    "a file by its full name": index({"w": str(FOLDER / "secret.safetensors")}),
    "a file below": index({"w": "x/../../secret.safetensors"}),
    "no name": index({"w": ""}),
    "a number for a file": index({"w": 7}),
    "a list for a file": index({"w": ["model.safetensors"]}),
    "a list for the map": index(["model.safetensors"]),
    "deep lists in the index": index("[" * 10**5),
    "NaN in the index": index('{"weight_map": NaN}'),
    "a name twice in the index": index('{"weight_map": {}, "weight_map": {}}'),
    "many lists in the index": index('{"weight_map": [' + "[]," * (4 * 10**7) + "[]]}"),
    "a header longer than the file": tensors_file(header("{}", 2**62)),
    "a header of 90 MB": tensors_file(header("{" + " " * (90 << 20) + "}")),
    "deep lists in the header": tensors_file(header('{"w":' + "[" * 10**5)),
    "a huge shape": tensors_file(header('{"w":' + ENTRY % ([2**62] * 2, [0, 64]) + "}")),
    "a huge shape of nothing": tensors_file(
        header('{"w":' + ENTRY % ([0] + [2**62] * 3, [0, 0]) + "}")
    ),
    "negative places": tensors_file(header('{"w":' + ENTRY % ([4, 4], [-64, 0]) + "}")),
    "places behind the end": tensors_file(header('{"w":' + ENTRY % ([4, 4], [64, 128]) + "}")),
    "many small tensors": tensors_file(
        header(
            '{"w":'
            + ENTRY % ([3, 3], [0, 36])
            + "".join(f',"{i}":' + ENTRY % ([0], [0, 0]) for i in range(200000))
            + "}",
            data=36,
        )
    ),
}


def memory(key):
    """MiB: VmRSS now, VmHWM at most since it was asked for by writing to clear_refs."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(key)).split()[1]) >> 10


def attempt(write, good, load, results, name):
    path = FOLDER / "forged"
    path.mkdir()
    for file in good.iterdir() if good else ():
        (path / file.name).write_bytes(file.read_bytes())
    write(path)
    state = fresh()
    before = json.dumps([state["w"].tolist(), state["n"], state["o"].state_dict()], default=str)
    Path("/proc/self/clear_refs").write_text("5")
    held, began, raised = memory("VmRSS"), time.process_time(), "nothing"
    try:
        load(state, path)
    except Exception as error:
        raised = f"{type(error).__name__}: {str(error)[:300]}"
    after = json.dumps([state["w"].tolist(), state["n"], state["o"].state_dict()], default=str)
    results[name] = [raised, time.process_time() - began, memory("VmHWM") - held, before == after]
    for file in path.iterdir():
        file.unlink()
    path.rmdir()


def load(state, path):
    spmdx.checkpoint.load(state, path, strict=False)


def load_tensors(state, path):
    spmdx.checkpoint.load_safetensors({"w": state["w"]}, path, strict=False)


def main():
    save_file({"w": torch.ones(4, 4)}, FOLDER / "secret.safetensors")
    state = fresh()
    load(state, GOOD)
    load({"w": torch.zeros(4, 4), "n": 0}, PLAIN)
    results = {}
    for name, write in MANIFESTS.items():
        attempt(write, GOOD, load, results, f"manifest: {name}")
    for name, write in METADATA.items():
        attempt(write, PLAIN, load, results, f"metadata: {name}")
    for name, write in VALUES.items():
        attempt(write, GOOD, load, results, f"value: {name}")
    for name, (good, write) in LINKS.items():
        attempt(write, good, load, results, name)
    for name, write in SAFE.items():
        attempt(write, None, load_tensors, results, f"safetensors: {name}")
    print(json.dumps(results))


if __name__ == "__main__":
    main()
