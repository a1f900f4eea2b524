# SPDX-License-Identifier: Apache-2.0
"""torch_xla.distributed.parallel_loader: batches on the device, fetched ahead and marked."""

import copy
import queue
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from spmdx.torch_xla import torch_xla
from spmdx.torch_xla.core import xla_model

_END = object()


class _Failed:
    def __init__(self, error: BaseException):
        self.error = error


class _PerDeviceLoader:
    """The batches of a :class:`ParallelLoader` for the one device; each ends a step."""

    def __init__(self, loader: "ParallelLoader", device: Any):
        self._loader, self._device, self._given = loader, device, 0

    def __iter__(self) -> "_PerDeviceLoader":
        return self

    def __next__(self) -> Any:
        if self._given % self._loader.batches_per_execution == 0:
            torch_xla.sync()
        self._given += 1
        batch = self._loader.next_item(self._device)
        if batch is None:
            torch_xla.sync()
            raise StopIteration
        return batch

    def __len__(self) -> int:
        return self._loader.per_device_samples()

    next = __next__


class ParallelLoader:
    """Batches of a loader on the device, read ahead in a thread.

    Args:
        cpu_loader: any iterable of tensors in structures.
        devices: the one device.
        batchdim: kept for programs that give it.
        batches_per_execution: how many batches go into one step.
        loader_prefetch_size: how many batches are read ahead.
        device_prefetch_size: kept for programs that give it: batches go up when they are given.
        host_to_device_transfer_threads: kept for programs that give it.
        input_sharding: a ``ShardingSpec`` for all tensors of its rank, a dict of them by the keys
            of a batch, or None, which replicates.

    Raises:
        ValueError: several devices; later, a dict for batches that are none.
        TypeError: ``input_sharding`` is something else.
        KeyError: later, a key of a batch that the dict lacks.
    """

    def __init__(
        self,
        cpu_loader: Iterable[Any],
        devices: list[Any],
        batchdim: int = 0,
        batches_per_execution: int = 1,
        loader_prefetch_size: int = 16,
        device_prefetch_size: int = 8,
        host_to_device_transfer_threads: int = 1,
        input_sharding: Any = None,
    ):
        if len(devices) != 1:
            raise ValueError(f"{len(devices)} devices were given. Expected the one logical device.")
        _require_specs(input_sharding)
        self._loader, self._sharding = cpu_loader, input_sharding
        self.batches_per_execution = batches_per_execution
        self._queue: queue.Queue[Any] = queue.Queue(max(1, loader_prefetch_size))
        self._closed = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()

    def per_device_loader(self, device: Any) -> _PerDeviceLoader:
        """The batches for a device.

        Args:
            device: the one device.
        """
        return _PerDeviceLoader(self, device)

    def per_device_samples(self) -> int:
        """The number of batches."""
        return len(self._loader)  # type: ignore[arg-type]

    def next_item(self, device: Any) -> Any:
        """The next batch on the device; None at the end. Raises what the loader raised.

        Args:
            device: the one device.
        """
        item = _END if self._closed.is_set() else self._queue.get()
        if isinstance(item, _Failed):
            self.close()
            raise item.error
        if item is _END:
            self._closed.set()
            return None
        return sent(item, device, self._sharding)

    def close(self) -> None:
        """End reading ahead."""
        self._closed.set()
        while not self._queue.empty():
            self._queue.get_nowait()

    def _read(self) -> None:
        last: Any = _END
        try:
            for batch in self._loader:
                if not self._put(batch):
                    return
        except BaseException as error:  # raised where the batch is asked for
            last = _Failed(error)
        self._put(last)

    def _put(self, item: Any) -> bool:
        while not self._closed.is_set():
            try:
                self._queue.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False


def _require_specs(sharding: Any) -> None:
    specs = sharding.values() if isinstance(sharding, Mapping) else (sharding,)
    for spec in specs:
        if spec is not None and not hasattr(spec, "xla_spec"):
            raise TypeError(
                f"input_sharding is, or has, {spec!r}. Expected a ShardingSpec, a dict of them by "
                "the keys of a batch, or None. Write ShardingSpec(mesh, ('data', None))."
            )


def sent(batch: Any, device: Any, sharding: Any) -> Any:
    """A batch on the device, marked.

    Args:
        batch: tensors in a structure.
        device: the device.
        sharding: a ``ShardingSpec``, a dict of them, or None.

    Returns:
        The same structure.

    Raises:
        ValueError: a dict for a batch that is none.
        KeyError: a key that the dict lacks.
    """
    if not isinstance(sharding, Mapping):
        return xla_model.send_cpu_data_to_device([batch], device, sharding)[0]
    if not isinstance(batch, Mapping):
        raise ValueError(
            f"input_sharding is a dict, the batch a {type(batch).__name__}. Expected a dict, too. "
            "Give one ShardingSpec for all tensors."
        )
    missing = [key for key in batch if key not in sharding]
    if missing:
        raise KeyError(f"input_sharding lacks {missing}. Give a ShardingSpec or None for each key.")
    made = copy.copy(batch)  # of its own class
    for key, value in batch.items():
        made[key] = xla_model.send_cpu_data_to_device([value], device, sharding[key])[0]  # type: ignore[index]
    return made


class MpDeviceLoader:
    """Batches of a loader on the device; each batch ends a step.

    Args:
        loader: any iterable of tensors in structures.
        device: the device.
        **kwargs: as for :class:`ParallelLoader`.
    """

    def __init__(self, loader: Iterable[Any], device: Any, **kwargs: Any):
        self._loader, self._device, self._options = loader, device, kwargs

    def __iter__(self) -> Iterator[Any]:
        parallel = ParallelLoader(self._loader, [self._device], **self._options)
        try:
            yield from parallel.per_device_loader(self._device)
        finally:
            parallel.close()

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]
