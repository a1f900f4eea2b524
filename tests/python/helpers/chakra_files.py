# SPDX-License-Identifier: Apache-2.0
"""Execution traces in files: read without the classes that wrote them, and replayed."""

import dataclasses
import json

from google.protobuf import empty_pb2, proto, unknown_fields

# Numbers of fields, as the schema of MLCommons Chakra has them.
NODE = {1: "id", 2: "name", 3: "type", 4: "ctrl_deps", 5: "data_deps", 7: "micros", 10: "attr"}
VALUES = {7: int, 9: int, 13: int, 27: bool, 29: lambda text: text.decode()}
COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7


@dataclasses.dataclass
class TraceNode:
    """A node of a file; ``told`` are its attributes by name."""

    id: int
    name: str
    type: int
    micros: int
    ctrl_deps: list[int]
    data_deps: list[int]
    told: dict[str, object]

    @property
    def deps(self):
        return {*self.ctrl_deps, *self.data_deps}

    @property
    def key(self):
        """What both ends of a message have in common."""
        return self.told["comm_src"], self.told["comm_dst"], self.told["comm_tag"]


def fields(message):
    """All fields of a message by number; a list each."""
    found = {}
    for field in unknown_fields.UnknownFieldSet(message):
        found.setdefault(field.field_number, []).append(field.data)
    return found


def messages(path):
    """The messages of a file, each as its fields."""
    with path.open("rb") as file:
        while (one := proto.parse_length_prefixed(empty_pb2.Empty, file)) is not None:
            yield fields(one)


def numbers(packed):
    """Varints, one after the other."""
    found, value, shift = [], 0, 0
    for byte in packed:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            found.append(value)
            value = shift = 0
    return found


def attribute(data):
    told = fields(empty_pb2.Empty.FromString(data))
    (name,), ((number, (value,)),) = told.pop(1), told.items()
    return name.decode(), VALUES[number](value)


def node(told):
    assert told.keys() <= NODE.keys()
    of = {name: told.get(number, []) for number, name in NODE.items()}
    return TraceNode(
        id=of["id"][0] if of["id"] else 0,
        name=of["name"][0].decode(),
        type=of["type"][0],
        micros=of["micros"][0] if of["micros"] else 0,
        ctrl_deps=numbers(b"".join(of["ctrl_deps"])),
        data_deps=numbers(b"".join(of["data_deps"])),
        told=dict(map(attribute, of["attr"])),
    )


def read(prefix, devices):
    """Nodes by device, and process groups by name."""
    found = {}
    for device in devices:
        head, *nodes = messages(prefix.parent / f"{prefix.name}.{device}.et")
        assert head == {1: [b"1.0.0"]}
        found[device] = list(map(node, nodes))
    return found, json.loads((prefix.parent / f"{prefix.name}.groups.json").read_text())


def replay(traces, groups):
    """When each device is done, in nanoseconds: its ops one by one, its collectives and messages.

    A collective begins when all of its group are ready for it, a message when both ends are.
    """
    waiting = {device: {n.id: n for n in nodes} for device, nodes in traces.items()}
    ends = {device: {} for device in traces}
    partners = meetings(traces, groups)
    while any(waiting.values()):
        ready = {
            (device, n.id)
            for device, nodes in waiting.items()
            for n in nodes.values()
            if n.deps <= ends[device].keys()
        }
        begun = {members for members in map(partners.get, ready) if members <= ready}
        assert begun, "devices wait for each other"
        for members in begun:
            nodes = [(device, waiting[device].pop(number)) for device, number in members]
            start = max((ends[d][dep] for d, n in nodes for dep in n.deps), default=0)
            for device, n in nodes:
                ends[device][n.id] = start + n.told["duration_nanos"]
    return {device: max(of.values(), default=0) for device, of in ends.items()}


def meetings(traces, groups):
    """For each node of each device those that run at once: of an op itself."""
    found, seen = {}, {}
    for device, nodes in traces.items():
        for n in nodes:
            key = device, n.id
            if n.type == COLLECTIVE:
                assert device in groups[n.told["pg_name"]]
                calls = seen.setdefault((device, n.told["pg_name"]), [])
                calls.append(n)
                key = n.told["pg_name"], len(calls)
            elif n.type in (SEND, RECEIVE):
                key = n.key
            found.setdefault(key, []).append((device, n))
    for members in found.values():
        check(members, groups)
    return {
        (device, n.id): frozenset((d, m.id) for d, m in members)
        for members in found.values()
        for device, n in members
    }


def check(members, groups):
    """Those that meet are all of a group, or the two ends of a message, and agree."""
    (device, n), *others = members
    if n.type == COLLECTIVE:
        assert sorted(d for d, _ in members) == sorted(groups[n.told["pg_name"]])
        assert all(m.told == n.told and m.name == n.name for _, m in others)
    elif n.type != COMPUTE:
        assert {(d, m.type) for d, m in members} == {(n.key[0], SEND), (n.key[1], RECEIVE)}
        assert len({m.told["comm_size"] for _, m in members}) == 1 and n.told["comm_size"] > 0
