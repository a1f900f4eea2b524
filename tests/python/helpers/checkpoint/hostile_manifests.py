# SPDX-License-Identifier: Apache-2.0
"""Manifests that somebody made up, with checksums that fit, by what is wrong with them."""

import json

from hostile_made import BODY, MANIFEST, PLAIN, sealed


def manifest(change):
    """A forged manifest."""

    def write(path):
        body = json.loads(BODY)["manifest"]
        text = change(body)
        (path / MANIFEST).write_text(sealed(body if text is None else text))

    return write


def entry(name, *where):
    """A manifest in which one value of an entry, found by indices, is another."""
    *places, last, value = where

    def change(body):
        node = body["entries"][name]
        for place in places:
            node = node[place]
        node[last] = value

    return manifest(change)


def extra(name, path, like="o.param_groups.0.params"):
    def change(body):
        body["entries"][name] = [path, *body["entries"][like][1:]]

    return manifest(change)


def tensor_of(shape, *boxes):
    """The entry w with another shape and boxes, all in the place of the first."""

    def change(body):
        place = body["entries"]["w"][3][0][2:]
        body["entries"]["w"][2:] = [shape, [[*box, *place] for box in boxes]]

    return manifest(change)


def text(make):
    """A manifest of any text."""
    return manifest(lambda body: make(json.dumps(body)))


def swap_places(body):
    w = body["entries"]["w"][3]
    w[0][2:], w[1][2:] = w[1][2:], w[0][2:]


def swap_entries(body):
    entries = body["entries"]
    one, other = "o.param_groups.0.lr", "o.param_groups.0.momentum"
    entries[one][3], entries[other][3] = entries[other][3], entries[one][3]


def boxes(count):
    return [[[i, 0], [1, 2**40]] for i in range(count)]


SHAPE = [2**62, 2**62]
MANIFESTS = {
    "no chunks of a value": entry("n", 3, []),
    "a start that is a text": entry("w", 3, 0, 3, "x"),
    "a length that is a text": entry("w", 3, 0, 4, "x"),
    "no start": entry("w", 3, 0, 3, None),
    "no checksum": entry("w", 3, 0, 5, None),
    "a negative start": entry("w", 3, 0, 3, -1),
    "a start behind the end": entry("w", 3, 0, 3, 10**9),
    "a huge length": entry("w", 3, 0, 4, 10**18),
    "a huge number": entry("w", 3, 0, 4, 10**4000),
    "true for a number": entry("w", 3, 0, 3, True),
    "a fraction": entry("w", 3, 0, 4, 1.5),
    "more dims than the shape": entry("w", 3, 0, 0, [0, 0, 0]),
    "a negative offset": entry("w", 3, 0, 0, [-1, 0]),
    "a box outside": entry("w", 3, 0, 0, [4, 0]),
    "a chunk twice": manifest(lambda b: b["entries"]["w"][3].append(b["entries"]["w"][3][0])),
    "a chunk for another": manifest(
        lambda b: b["entries"]["w"][3].__setitem__(1, b["entries"]["w"][3][0])
    ),
    "a chunk less": manifest(lambda b: b["entries"]["w"][3].pop(1) and None),
    "chunks that changed places": manifest(swap_places),
    "values that changed places": manifest(swap_entries),
    "an entry under another name": manifest(
        lambda b: b["entries"].__setitem__("v", b["entries"].pop("w"))
    ),
    "an entry that is null": manifest(lambda b: b["entries"].__setitem__("w", None)),
    "an entry of three": manifest(lambda b: b["entries"]["w"].pop() and None),
    "entries in a list": manifest(lambda b: b.__setitem__("entries", [])),
    "no entries": manifest(lambda b: b.pop("entries") and None),
    "no files": manifest(lambda b: b.__setitem__("files", {})),
    "another format": manifest(lambda b: b.__setitem__("format", 3)),
    "a format in a list": manifest(lambda b: b.__setitem__("format", [1])),
    "another dtype": entry("w", 1, "int32"),
    "no dtype": entry("w", 1, None),
    "a module for a dtype": entry("w", 1, "nn"),
    "a dtype in a list": entry("w", 1, ["float32"]),
    "an integer in a path": entry("w", 0, [3]),
    "a path of nothing": entry("w", 0, []),
    "a path of objects": entry("w", 0, [{}]),
    "a huge path": extra(".".join("x" * 10**5), ["x"] * 10**5),
    "a place in a list far behind": extra(
        f"o.param_groups.{10**8}.x", ["o", "param_groups", 10**8, "x"]
    ),
    "a place further behind": extra(
        f"o.param_groups.{10**11}.x", ["o", "param_groups", 10**11, "x"]
    ),
    "a place in a list within": extra(
        f"o.param_groups.0.y.{10**9}", ["o", "param_groups", 0, "y", 10**9]
    ),
    "a group with a name": extra("o.param_groups.x.y", ["o", "param_groups", "x", "y"]),
    "an optimizer that is a value": extra("o", ["o"]),
    "a state that is a value": extra("o.state", ["o", "state"]),
    "a state of another parameter": extra("o.state.7.x", ["o", "state", "7", "x"]),
    "no parameters": manifest(lambda b: b["entries"].pop("o.param_groups.0.params") and None),
    "no groups": manifest(
        lambda b: [b["entries"].pop(n) for n in list(b["entries"]) if "groups" in n] and None
    ),
    "a huge shape": tensor_of(SHAPE, [[0, 0], SHAPE]),
    "a huge shape of nothing": tensor_of([0, *SHAPE], [[0, 0, 0], [0, *SHAPE]]),
    "a large box of few bytes": tensor_of([10**6, 10**6], [[0, 0], [10**6, 10**6]]),
    "rows of few bytes": tensor_of([5000, 2**40], *boxes(5000)),
    "many small boxes": tensor_of([8000], *([[i], [1]] for i in range(8000))),
    "dims without end": tensor_of([1] * 10**4, [[0] * 10**4, [1] * 10**4]),
    "a file elsewhere": entry("w", 3, 0, 2, "../plain/__0_0.distcp"),
    "a file by its full name": entry("w", 3, 0, 2, str(PLAIN / "__0_0.distcp")),
    "a file above": manifest(lambda b: b["files"].__setitem__("..", [0, None])),
    "a file in a list": entry("w", 3, 0, 2, ["__0_0.distcp"]),
    "a file of no size": manifest(lambda b: b["files"].__setitem__("__0_0.distcp", ["x", None])),
    "NaN": text(lambda t: t.replace('"format": 2', '"format": NaN')),
    "Infinity": text(lambda t: t.replace('"format": 2', '"format": -Infinity')),
    "a name twice": text(lambda t: t.replace('"format": 2', '"format": 2, "format": 2')),
    "an entry twice": text(lambda t: t.replace('"n": [', '"w": [', 1)),
    "deep lists": text(lambda t: "{" + '"entries": ' + "[" * 10**5 + "]" * 10**5 + "}"),
    "deep objects": text(lambda t: '{"a":' * 10**5 + "1" + "}" * 10**5),
    "many small lists": text(lambda t: '{"entries": [' + "[]," * (5 * 10**7) + "[]]}"),
    "long numbers": text(lambda t: t.replace('"format": 2', '"format": ' + "9" * 10**6)),
}
