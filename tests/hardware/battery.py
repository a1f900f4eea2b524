# SPDX-License-Identifier: Apache-2.0
"""What every compiler of segments has to stand: its kernels against PyTorch's, op by op."""

import collections
import concurrent.futures
import dataclasses
from collections.abc import Callable, Collection, Iterator, Sequence

import torch
from case_segments import Kernel, given, kernel
from cases import Case
from chains_of_ops import chains
from endurance import large_case, leak
from gathered_calls import Calls, chosen, is_possible, is_random, known
from kernel_bounds import difference
from more_cases import all_of, flipped, in_other_numbers
from spmdx._segments.one_line import of_error
from spmdx.compilers import Compiler

RIGHT, WRONG, REFUSED, NOT_CLAIMED = "right", "wrong", "not compiled", "not claimed"
Rows = Sequence[Sequence[torch.Tensor]]
THREADS = 4
SCRIBBLE = 7


@dataclasses.dataclass(frozen=True)
class Row:
    """What became of a case.

    Attributes:
        op: the overload, or the name of a chain.
        dtype: of the case.
        check: what it was for.
        state: right, wrong or not compiled.
        note: the first difference, or the reason.
    """

    op: str
    dtype: str
    check: str
    state: str
    note: str = ""

    def __str__(self) -> str:
        return f"{self.state:12} {self.op} {self.dtype} ({self.check}): {self.note}"


@dataclasses.dataclass
class Report:
    """Rows of all cases, and ops that have none.

    Attributes:
        claimed: ops that the compiler takes, and segments may have.
        rows: of cases, in the order in which they ran.
        unreached: claimed ops that no case calls.
    """

    claimed: list[str]
    rows: list[Row]
    unreached: list[str]

    def state(self, op: str) -> str:
        """The worst of an op's cases."""
        states = {row.state for row in self.rows if row.op == op}
        return next((one for one in (WRONG, REFUSED, RIGHT) if one in states), "unreached")

    def failures(self) -> list[Row]:
        """Rows that are wrong or not compiled."""
        return [row for row in self.rows if row.state in (WRONG, REFUSED)]

    def summary(self) -> str:
        """One line of how many ops are what."""
        counts = collections.Counter(map(self.state, self.claimed))
        named = (RIGHT, WRONG, REFUSED, "unreached")
        cases = collections.Counter(row.state for row in self.rows)
        return (
            f"claimed {len(self.claimed)} ops: "
            + ", ".join(f"{counts[name]} {name}" for name in named)
            + f"; {len(self.rows)} cases: "
            + ", ".join(f"{cases[name]} {name}" for name in named[:3])
        )


@dataclasses.dataclass
class Battery:
    """Runs cases on a compiler.

    Attributes:
        compiler: that is tried.
        calls: candidates, by op and dtype.
        most: calls of an op in a dtype.
        batch: cases of a segment.
        told: called with what a batch is, before it runs.
    """

    compiler: Compiler
    calls: Calls
    most: int = 4
    batch: int = 32
    told: Callable[[str], None] = lambda line: None

    def claims(self) -> Report:
        """What the compiler says that it takes, and what is wrong with that."""
        claimed = list(self.compiler.ops(known()))
        rows = [
            Row(op, "", "claims", WRONG, "it is not one of the known ops")
            for op in sorted(set(claimed) - set(known()))
        ]
        rows += [
            Row(op, "", "claims", WRONG, "it draws numbers, which are spmdx's own")
            for op in sorted(set(claimed) & set(known()))
            if is_random(op)
        ]
        possible = sorted(op for op in set(claimed) & set(known()) if is_possible(op))
        return Report(possible, rows, [])

    def run(
        self, ops: Collection[str] | None = None, dtypes: Collection[str] | None = None
    ) -> Report:
        """All cases of these ops and dtypes; of all that the compiler takes, if none is said."""
        report = self.claims()
        report.claimed = [op for op in report.claimed if ops is None or op in ops]
        wanted = [d for d in self.compiler.dtypes if dtypes is None or d in dtypes]
        cases = [case for op in report.claimed for case in self.cases_of(op, wanted)]
        reached = {case.about for case in cases}
        report.unreached = [op for op in report.claimed if op not in reached]
        for batch in batches(cases, self.batch):
            report.rows += self.rows_of(batch)
        if ops is None and "f32" in wanted:
            report.rows += self.of_chains(set(report.claimed)) + self.of_memory(report.claimed)
        return report

    def of_chains(self, claimed: Collection[str]) -> list[Row]:
        """Many ops as one kernel, where the compiler takes them all."""
        rows = []
        for case in chains():
            left = sorted({op.name for op in case.ops} - set(claimed))
            if left:
                rows.append(Row(case.about, "f32", case.check, NOT_CLAIMED, ", ".join(left)))
            else:
                rows += self.rows_of([case])
        return rows

    def of_memory(self, claimed: Collection[str]) -> list[Row]:
        """Whether many runs hold no more than one."""
        case = large_case(claimed)
        if case is None:
            return [Row("memory", "f32", "memory", NOT_CLAIMED)]
        note = leak(self.compiler, case)
        return [Row(case.about, "f32", "memory", WRONG if note else RIGHT, note)]

    def cases_of(self, op: str, dtypes: Sequence[str]) -> Iterator[Case]:
        """Calls of an op whose values are all of dtypes that the compiler takes."""
        taken = set(self.compiler.dtypes)
        for dtype in dtypes:
            candidates = [c for c in self.calls.get((op, dtype), []) if c.dtypes() <= taken]
            cases = chosen(candidates, self.most)
            more = all_of(cases, self.compiler.ops_with_params)
            yield from cases
            yield from (case for case in more if case.dtypes() <= taken)

    def rows_of(self, cases: Sequence[Case]) -> list[Row]:
        """Of one segment; of its halves, if there is no kernel of it, or it does not run."""
        about = sorted({f"{case.about} {case.dtype}" for case in cases})
        self.told(f"{len(cases)} cases: {', '.join(about)}")
        try:
            made = kernel(self.compiler, cases)
        except Exception as error:
            return self._halves(cases, REFUSED, of_error(error))
        try:
            notes = judged(made)
        except Exception as error:
            return self._halves(cases, WRONG, of_error(error))
        return [
            Row(case.about, case.dtype, case.check, WRONG if note else RIGHT, note)
            for case, note in zip(cases, notes, strict=True)
        ]

    def _halves(self, cases: Sequence[Case], state: str, why: str) -> list[Row]:
        if len(cases) == 1:
            return [Row(cases[0].about, cases[0].dtype, cases[0].check, state, why)]
        half = len(cases) // 2
        return self.rows_of(cases[:half]) + self.rows_of(cases[half:])


def batches(cases: Sequence[Case], most: int) -> Iterator[Sequence[Case]]:
    """Cases that are alike in dtype and in what they are for."""
    groups: dict[tuple[str, str], list[Case]] = collections.defaultdict(list)
    for case in cases:
        groups[case.check, case.dtype].append(case)
    for group in groups.values():
        for at in range(0, len(group), most):
            yield group[at : at + most]


def judged(made: Kernel) -> list[str]:
    """What is wrong with each case of a kernel; nothing, if it is right in all of it."""
    notes = [""] * len(made.cases)

    def say(found: Sequence[str], when: str = "") -> None:
        for i, note in enumerate(found):
            if note and not notes[i]:
                notes[i] = f"{when}: {note}" if when else note

    first_given = [given(case) for case in made.cases]
    first = made.run(first_given)
    say(differences(made.cases, first))
    say([written(case, row) for case, row in zip(made.cases, first_given, strict=True)])
    kept = [[t.clone() for t in row] for row in first]
    scribble(first_given, SCRIBBLE + 1)
    own = _but_views(made, first, first_given, kept)
    say(_changes(own, kept), "a result lies where an input does")
    scribble(first, SCRIBBLE)
    marked = [[t.clone() for t in row] for row in first]
    say(differences(made.cases, made.run([given(c) for c in made.cases])), "after results changed")
    say(_changes(first, marked), "a result of a run lies where that of an earlier run does")
    _others(made, say)
    _many_threads(made, say)
    return notes


def _but_views(made: Kernel, results: Rows, inputs: Rows, kept: Rows) -> Rows:
    """The results, but what was kept of those that a compiler may give as views of inputs."""
    given = [tensor for row in inputs for tensor in row]

    def is_view(result: torch.Tensor) -> bool:
        return made.views and any(torch._C._is_alias_of(result, tensor) for tensor in given)

    return [
        [before if is_view(now) else now for now, before in zip(*rows, strict=True)]
        for rows in zip(results, kept, strict=True)
    ]


def _many_threads(made: Kernel, say: Callable[[Sequence[str], str], None]) -> None:
    """Runs at once, of which every other one is given other numbers."""
    others = [flipped(case) for case in made.cases]
    cases = [made.cases if i % 2 else others for i in range(THREADS)]
    rows = [[given(case) for case in each] for each in cases]
    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        for each, results in zip(cases, list(pool.map(made.run, rows)), strict=True):
            say(differences(each, results), "run by many threads")


def _others(made: Kernel, say: Callable[[Sequence[str], str], None]) -> None:
    """Runs with other parameters, where there are some."""
    if not any(case.params for case in made.cases):
        return
    others = [in_other_numbers(case) for case in made.cases]
    results = made.run([given(case) for case in others])
    say(differences(others, results), "with other parameters")


def differences(cases: Sequence[Case], results: Sequence[list[torch.Tensor]]) -> list[str]:
    """Of results, case by case."""
    return [difference(case, row) for case, row in zip(cases, results, strict=True)]


def written(case: Case, row: Sequence[torch.Tensor]) -> str:
    """Whether inputs are no longer what they were."""
    for i, ((_, before), after) in enumerate(zip(case.inputs, row, strict=False)):
        if not same_bits(before, after):
            return f"it writes to input {i}"
    return ""


def scribble(rows: Sequence[Sequence[torch.Tensor]], number: int) -> None:
    """Write over all of them."""
    for row in rows:
        for tensor in row:
            tensor.fill_(number)


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether numbers are equal, NaN with NaN."""
    return bool(((one == other) | ((one != one) & (other != other))).all())


def _changes(
    rows: Sequence[Sequence[torch.Tensor]], before: Sequence[Sequence[torch.Tensor]]
) -> list[str]:
    return [
        next((f"result {i}" for i, (a, b) in enumerate(pairs) if not same_bits(a, b)), "")
        for pairs in (list(zip(*both, strict=True)) for both in zip(rows, before, strict=True))
    ]
