# SPDX-License-Identifier: Apache-2.0
"""The optimizer of a config, its master weights, and the scale of losses."""

import math
from collections.abc import Iterable
from typing import Any

import torch

from spmdx._integrations.deepspeed.config import LossScale
from spmdx.errors import ShardingError

_ADAM = ("adam", "adamw")
_OTHERS = ("cpuadam", "lamb", "lion", "muon", "muadam", "muadamw", "musgd")


def make_optimizer(said: tuple[str, dict[str, Any]], parameters: Any) -> torch.optim.Optimizer:
    """That of a config's section: PyTorch's of the same formula.

    Raises:
        ShardingError: PyTorch has none, or it refuses a parameter.
    """
    kind, params = said[0], dict(said[1])
    if kind.lower() in _ADAM:
        make = _adam(kind.lower(), params)
    else:
        found = getattr(torch.optim, kind, None) if kind.lower() not in _OTHERS else None
        if not isinstance(found, type) or not issubclass(found, torch.optim.Optimizer):
            raise ShardingError(
                f"optimizer.type is {kind!r}, which PyTorch has not. Expected Adam, AdamW, SGD or "
                "another of torch.optim. Pass yours as optimizer."
            )
        make = found
    try:
        return make(parameters, **params)
    except TypeError as error:
        raise ShardingError(
            f"optimizer.params do not fit {kind}: {error}. Expected those of "
            f"torch.optim.{make.__name__}. Mend them."
        ) from error


def _adam(kind: str, params: dict[str, Any]) -> type[torch.optim.Optimizer]:
    """DeepSpeed's Adam decays weights as AdamW does, and by 0 where nothing is said."""
    decoupled = params.pop("adam_w_mode", True) or kind == "adamw"
    if not params.pop("torch_adam", False):
        params.setdefault("weight_decay", 0.0)
        if params.pop("bias_correction", True) is not True:
            raise ShardingError(
                "optimizer.params.bias_correction is false. Expected true, as torch.optim.Adam has "
                "it. Leave it out."
            )
    if "betas" in params:
        params["betas"] = tuple(params["betas"])
    return torch.optim.AdamW if decoupled else torch.optim.Adam


class Masters:
    """The tensors that the optimizer steps on: float32 beside parameters of fewer bits.

    Gradients of several backward passes add up in them.
    """

    def __init__(self, parameters: Iterable[torch.nn.Parameter]):
        self.pairs: list[tuple[torch.Tensor, torch.nn.Parameter]] = []
        for parameter in parameters:
            master: torch.Tensor = parameter
            if parameter.is_floating_point() and parameter.dtype.itemsize < 4:
                master = torch.nn.Parameter(parameter.detach().float())
            self.pairs.append((master, parameter))

    @property
    def all(self) -> list[torch.Tensor]:
        return [master for master, _ in self.pairs]

    @property
    def apart(self) -> list[torch.Tensor]:
        return [master for master, parameter in self.pairs if master is not parameter]

    def put_into(self, optimizer: torch.optim.Optimizer) -> None:
        """In the place of the parameters.

        Raises:
            ShardingError: the optimizer holds other ones.
        """
        by_id = {id(parameter): master for master, parameter in self.pairs}
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if id(parameter) not in by_id:
                    raise ShardingError(
                        "the optimizer holds a parameter that is none of the model's. Expected "
                        'those of the model on device "spmdx". Make it after model.to("spmdx").'
                    )
            group["params"] = [by_id[id(parameter)] for parameter in group["params"]]

    def take_gradients(self) -> None:
        for master, parameter in self.pairs:
            if master is parameter or parameter.grad is None:
                continue
            new = parameter.grad.detach().float()
            master.grad = new if master.grad is None else master.grad + new
            parameter.grad = None

    @torch.no_grad()
    def give_values(self) -> None:
        for master, parameter in self.pairs:
            if master is not parameter:
                parameter.copy_(master)

    def drop_gradients(self) -> None:
        for master, parameter in self.pairs:
            master.grad = parameter.grad = None


class Scaler:
    """The scale of losses: fixed, or halved by overflows and doubled after a time without."""

    def __init__(self, said: LossScale | None):
        self._said = said or LossScale(1.0)
        self.scale = self._said.fixed or 2.0**self._said.power
        self.patience = self._said.hysteresis  # how many overflows until it is halved
        self.calm = 0  # steps since the last overflow

    def update(self, overflow: bool) -> None:
        said = self._said
        if said.fixed:
            return
        self.calm = 0 if overflow else self.calm + 1
        if overflow and self.patience > 1:
            self.patience -= 1
        elif overflow:
            self._halve()
        else:
            doubles = self.calm % said.window == 0
            self.scale *= 2 if doubles else 1
            if doubles or said.consecutive:
                self.patience = said.hysteresis

    def _halve(self) -> None:
        if self.scale == self._said.least:
            raise OverflowError(
                f"gradients are not finite at the least loss scale, {self.scale}. Expected a model "
                "that trains in fp16. Use bf16, or a lower learning rate."
            )
        self.scale = max(self.scale / 2, self._said.least)

    def state_dict(self) -> dict[str, Any]:
        return {"scale": self.scale, "patience": self.patience, "calm": self.calm}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.scale, self.patience = state_dict["scale"], state_dict["patience"]
        self.calm = state_dict["calm"]


@torch.no_grad()
def unscale_and_clip(masters: list[torch.Tensor], scale: float, most: float) -> torch.Tensor:
    """Divide gradients by ``scale``, let their norm be ``most`` (0: any); the norm before."""
    held = [master for master in masters if master.grad is not None]
    if scale != 1.0:
        for master in held:
            assert master.grad is not None
            master.grad.mul_(1.0 / scale)
    return torch.nn.utils.clip_grad_norm_(held, most or math.inf)
