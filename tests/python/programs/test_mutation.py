# SPDX-License-Identifier: Apache-2.0
"""A wrong row in the table of rules is noticed: by the verifier, a kernel, or a wrong number.

Run as a script, it prints how each is caught:  python tests/python/programs/test_mutation.py
"""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

# op: (what is changed in its row, what a program that uses it has in its text)
MUTATIONS = {
    "aten.mm": ("letters=mk.,k.n->mn", "@"),  # the sum over a cut k is forgotten
    "aten.bmm": ("letters=bmk.,bkn->bmn", "@"),
    "aten.add": ("linearity=each", "+"),  # a whole summand is added on every device
    "aten.mul": ("linearity=joint operands=3", "*"),  # products of parts
    "aten.relu": ("linearity=joint", "relu"),
    "aten.tanh": ("linearity=joint", "tanh"),
    "aten.abs": ("linearity=joint", "abs"),
    "aten.maximum": ("linearity=joint", "maximum"),
    "aten.sum": ("reduced=pass", ".sum("),
    "aten.amax": ("reduced=pass", ".amax("),
    "aten.prod": ("reduced=max", ".prod("),
    "aten.mean": ("composite=reduce", ".mean("),  # the mean of local means, added
    "aten.var": ("composite=pass", ".var("),
    "aten.logsumexp": ("composite=pass", ".logsumexp("),
    "aten.linalg_vector_norm": ("composite=reduce", "vector_norm"),
    "aten._softmax": ("letters=*->*", ".softmax("),
    "aten._log_softmax": ("letters=*->*", "log_softmax"),
    "aten._softmax_backward_data": ("letters=*,*->*", ".softmax("),
    "aten.cumsum": ("letters=*->*", ".cumsum("),
    "aten.sort": ("letters=*->*,*", ".sort("),
    "aten.flip": ("letters=*->*", ".flip("),
    "aten.roll": ("letters=*->*", ".roll("),
    "aten.tril": ("localise=none", ".tril("),
    "aten.view": ("localise=none", "flatten("),
    "aten.expand": ("localise=none", ".expand("),
    "aten.arange.start": ("localise=none", "arange(1,"),
    "aten.embedding": ("letters=v.d,*->*d expand=none", "F.embedding("),
    "aten.native_layer_norm": ("composite=pass", "F.layer_norm("),
    "aten.nll_loss_forward": ("composite=pass", "F.cross_entropy("),
}
AFTER_A_PRODUCT = {
    "aten.add": "{0} + 1.0 * v0.sum()",
    "aten.mul": "{0} * {0}",
    "aten.relu": "{0}.relu()",
    "aten.tanh": "{0}.tanh()",
    "aten.abs": "{0}.detach().abs()",
    "aten.maximum": "torch.maximum({0}.detach(), {0}.detach() * 2.0)",
}
MOST_PROGRAMS = 300


@contextlib.contextmanager
def overridden(core, op, changes):
    core.override_rule(op, changes)
    try:
        yield
    finally:
        core.override_rule(op, "")


def catch(op):
    """(program, what was said) of the first one that a changed rule breaks, or None."""
    import program_ops as ops
    import spmdx
    from program_oracle import judge
    from random_programs import draft

    changes, pattern = MUTATIONS[op]
    # Where starting a collective costs nothing, small operands are cut as large ones are.
    level = spmdx.topology.Level(latency_ns=0, message_ns=0)
    spmdx.set_topology(spmdx.Topology("for tests", (level,)))
    menu = None
    if changes.startswith("linearity"):
        # Only an op that follows a product at once can meet its sum unfinished.
        def follow(g):
            x = g.names[-1]
            return AFTER_A_PRODUCT[op].format(x) if g[x].is_floating_point() else None

        menu = {ops.matmul: 4, follow: 4, ops.join: 1, ops.binary: 1}
    tried = 0
    with overridden(spmdx._C, op, changes):
        for seed in range(10**5, 10**5 + 40 * MOST_PROGRAMS):
            program = draft(seed, length=5, ops=menu, mixed=False)
            if not any(pattern in line for line in program.lines):
                continue
            tried += 1
            if tried > MOST_PROGRAMS:
                return None
            verdict, said = judge(program)
            if verdict == "different":
                return program, said.splitlines()[0]
    return None


def main():
    from program_oracle import judge

    found, right = {}, []
    for op in sys.argv[1:] or MUTATIONS:
        program, found[op] = catch(op) or (None, None)
        print(f"{op}: {found[op]}", file=sys.stderr, flush=True)
        right += [judge(program)[0]] if program else []
    print(json.dumps({"found": found, "right": right}))


@pytest.fixture(scope="module")
def outcome():
    """Of a process that may change rules: this one may not."""
    environment = {**os.environ, "SPMDX_TEST_RULES": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__]
    done = subprocess.run(
        command, env=environment, cwd=Path(__file__).parent, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_at_least_twenty_rules_are_broken():
    assert len(MUTATIONS) >= 20


@pytest.mark.parametrize("op", MUTATIONS)
def test_a_wrong_rule_is_caught(op, outcome):
    assert outcome["found"][op] is not None, f"{MOST_PROGRAMS} programs do not notice {op}"


@pytest.mark.on_the_cpu("a wrong rule may make a wrong index, which ends the use of a GPU")
def test_the_same_programs_are_right_with_the_right_rules(outcome):
    assert set(outcome["right"]) == {"equal"}


def test_rules_cannot_be_changed_outside_of_tests():
    import spmdx

    with pytest.raises(spmdx.ShardingError, match="SPMDX_TEST_RULES"):
        spmdx._C.override_rule("aten.mm", "linearity=joint")


if __name__ == "__main__":
    helpers = Path(__file__).parents[1] / "helpers"
    sys.path[:0] = [str(helpers), str(helpers / "program")]
    main()
