# SPDX-License-Identifier: Apache-2.0
"""How a strategy of Lightning saves and loads."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spmdx._integrations import frame_processes
from spmdx._integrations.lightning import checkpoint as files


class SavingOfStrategy:
    """One file, of which process 0 holds the whole; or a folder, to which each gives its part."""

    _in_folder: bool
    is_global_zero: bool

    restore_checkpoint_after_setup = True

    def lightning_module_state_dict(self) -> dict[str, Any]:
        held = self.lightning_module.state_dict()  # type: ignore[attr-defined]
        return held if self._in_folder else self._whole(held)

    def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
        held = super().optimizer_state(optimizer)  # type: ignore[misc]
        return held if self._in_folder else files.on_host(held, self.is_global_zero)

    def _whole(self, held: dict[str, Any]) -> dict[str, Any]:
        """In the same dict, tensor by tensor."""
        for name in list(held):
            held[name] = files.on_host(held[name], self.is_global_zero)
        return held

    def save_checkpoint(
        self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None
    ) -> None:
        filepath = frame_processes.broadcast(filepath, 0, "saving a checkpoint")
        if self._in_folder:
            if storage_options is not None:
                raise TypeError(
                    f"storage_options is {storage_options!r}. Expected None: a folder is written "
                    "by spmdx.checkpoint. Use save_distributed_checkpoint=False."
                )
            files.save_folder(checkpoint, Path(filepath), self._io)
            return
        checkpoint = files.on_host(checkpoint)
        if self.is_global_zero:
            files.make_way(Path(filepath))
        super().save_checkpoint(checkpoint, filepath, storage_options)  # type: ignore[misc]

    def load_checkpoint(
        self, checkpoint_path: Any, weights_only: bool | None = None
    ) -> dict[str, Any]:
        told = frame_processes.broadcast(checkpoint_path, 0, "loading a checkpoint")
        path, io = Path(told), self._io
        if not files.is_folder(path):
            return io.load_checkpoint(path, weights_only=weights_only)
        module: Any = self.lightning_module  # type: ignore[attr-defined]
        rest = io.load_checkpoint(path / files.REST, weights_only=weights_only)
        # Those of an earlier fit are none of what is validated.
        trains = module.trainer.state.fn == "fit"
        optimizers: list = self.optimizers if trains else []  # type: ignore[attr-defined]
        strict = module.strict_loading
        return files.load_folder(rest, path, module, optimizers, strict)

    @property
    def _io(self) -> Any:
        """What reads and writes files, and so says what of them is trusted."""
        return self.checkpoint_io  # type: ignore[attr-defined]

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        optimizers: list = self.optimizers  # type: ignore[attr-defined]
        for optimizer, held in zip(optimizers, checkpoint["optimizer_states"], strict=False):
            files.load_optimizer(optimizer, held)
