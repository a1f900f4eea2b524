# SPDX-License-Identifier: Apache-2.0
"""Random programs that are wrong, made smaller as long as they stay wrong."""

import dataclasses

from program_oracle import judge
from random_programs import NAME


def still_wrong(program):
    """What is wrong with a candidate; None for one that is right, unsteady or no program at all."""
    try:
        verdict, said = judge(program)
    except Exception:  # noqa: BLE001 - plain PyTorch refuses it: a name or a shape is missing
        return None
    return said if verdict == "different" else None


def smaller(program):
    """Candidates, the boldest first: fewer steps, lines, inputs, marks, axes."""
    if program.steps > 1:
        yield dataclasses.replace(program, steps=1)
        if program.clip is not None:
            yield dataclasses.replace(program, clip=None)
    n = len(program.lines)
    size = n
    while size:
        for start in range(0, n, size):
            lines = program.lines[:start] + program.lines[start + size :]
            if lines:
                yield dataclasses.replace(program, lines=lines)
        size //= 2
    used = set(NAME.findall("\n".join(program.lines)))
    for k, i in enumerate(program.inputs):
        rest = program.inputs[:k], program.inputs[k + 1 :]
        if i.name not in used:
            yield dataclasses.replace(program, inputs=rest[0] + rest[1])
        if i.spec is not None:
            bare = dataclasses.replace(i, spec=None)
            yield dataclasses.replace(program, inputs=(*rest[0], bare, *rest[1]))
            for d, entry in enumerate(i.spec):
                if entry is not None and any(e for j, e in enumerate(i.spec) if j != d):
                    spec = (*i.spec[:d], None, *i.spec[d + 1 :])
                    bare = dataclasses.replace(i, spec=spec)
                    yield dataclasses.replace(program, inputs=(*rest[0], bare, *rest[1]))
    for mesh in (((0, 1), (2,)),):
        if len(program.mesh[1]) == 1 and len(program.mesh[0]) > 2:
            yield dataclasses.replace(program, mesh=mesh)


def shrink(program, attempts=400):
    """The smallest program found that is still wrong, and what is wrong with it."""
    said, progress = still_wrong(program), True
    while progress and said:
        progress = False
        for candidate in smaller(program):
            attempts -= 1
            if attempts < 0:
                return program, said
            found = still_wrong(candidate)
            if found:
                program, said, progress = candidate, found, True
                break
    return program, said
