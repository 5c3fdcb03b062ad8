"""Tensors that belong together and move to a device together."""

from copy import copy
from typing import Self

import torch
from torch import Tensor


class Tables:
    """Whatever has tensors as attributes, or other tables."""

    def to(self, device: torch.device | str) -> Self:
        """The same with all tensors on another device."""
        moved = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, Tensor | Tables):
                setattr(moved, name, value.to(device))
        return moved
