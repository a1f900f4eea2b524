# SPDX-License-Identifier: Apache-2.0
"""Defects that tests plant into process 1, to see that they are found."""

import time

import spmdx
from fault_play import Play
from fault_strikes import RANK


def does_not_recover() -> None:
    """It believes that it has."""
    if RANK == 1:
        spmdx.runtime.recover = lambda: None


def keeps_other_values() -> None:
    """A tensor is not what it was before the step that failed."""
    mend = Play.mend

    def mended(self: Play) -> None:
        mend(self)
        bins = self.rest["bins"]
        spmdx.sync(wait=True)
        bins.load_local_shards_([shard.data + (RANK == 1) for shard in bins.local_shards])

    Play.mend = mended


def never_comes() -> None:
    recover = spmdx.runtime.recover

    def late() -> None:
        time.sleep(3600 if RANK == 1 else 0)
        recover()

    spmdx.runtime.recover = late


def forgets_the_generator() -> None:
    """Random numbers go on from where the step that failed came to."""
    Play.set_generators = lambda self, state: None


def loads_other_values() -> None:
    load = spmdx.checkpoint.load

    def loaded(state, path):
        load(state, path)
        state["rest"]["count"].add_(1)

    spmdx.checkpoint.load = loaded


PLANTS = {
    plant.__name__: plant
    for plant in (
        does_not_recover,
        keeps_other_values,
        never_comes,
        forgets_the_generator,
        loads_other_values,
    )
}
