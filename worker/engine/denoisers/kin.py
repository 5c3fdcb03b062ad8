"""What codes have in common with their kin, learned while a network learns from records.

A rare code's row in a table has few patients to learn from; its family has many. So while training, a row is the sum
of what is the code's own and what its families have, each family's part moved by all of its codes at once. When
training is over the sums take the place of the rows, and nothing is left of the parts (docs/decisions/0139).
"""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

NOBODY = 0  # the row of codes that have no kin at a level; it stays 0
TABLES = {"kin.present": "present.weight", "kin.out": "out.weight"}  # of families, and of the codes they add to


class Kin(nn.Module):
    """The families' parts of a network's input and output tables, (families, width) each."""

    families: Tensor  # (N, levels) the number of each code's family, 0 where it is alone or with everybody

    def __init__(self, families: Tensor, width: int) -> None:
        """`families` (levels, N), as ehr.codes.families has them."""
        super().__init__()
        numbered, last = torch.zeros_like(families), NOBODY
        for level, names in enumerate(families):
            _, of_code, members = torch.unique(names, return_inverse=True, return_counts=True)
            is_one = (members > 1) & (members < len(names))
            number = torch.where(is_one, is_one.long().cumsum(0) + last, NOBODY)
            numbered[level], last = number[of_code], last + int(is_one.sum())
        self.register_buffer("families", numbered.T.contiguous(), persistent=False)
        self.present = nn.Parameter(torch.zeros(last + 1, width, device=families.device))
        self.out = nn.Parameter(torch.zeros(last + 1, width, device=families.device))

    def rows(self, table: Tensor) -> Tensor:
        """What the families of each code have together, (N, width), by their `table`."""
        return F.embedding_bag(self.families, table, mode="sum", padding_idx=NOBODY)  # gathered rows take half a step

    @torch.no_grad()
    def taken_in(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Weights of the network, of which the codes' rows have all and the families' parts are 0."""
        kept = dict(weights)
        for of_families, of_codes in TABLES.items():
            kept[of_codes] = weights[of_codes] + self.rows(weights[of_families])
            kept[of_families] = torch.zeros_like(weights[of_families])
        return kept
