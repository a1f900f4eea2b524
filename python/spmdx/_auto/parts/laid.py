# SPDX-License-Identifier: Apache-2.0
"""How the tensors of a model lie while its parts are planned."""

from collections.abc import Mapping, Sequence

import torch

import spmdx._C as _C
from spmdx._annotate.annotation import annotate, handle_for
from spmdx._annotate.mesh import Mesh
from spmdx._pipelines.held import tensors_of


class Layout:
    """The tensors of a model, as what the axis "model" cuts lays them.

    Attributes:
        mesh: of the axis "model"; None: one device.
    """

    def __init__(self, model: torch.nn.Module):
        self.mesh: Mesh | None = None
        self._specs: Mapping[str, tuple] = {}
        self._tensors = tensors_of(model)
        self._names = {id(t): n for n, t in self._tensors.items()}

    def change(self, mesh: Mesh | None, specs: Mapping[str, tuple]) -> None:
        """All tensors lie so, also those of modules that are never called."""
        self.mesh, self._specs = mesh, specs
        lay([t for t in self._tensors.values() if self._mark(t)])

    def spec(self, tensor: torch.Tensor) -> tuple | None:
        """How a parameter is cut, if it is."""
        return self._specs.get(self._names.get(id(tensor), ""))

    def _mark(self, tensor: torch.Tensor) -> bool:
        """Marks it; whether it lay otherwise before."""
        lies = _C.sharding_of(tensor)
        if self.mesh is None:
            _C.annotate(tensor, None, False)
            return lies is not None
        handle = handle_for(tensor, self.mesh, self.spec(tensor) or (None,) * tensor.dim())
        annotate(tensor, handle)
        return lies is None or bool(lies != handle)


def lay(tensors: Sequence[torch.Tensor]) -> None:
    """Lays tensors as they are annotated, whatever they were before; nobody knows their values."""
    with torch.no_grad():
        for tensor in tensors:
            if _C.is_lazy(tensor):
                unknown(tensor)
    _C.flush()


def unknown(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, with values that nobody can ask for while only planning goes on."""
    return tensor.zero_() if tensor.is_complex() else tensor.random_(0, 2)


def local_bytes(tensor: torch.Tensor) -> int:
    """What a device holds of it; 0 of a tensor that is elsewhere."""
    return _C.local_bytes(tensor) if _C.is_lazy(tensor) else 0
