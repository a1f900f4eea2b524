# SPDX-License-Identifier: Apache-2.0
"""CheckpointManager: saves every so many steps, in the background if asked; keeps the newest."""

import json
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import fsspec  # type: ignore[import-untyped]
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader, FsspecWriter

from spmdx._xla.device import preemption
from spmdx.torch_xla import _XLAC
from spmdx.torch_xla.experimental.distributed_checkpoint._helpers import _sharded_cpu_state_dict
from spmdx.torch_xla.experimental.distributed_checkpoint.planners import (
    SPMDLoadPlanner,
    SPMDSavePlanner,
)

_DONE = ".saved.json"  # in the folder of a step whose checkpoint is complete


class CheckpointManager:
    """Saves a state dict at every so many steps, below one folder.

    Args:
        path: the folder, on a disk or at a URL that fsspec knows; the same for all processes.
        save_interval: steps that are multiples of it are saved.
        max_to_keep: how many checkpoints are kept, the ones saved last; 0 keeps all.
        max_pending_async: how many saves in the background may wait; one more waits for them.
        num_of_threads: threads that save in the background. Of several processes each has one,
            since all have to save in the same order.
        process_group: of CPU tensors, as "gloo"; None means the default one.
        chkpt_on_preemption: save when the process gets SIGTERM, whatever the step; only where it
            is made in the main thread.

    Raises:
        AssertionError: there is no process group, or a number is out of range.

    Example:
        >>> import tempfile
        >>> import torch, torch.distributed as dist
        >>> from spmdx.torch_xla.experimental.distributed_checkpoint import CheckpointManager
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> manager = CheckpointManager(tempfile.mkdtemp(), 10, chkpt_on_preemption=False)
        >>> [manager.save(step, {"a": torch.ones(2) * step}) for step in (9, 10, 20)]
        [False, True, True]
        >>> manager.all_steps()
        [10, 20]
        >>> state = {"a": torch.zeros(2)}
        >>> manager.restore(20, state)
        >>> state["a"]
        tensor([20., 20.])
        >>> dist.destroy_process_group()
    """

    def __init__(
        self,
        path: str,
        save_interval: int,
        max_to_keep: int = 0,
        max_pending_async: int = 1,
        num_of_threads: int = 1,
        process_group: dist.ProcessGroup | None = None,
        chkpt_on_preemption: bool = True,
    ):
        assert dist.is_initialized(), (
            "there is no process group. Expected one of CPU tensors. Call "
            'torch.distributed.init_process_group("gloo", init_method="xla://").'
        )
        for name, value, least in (
            ("save_interval", save_interval, 1),
            ("max_to_keep", max_to_keep, 0),
            ("max_pending_async", max_pending_async, 1),
            ("num_of_threads", num_of_threads, 1),
        ):
            assert value >= least, f"{name} is {value}. Expected at least {least}."
        self._files, self._root = fsspec.core.url_to_fs(str(path))
        self._prefix = str(path).rstrip("/")
        self._interval, self._most = save_interval, max_to_keep
        self._group = process_group
        self._on_preemption = chkpt_on_preemption
        if chkpt_on_preemption:
            preemption.activate()
        alone = dist.get_world_size(process_group) == 1
        self._threads = ThreadPoolExecutor(num_of_threads if alone else 1, "spmdx-checkpoint")
        self._free = threading.BoundedSemaphore(max_pending_async)
        self._pending: list[Future] = []
        self._lock = threading.Lock()  # of the steps
        self._steps = self._steps_found()  # when each was asked for, in nanoseconds

    def save(self, step: int, state_dict: dict[str, Any], force: bool = False) -> bool:
        """Save now, if the step is one of those that are saved.

        Args:
            step: its number.
            state_dict: what to save; the same names in every process.
            force: save at any step.

        Returns:
            Whether it was saved.
        """
        if not force and not self.should_save(step):
            return False
        self.join()  # so that steps end in the order in which they are saved
        self._save(step, state_dict, time.time_ns())
        return True

    def save_async(self, step: int, state_dict: dict[str, Any], force: bool = False) -> bool:
        """Copy to the CPU now, and save in the background, if the step is one of those saved.

        Args:
            step: its number.
            state_dict: what to save. It may change once this has returned.
            force: save at any step.

        Returns:
            Whether it is being saved. What goes wrong there, the next call raises, or :meth:`join`.
        """
        if not force and not self.should_save(step):
            return False
        self._raise_failed()
        self._free.acquire()
        try:
            copied = _sharded_cpu_state_dict(state_dict)
            future = self._threads.submit(self._save, step, copied, time.time_ns())
        except BaseException:
            self._free.release()
            raise
        future.add_done_callback(lambda _: self._free.release())
        self._pending.append(future)
        return True

    def restore(self, step: int, state_dict: dict[str, Any]) -> None:
        """Fill a state dict, in place, with what was saved.

        Args:
            step: one of :meth:`all_steps`.
            state_dict: tensors keep their shardings.

        Raises:
            AssertionError: nothing was saved at this step.
        """
        steps = self.all_steps()
        assert step in steps, f"Cannot restore from untracked step {step}. Valid steps are: {steps}"
        dcp.load(
            state_dict,
            storage_reader=FsspecReader(self._path(step)),
            planner=SPMDLoadPlanner(),
            process_group=self._group,
        )

    def all_steps(self) -> list[int]:
        """The steps whose checkpoints are complete, in order."""
        with self._lock:
            return sorted(self._steps)

    def should_save(self, step: int) -> bool:
        """Whether a step is saved: a multiple of the interval, or the process is to end."""
        return step % self._interval == 0 or (self._on_preemption and self.reached_preemption(step))

    def join(self) -> None:
        """Wait for what is saved in the background; raise what went wrong there."""
        pending, self._pending = self._pending, []
        for future in pending:
            future.result()

    def _raise_failed(self) -> None:
        """Raises what went wrong in the background, of what has ended."""
        ended = [future for future in self._pending if future.done()]
        self._pending = [future for future in self._pending if future not in ended]
        for future in ended:
            future.result()

    def reached_preemption(self, step: int) -> bool:
        """Whether the process was asked to end, so that the program should.

        Raises:
            AssertionError: the manager was made without ``chkpt_on_preemption``.
        """
        assert self._on_preemption, (
            "chkpt_on_preemption is False. Expected True, for signals to be noted. Make the "
            "manager with it."
        )
        return bool(_XLAC._sync_point_reached(step))

    # --- files ----------------------------------------------------------------------------------

    def _path(self, step: int) -> str:
        return f"{self._prefix}/{step}"

    def _mark(self, step: int) -> str:
        return f"{self._root.rstrip('/')}/{step}/{_DONE}"

    def _leads(self) -> bool:
        return dist.get_rank(self._group) == 0

    def _save(self, step: int, state_dict: dict[str, Any], asked: int) -> None:
        if self._leads() and self._files.exists(self._mark(step)):
            self._files.rm_file(self._mark(step))  # from here on it is not complete
        dcp.save(
            state_dict,
            storage_writer=FsspecWriter(self._path(step), per_thread_copy_ahead=0),
            planner=SPMDSavePlanner(),
            process_group=self._group,
        )
        if self._leads():
            self._files.pipe_file(self._mark(step), json.dumps({"time": asked}).encode())
        with self._lock:
            self._steps[step] = asked
            ordered = sorted(self._steps, key=lambda known: self._steps[known])
            old = ordered[: -self._most] if self._most else []
            for gone in old:
                del self._steps[gone]
        for gone in old:
            self._delete(gone)

    def _delete(self, step: int) -> None:
        if self._leads():
            self._files.rm_file(self._mark(step))
            self._files.rm(f"{self._root.rstrip('/')}/{step}", recursive=True)

    def _steps_found(self) -> dict[int, int]:
        """The complete checkpoints of earlier runs, and when they were asked for."""
        found = {}
        for mark in self._files.glob(f"{self._root.rstrip('/')}/*/{_DONE}"):
            name = mark.rstrip("/").split("/")[-2]
            if name.isdecimal():
                found[int(name)] = json.loads(self._files.cat_file(mark))["time"]
        return found
