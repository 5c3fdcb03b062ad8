"""Several processes that train one network (torch.distributed).

Every process draws the whole batch and works on its share of rows, so that any number of processes follows the same
path as one.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


@dataclass(frozen=True)
class Processes:
    """This process's number among how many."""

    rank: int = 0
    world: int = 1

    @classmethod
    def current(cls) -> "Processes":
        if dist.is_available() and dist.is_initialized():
            return cls(dist.get_rank(), dist.get_world_size())
        return cls()

    @property
    def own_rows(self) -> slice:
        """The rows of a batch that are this process's."""
        return slice(self.rank, None, self.world)

    def together(self, module: nn.Module) -> nn.Module:
        """The module with gradients that are the mean over all processes."""
        return module if self.world == 1 else DistributedDataParallel(module)

    def summing(self, module: nn.Module, ends: bool) -> AbstractContextManager[None]:
        """Around a forward and a backward pass of what `together` gave: gradients stay this process's own until those
        of the last pass of a step are there."""
        return nullcontext() if ends or not isinstance(module, DistributedDataParallel) else module.no_sync()

    def gather(self, values: Tensor) -> Tensor:
        """The values of all processes."""
        if self.world == 1:
            return values
        gathered = [torch.empty_like(values.detach()) for _ in range(self.world)]
        dist.all_gather(gathered, values.detach().contiguous())
        return torch.cat(gathered)

    def agreed(self, value: float, device: torch.device) -> float:
        """The first process's value: every process must come to the same decisions."""
        if self.world == 1:
            return value
        shared = torch.tensor([value], dtype=torch.float64, device=device)
        dist.broadcast(shared, 0)
        return float(shared)
