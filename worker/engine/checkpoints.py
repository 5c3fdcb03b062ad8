"""Optimisers and weights at rest: flat dictionaries of tensors, ready for safetensors."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ehr.errors import StateError


@dataclass(frozen=True)
class Checkpoint:
    """All that is needed to go on as if nothing had happened: tensors (safetensors-ready) and JSON-ready values."""

    tensors: dict[str, Tensor]
    values: dict[str, Any]

    def under(self, prefix: str) -> dict[str, Tensor]:
        """The tensors that were saved under `prefix`, by the names they had there."""
        start = f"{prefix}/"
        return {name.removeprefix(start): value for name, value in self.tensors.items() if name.startswith(start)}


def flat(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies of `tensors` on the CPU under `prefix`."""
    return {f"{prefix}/{name}": value.detach().cpu().clone() for name, value in tensors.items()}


def require_same_network(saved: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> None:
    """StateError unless `saved` has a tensor of the right shape for each of the weights."""
    for name, weight in weights.items():
        if name not in saved or saved[name].shape != weight.shape:
            raise StateError(f"the checkpoint belongs to another network: '{name}' is missing or of another shape")


def optimiser_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The state of an optimiser, by 'parameter number/name'."""
    return {
        f"{index}/{name}": value
        for index, state in optimiser.state_dict()["state"].items()
        for name, value in state.items()
    }


def load_optimiser(optimiser: torch.optim.Optimizer, saved: Mapping[str, Tensor]) -> None:
    """Give an optimiser the state that `optimiser_tensors` gave."""
    state = optimiser.state_dict()
    state["state"] = {}
    for key, value in saved.items():
        index, _, name = key.partition("/")
        state["state"].setdefault(int(index), {})[name] = value
    optimiser.load_state_dict(state)
