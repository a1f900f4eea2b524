# SPDX-License-Identifier: Apache-2.0
"""Data: batches of any loader, fetched ahead and laid on the devices."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from spmdx._annotate.mesh import Mesh, require_mesh
from spmdx._annotate.spec import Sharding
from spmdx._base.arguments import is_iterable
from spmdx._data.batches import map_tensors
from spmdx._data.consistency import Agreed, Rows
from spmdx._data.input_sharding import Placement, ShardingSpec
from spmdx._data.position import Position
from spmdx._data.prefetch import Prefetch
from spmdx._data.split import split_of
from spmdx._program.step import mark_step as end_step
from spmdx._world import processes
from spmdx.errors import ShardingError, naming

__all__ = ["DeviceLoader", "ShardingSpec", "batch_shard", "device_loader"]


def batch_shard(
    mesh: Mesh | Sharding | None = None, partition_spec: Sequence[Any] = ()
) -> tuple[int, int]:
    """How many parts the rows of a batch come in, and which of them this process loads.

    They are the ``num_replicas`` and ``rank`` of a ``DistributedSampler``, for a loader with
    ``minibatch=True``. Processes that hold the same rows, as under tensor parallelism, load the
    same part.

    Args:
        mesh: the devices; None means the global mesh. A :class:`spmdx.Sharding` is mesh and spec.
        partition_spec: that of the batch; the axes of its first entry cut the rows.

    Returns:
        The number of parts and the index of this process's part.

    Raises:
        ShardingError: the rows that processes hold are not equal parts, or the spec does not fit.

    Example:
        >>> import spmdx
        >>> spmdx.data.batch_shard(spmdx.get_1d_mesh("data"), ("data",))
        (1, 0)
    """
    with naming("batch_shard"):
        spec = ShardingSpec(mesh, partition_spec, minibatch=True)
        split = split_of(require_mesh(spec.mesh), spec.partition_spec)
        return len(split.parts), split.mine


class DeviceLoader:
    """A loader whose batches are on device "spmdx"; :func:`device_loader` makes one.

    ``len`` and all attributes that are not its own (``dataset``, ``sampler``, …) are the loader's.

    Example:
        >>> import torch, spmdx
        >>> loader = torch.utils.data.DataLoader(range(6), batch_size=4)
        >>> batches = spmdx.data.device_loader(loader)
        >>> len(batches), batches.dataset, [x.tolist() for x in batches]
        (2, range(0, 6), [[0, 1, 2, 3], [4, 5]])
    """

    def __init__(
        self,
        loader: Iterable[Any],
        placement: Placement,
        prefetch_size: int,
        mark_step: bool,
        same_shapes: bool,
    ):
        self._loader = loader
        self._placement = placement
        self._prefetch_size = prefetch_size
        self._mark_step = mark_step
        self._same_shapes = same_shapes
        self._position = Position(loader, placement.parts)
        self._due: list[Any] = []
        self._running: Prefetch | None = None

    @property
    def epoch(self) -> int:
        """The number of the epoch that runs, or of the next one; the first is 0."""
        return self._position.epoch

    def state_dict(self) -> dict[str, Any]:
        """The position: epoch and batches that the loop was given, whatever was fetched ahead.

        Returns:
            Numbers and states of generators, for ``torch.save``. Each process has its own.
        """
        return self._position.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Let the next loop go on from a position, with the batch that would have come next.

        Args:
            state_dict: what :meth:`state_dict` gave, of a loader that was built alike.

        Raises:
            ShardingError: it was built otherwise, or loads other parts of the batches.

        Example:
            >>> import torch, spmdx
            >>> def loader():
            ...     order = torch.Generator().manual_seed(0)
            ...     return torch.utils.data.DataLoader(range(4), shuffle=True, generator=order)
            >>> first, second = (spmdx.data.device_loader(loader()) for _ in range(2))
            >>> all_of_it = [x.item() for x in first]
            >>> for x in second:
            ...     break
            >>> resumed = spmdx.data.device_loader(loader())
            >>> resumed.load_state_dict(second.state_dict())
            >>> [x.item() for x in resumed] == all_of_it[1:]
            True
        """
        self._position.load_state_dict(state_dict)

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # not there yet, as while it is copied
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._loader, name)

    def __iter__(self) -> Iterator[Any]:
        # Workers that stay serve one loop, as in plain PyTorch: the newest.
        if self._running is not None and getattr(self._loader, "persistent_workers", False):
            self._running.close()
        source, snapshot = self._position.begin(), self._position.snapshot()
        self._running = fetched = Prefetch(lambda: (next(source), snapshot()), self._prefetch_size)
        try:
            for batch, rows in self._agreed(self._given(fetched)):
                # Also where this process gives no rows, so that all of them count alike.
                self._position.advance(*self._due)
                self._due.clear()
                yield self._placed(batch, rows)
                if self._mark_step:
                    end_step()
            self._position.finish()
        finally:
            fetched.close()

    def _given(self, fetched: Iterator[tuple[Any, Any]]) -> Iterator[Any]:
        for batch, snapshot in fetched:
            self._due = [snapshot]  # when the processes have agreed on it
            yield batch

    def _agreed(self, batches: Iterator[Any]) -> Iterator[tuple[Any, Rows]]:
        if processes.process_count() == 1:
            return ((batch, {}) for batch in batches)
        always = self._placement.in_parts and not self._same_shapes
        return Agreed(batches, self._placement.split, always)

    def _placed(self, batch: Any, rows: Rows) -> Any:
        with naming("device_loader"):
            return map_tensors(
                lambda path, tensor: self._placement.place(path, tensor, rows.get(path)), batch
            )


def device_loader(
    loader: Iterable[Any],
    mesh: Mesh | None = None,
    input_sharding: "ShardingSpec | Mapping[Any, Any] | None" = None,
    *,
    prefetch_size: int = 2,
    mark_step: bool = False,
    same_shapes: bool = False,
) -> DeviceLoader:
    """Wrap a loader: its batches come on device "spmdx", annotated, fetched ahead by a thread.

    Args:
        loader: a ``DataLoader`` or any iterable of tensors, dicts, lists, tuples, named tuples and
            what else torch's pytree knows; what is no tensor stays as it is.
        mesh: where tensors lie whole that ``input_sharding`` says nothing of. Without it that of
            the first ``ShardingSpec``; without one of those, tensors are not annotated.
        input_sharding: one ``ShardingSpec`` for all tensors; or a dict of them by key (index, name
            of a field), nested as the batch is; None for what every device holds whole.
            A spec shorter than the tensor's rank counts as None for the dims after it.
        prefetch_size: how many batches a thread fetches ahead; 0 fetches in the loop.
        mark_step: end the step when the loop asks for the next batch.
        same_shapes: a promise that with ``minibatch`` all processes have as many batches, of the
            same shapes. Without it they tell each other the shapes of every batch.

    Returns:
        An iterable that can be iterated again; each time is an epoch, which samplers with
        ``set_epoch`` are told of.

    Raises:
        ShardingError: an argument is of the wrong kind; in the loop, a spec has more entries than
            the tensor has dims, a key of the batch is missing, or processes gave batches that do
            not fit together.
        Exception: in the loop, what the loader raised, with its traceback.

    Example:
        >>> import torch, spmdx
        >>> mesh = spmdx.Mesh(range(8), (4, 2), ("data", "model"))
        >>> data = torch.utils.data.TensorDataset(torch.arange(24.0).view(12, 2), torch.arange(12))
        >>> loader = torch.utils.data.DataLoader(data, batch_size=8)
        >>> spec = spmdx.data.ShardingSpec(mesh, ("data",))
        >>> for x, y in spmdx.data.device_loader(loader, input_sharding=spec):
        ...     print(x.partition_spec, y.partition_spec, (x.sum() + y.sum()).item())
        PartitionSpec('data', None) PartitionSpec('data') 148.0
        PartitionSpec('data', None) PartitionSpec('data') 194.0

    Source: the names are PyTorch/XLA's (``MpDeviceLoader``).
    """
    with naming("device_loader"):
        if not is_iterable(loader):
            raise ShardingError(
                f"the loader is a {type(loader).__name__}. Expected batches to loop over. Pass a "
                "DataLoader, or a list of tensors."
            )
        if mesh is not None:
            require_mesh(mesh)
        if type(prefetch_size) is not int or prefetch_size < 0:
            raise ShardingError(
                f"prefetch_size is {prefetch_size!r}. Expected a number of batches. Write 2, or 0 "
                "to fetch in the loop."
            )
        placement = Placement(mesh, input_sharding)
    return DeviceLoader(loader, placement, prefetch_size, mark_step, same_shapes)
