"""Records that are drawn each by itself, by the fast sampler: independent draws of one law.

The fast sampler reveals the codes of a batch in an order that its records share, and how common a code comes out
depends a little on that order. Shared, it would make the records of a chunk more alike than independent ones. So there
is a fixed number of orders, the same for every cohort of a model, and every record draws one of them by itself.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from worker.engine.blocks import in_order
from worker.engine.denoisers import Denoiser
from worker.engine.groups import GroupTable
from worker.engine.reveal import UNDEALT, reveal_sample
from worker.engine.rules import RuleTable

# Four divisions of the codes into blocks, each in both directions. More would make batches too small to be fast.
ORDERS = 8


def reveal_alone(
    denoiser: Denoiser,
    x: Tensor,
    size: Tensor | None,
    blocks_in_order: Callable[[int], list[Tensor]],
    generator: torch.Generator,
    groups: GroupTable | None = None,
    rules: RuleTable | None = None,
) -> Tensor:
    """Reveal the hidden codes of x (B, N), records of `size` (B,) codes, (B, N) uint8 of 0 and 1.

    `blocks_in_order` gives the blocks of order 0 to ORDERS - 1. Nothing is dealt.
    """
    order = torch.randint(ORDERS, (len(x),), generator=generator, device=x.device)
    undealt = torch.full((x.shape[1],), UNDEALT, dtype=torch.float64, device=x.device)
    x_0 = torch.empty_like(x)
    for number in range(ORDERS):
        rows = (order == number).nonzero().squeeze(1)
        if len(rows):
            blocks = denoiser.arranged(blocks_in_order(number))
            known_order = in_order(denoiser.n_codes, blocks)
            reading = denoiser.reading(x[rows], None if size is None else size[rows], order=known_order)
            x_0[rows] = reveal_sample(reading, blocks, undealt, generator, groups, rules)
    return x_0
