# SPDX-License-Identifier: Apache-2.0
"""A loader that is built again and given the position goes on with the very same batches."""

import io
import itertools

import pytest
import spmdx
import torch
from messages import eight_devices, message_of
from spmdx._data.position import Position
from spmdx.data import ShardingSpec, device_loader
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    WeightedRandomSampler,
)

eight_devices()
SIZE, BATCH = 23, 4  # six batches, the last one short


def spec():
    return ShardingSpec(spmdx.Mesh(range(3), (3,), ("data",)), ("data",))


class Records:
    """Notes which records were read."""

    def __init__(self):
        self.read = []

    def __len__(self):
        return SIZE

    def __getitem__(self, i):
        self.read.append(i)
        return torch.tensor([float(i)])


class Stream(IterableDataset):
    def __iter__(self):
        yield from torch.arange(float(SIZE))


class Drawn(IterableDataset):
    """Each pass draws from a generator of its own."""

    def __init__(self):
        self.generator = torch.Generator().manual_seed(4)

    def __iter__(self):
        order = torch.randperm(SIZE, generator=self.generator)
        yield from order.double()


class Stateful:
    """Keeps its own position, as torchdata's loaders do; it does not go back to skip."""

    def __init__(self):
        self.at, self.passes = 0, 0

    def __iter__(self):
        while self.at < 6:
            self.at += 1
            yield torch.full((4,), float(self.at + 10 * self.passes))
        self.at, self.passes = 0, self.passes + 1

    def state_dict(self):
        return {"at": self.at, "passes": self.passes}

    def load_state_dict(self, state):
        self.at, self.passes = state["at"], state["passes"]


def seeded(seed=5):
    return torch.Generator().manual_seed(seed)


def random_batches():
    sampler = RandomSampler(range(SIZE), replacement=True, generator=seeded())
    return DataLoader(Records(), batch_sampler=BatchSampler(sampler, BATCH, True))


LOADERS = {
    "in order": lambda: DataLoader(Records(), BATCH),
    "without the last": lambda: DataLoader(Records(), BATCH, drop_last=True),
    "shuffled globally": lambda: DataLoader(Records(), BATCH, shuffle=True),
    "shuffled": lambda: DataLoader(Records(), BATCH, shuffle=True, generator=seeded()),
    "workers": lambda: DataLoader(Records(), BATCH, shuffle=True, num_workers=1),
    "workers that stay": lambda: DataLoader(
        Records(), BATCH, shuffle=True, num_workers=1, persistent_workers=True
    ),
    "not batched": lambda: DataLoader(Records(), None, shuffle=True),
    "weighted": lambda: DataLoader(
        Records(), BATCH, sampler=WeightedRandomSampler(range(1, SIZE), SIZE, generator=seeded())
    ),
    "drawn twice": random_batches,
    "distributed": lambda: DataLoader(
        Records(), BATCH, sampler=DistributedSampler(Records(), num_replicas=2, rank=1, seed=3)
    ),
    "stream": lambda: DataLoader(Stream(), BATCH),
    "drawn stream": lambda: DataLoader(Drawn(), BATCH),
    "list": lambda: [torch.full((4,), float(i)) for i in range(6)],
    "stateful": Stateful,
}


def wrapped(make, size=2):
    return device_loader(make(), input_sharding=spec(), prefetch_size=size)


def batch_values(batches):
    return [x.flatten().tolist() for x in batches]


def through_a_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file)


def without_stopping(make, epochs=3):
    """The batches of plain epochs from the seed, and what the program draws after each."""
    torch.manual_seed(9)
    loader, seen = make(), []
    for epoch in range(epochs):
        sampler = getattr(loader, "sampler", None)
        if isinstance(sampler, DistributedSampler):
            sampler.set_epoch(epoch)
        for x in loader:
            seen.append((x.flatten().tolist(), torch.rand(()).item()))
    return seen


def stopped(make, count, size):
    """Stop after ``count`` batches, save, and go on in what might be another process."""
    torch.manual_seed(9)
    loader, seen = wrapped(make, size), []
    for x in itertools.chain.from_iterable(itertools.repeat(loader, 3)):
        seen.append((x.flatten().tolist(), torch.rand(()).item()))
        if len(seen) == count:
            break
    saved = through_a_file({"data": loader.state_dict(), "random": torch.get_rng_state()})
    torch.manual_seed(1234)  # nothing is left of the first run
    resumed = wrapped(make, size)
    resumed.load_state_dict(saved["data"])
    torch.set_rng_state(saved["random"])
    while resumed.epoch < 3:
        for x in resumed:
            seen.append((x.flatten().tolist(), torch.rand(()).item()))
    return seen


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("count", [1, 5, 6, 8])
def test_a_run_goes_on_with_the_very_same_batches_and_draws(name, count):
    want = without_stopping(LOADERS[name])
    assert stopped(LOADERS[name], count, size=2) == want


@pytest.mark.parametrize("name", ["shuffled globally", "drawn twice", "stateful", "drawn stream"])
def test_it_does_not_depend_on_what_is_fetched_ahead(name):
    want = without_stopping(LOADERS[name])
    for size in (0, 1, 7):
        assert stopped(LOADERS[name], 3, size) == want


@pytest.mark.parametrize("name", ["shuffled globally", "shuffled", "distributed", "stateful"])
def test_between_epochs_the_next_one_is_the_same(name):
    def epochs(loader, count):
        return [batch_values(loader) for _ in range(count)]

    torch.manual_seed(2)
    loader = wrapped(LOADERS[name])
    epochs(loader, 1)
    state, random = through_a_file(loader.state_dict()), torch.get_rng_state()
    want = epochs(loader, 2)
    resumed = wrapped(LOADERS[name])
    resumed.load_state_dict(state)
    torch.set_rng_state(random)
    assert resumed.epoch == 1 and epochs(resumed, 2) == want


def test_records_that_were_consumed_are_not_read_again():
    loader = wrapped(LOADERS["shuffled"])
    for taken, _ in enumerate(loader, 1):
        if taken == 4:
            break
    resumed = wrapped(LOADERS["shuffled"])
    resumed.load_state_dict(loader.state_dict())
    assert len(list(resumed)) == 2 and len(resumed.dataset.read) == SIZE - 4 * BATCH
    assert len(list(resumed)) == 6, "the epoch after it is whole"


def test_prefetched_batches_count_as_unread():
    loader = wrapped(LOADERS["list"], size=5)
    batches = iter(loader)
    next(batches)
    assert loader.state_dict()["consumed"] == 1 and loader.epoch == 0


def test_a_loop_that_was_left_ends_its_epoch():
    loader = wrapped(LOADERS["list"])
    next(iter(loader))
    assert loader.epoch == 0 and len(list(loader)) == 6 and loader.epoch == 2


def test_samplers_are_told_the_epoch_and_may_be_told_by_the_program():
    sampler = DistributedSampler(range(SIZE), num_replicas=2, rank=0, seed=3)
    loader = device_loader(DataLoader(Records(), BATCH, sampler=sampler), input_sharding=spec())

    def want(epoch):
        plain = DistributedSampler(range(SIZE), num_replicas=2, rank=0, seed=3)
        plain.set_epoch(epoch)
        return batch_values(DataLoader(Records(), BATCH, sampler=plain))

    assert [batch_values(loader) for _ in range(2)] == [want(0), want(1)]
    loader.sampler.set_epoch(7)  # as scripts do that resume by themselves
    assert [batch_values(loader) for _ in range(2)] == [want(7), want(8)]


def test_the_state_of_another_loader_is_refused():
    state = wrapped(LOADERS["stateful"]).state_dict()
    plain = wrapped(LOADERS["shuffled"])
    assert message_of(spmdx.ShardingError, lambda: plain.load_state_dict(state)) == (
        "HERE: load_state_dict: the state is that of another kind of loader. Expected one that was "
        "built alike. Build the loader as in the run that was saved."
    )
    with pytest.raises(spmdx.ShardingError, match="another kind"):
        plain.load_state_dict(wrapped(LOADERS["in order"]).state_dict())


def in_part(loader, part, count):
    return Position(loader, lambda: [[part, count]])


def distributed(part, count):
    sampler = DistributedSampler(range(SIZE), count, part, seed=3)
    return DataLoader(range(SIZE), batch_size=BATCH, sampler=sampler)


@pytest.mark.parametrize("saved, loaded", [(2, 3), (3, 2), (4, 1), (1, 2)])
def test_a_position_of_other_parts_is_refused(saved, loaded):
    position = in_part(distributed(0, saved), 0, saved)
    next(position.begin()), position.advance(None)
    other = in_part(distributed(0, loaded), 0, loaded)
    with pytest.raises(spmdx.ShardingError, match="part 0 of .* Expected the same, or batches"):
        other.load_state_dict(position.state_dict())
    whole = Position(DataLoader(range(SIZE), batch_size=BATCH))
    with pytest.raises(spmdx.ShardingError, match=f"part 0 of {saved} of each batch, and .* all"):
        whole.load_state_dict(position.state_dict())


def test_a_position_of_another_part_is_exact_where_the_order_is_no_parts_own():
    first, second = (in_part(distributed(part, 2), part, 2) for part in range(2))
    next(first.begin()), first.advance(None)
    second.load_state_dict(first.state_dict())
    resumed = [batch.tolist() for batch in second.begin()]
    assert resumed == [batch.tolist() for batch in distributed(1, 2)][1:]


@pytest.mark.parametrize("build", [Stateful, lambda: DataLoader(range(SIZE), shuffle=True)])
def test_a_position_of_another_part_is_refused_where_the_order_is_its_own(build):
    first, second = (in_part(build(), part, 2) for part in range(2))
    next(first.begin()), first.advance(None)
    with pytest.raises(spmdx.ShardingError, match="part 0 of 2 .* loads part 1 of 2"):
        second.load_state_dict(first.state_dict())
    again = in_part(build(), 0, 2)
    again.load_state_dict(first.state_dict())
