"""Rules as tensors: what a code that is there makes impossible or necessary for the codes to come.

The fast sampler asks before it draws (`Keeping`), so that no probability is spent on what cannot be. Samplers that turn
codes on and off until the end have their last step mended (`RuleTable.mend`).
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ehr.conditions import Condition
from ehr.pairs import Links
from ehr.rules import Rules
from worker.engine.noise import ABSENT, HIDDEN, PRESENT
from worker.engine.tables import Tables


class LinkTable(Tables):
    """For each code other codes, as tensors."""

    def __init__(self, links: Links) -> None:
        self.indptr, self.indices = torch.from_numpy(links.indptr.copy()), torch.from_numpy(links.indices.copy())

    def __len__(self) -> int:
        return len(self.indices)

    def any_of(self, codes: Tensor) -> Tensor:
        """Whether each of the codes has a link at all, (C,)."""
        return self.indptr[codes + 1] > self.indptr[codes]

    def of(self, rows: Tensor, codes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(row, code, linked code) for every link of the given (row, code)."""
        starts, counts = self.indptr[codes], self.indptr[codes + 1] - self.indptr[codes]
        ends = counts.cumsum(0)
        total = int(ends[-1]) if len(ends) else 0
        offsets = torch.arange(total, device=codes.device) - torch.repeat_interleave(ends - counts, counts)
        linked = self.indices[torch.repeat_interleave(starts, counts) + offsets]
        return torch.repeat_interleave(rows, counts), torch.repeat_interleave(codes, counts), linked


class RuleTable(Tables):
    """All rules of a vocabulary, with what follows from them."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.excluded, self.implied = LinkTable(rules.excluded), LinkTable(rules.implied)
        self.implying = LinkTable(rules.implying)
        self.ever_implied = torch.unique(self.implied.indices)
        touched = set(rules.excluded.indices.tolist())
        # groups of which one must be there and some rule rules out a member: they are settled before other codes
        self.leading = [
            torch.tensor(group.codes, dtype=torch.long)
            for group in rules.groups.groups
            if not group.is_optional and touched & set(group.codes)
        ]
        self.group_of = torch.from_numpy(rules.groups.group_of.copy())  # (N,)

    def to(self, device: torch.device | str) -> "RuleTable":
        moved = super().to(device)
        moved.leading = [codes.to(device) for codes in self.leading]
        return moved

    def __len__(self) -> int:
        return len(self.rules)

    def parts(self, codes: Tensor) -> list[Tensor]:
        """Codes that are revealed with one call of the network, in the order they are drawn in: as positions.

        Members of a leading group decide which of the others are possible, so they go first, group by group.
        """
        first = [torch.isin(codes, group) for group in self.leading]
        first = [each for each in first if bool(each.any())]
        others = ~torch.stack([*first, torch.zeros_like(codes, dtype=torch.bool)]).any(0)
        return [each.nonzero().squeeze(1) for each in (*first, others) if bool(each.any())]

    def close(self, x: Tensor) -> Tensor:
        """Reveal in x (W, N) all that follows from what is revealed; which of the records can still exist, (W,)."""
        while True:
            before = x.clone()
            rows, codes = (x == PRESENT).nonzero(as_tuple=True)
            self._set_hidden(x, self.excluded.of(rows, codes), ABSENT)
            self._set_hidden(x, self.implied.of(rows, codes), PRESENT)
            rows, codes = (x == ABSENT).nonzero(as_tuple=True)
            self._set_hidden(x, self.implying.of(rows, codes), ABSENT)
            possible = torch.ones(len(x), dtype=torch.bool, device=x.device)
            for group in self.leading:
                state = x[:, group]
                held, still_open = (state == PRESENT).any(1, keepdim=True), state != ABSENT
                possible &= still_open.any(1)
                alone = (still_open.sum(1, keepdim=True) == 1) & still_open
                x[:, group] = torch.where(held & (state == HIDDEN), ABSENT, torch.where(alone, PRESENT, state))
            if torch.equal(before, x):
                return possible

    @staticmethod
    def _set_hidden(x: Tensor, links: tuple[Tensor, Tensor, Tensor], state: int) -> None:
        row, _, linked = links
        hidden = x[row, linked] == HIDDEN
        x[row[hidden], linked[hidden]] = state

    # --- records that are drawn by other means ---

    def mend(self, x: Tensor, condition: Condition | None, shares: Tensor, generator: torch.Generator) -> Tensor:
        """Records (B, N) uint8 that keep the groups, changed where they break a rule.

        Of two codes that exclude each other one goes: never one of `all_of`, rather any other than one of `any_of` or
        the member of a group, and of two alike the more common one. A member of a group is replaced by another.
        """
        if len(self) == 0 or len(x) == 0:
            return x
        x = x.clone()
        rank = torch.zeros(x.shape[1], dtype=torch.long, device=x.device)
        refused = torch.zeros(x.shape[1], dtype=torch.bool, device=x.device)
        if condition is not None:
            rank[sorted(set().union(*condition.any_of))] = 2
            rank[sorted(condition.all_of)] = 3
            refused[sorted(condition.none_of)] = True
        self._drop(x, rank, rank >= 2, shares, generator)
        for group in self.leading:
            self._replace_members(x, group, rank, refused, shares, generator)
            rank[group] = 3  # what else excludes it goes
        self._drop(x, rank, torch.ones_like(refused), shares, generator)
        rows, codes = (x == PRESENT).nonzero(as_tuple=True)
        row, _, linked = self.implied.of(rows, codes)
        wanted = ~refused[linked]
        x[row[wanted], linked[wanted]] = PRESENT
        return x

    def mended(
        self, x: NDArray[np.uint8], condition: Condition | None, shares: NDArray[np.float64], rng: np.random.Generator
    ) -> NDArray[np.uint8]:
        """The same for arrays."""
        if len(self) == 0:
            return x
        generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
        return self.mend(torch.from_numpy(x), condition, torch.from_numpy(shares), generator).numpy()

    def _drop(self, x: Tensor, rank: Tensor, among: Tensor, shares: Tensor, generator: torch.Generator) -> None:
        """Of every pair of codes `among` (N,) that exclude each other, one goes; two of all_of stay."""
        rows, codes = ((x == PRESENT) & among).nonzero(as_tuple=True)
        row, code, linked = self.excluded.of(rows, codes)
        both = (code < linked) & (x[row, linked] == PRESENT) & among[linked]
        both &= (rank[code] < 3) | (rank[linked] < 3)
        row, code, linked = row[both], code[both], linked[both]
        first_goes = _more_common(shares[code], shares[linked], generator)
        first_goes = torch.where(rank[code] == rank[linked], first_goes, rank[code] < rank[linked])
        x[row, torch.where(first_goes, code, linked)] = ABSENT

    def _replace_members(
        self, x: Tensor, group: Tensor, rank: Tensor, refused: Tensor, shares: Tensor, generator: torch.Generator
    ) -> None:
        """Another member of the group where codes that stay exclude the one that is there."""
        rows, codes = ((x == PRESENT) & (rank > 0)).nonzero(as_tuple=True)
        row, _, linked = self.excluded.of(rows, codes)
        possible = ~refused.expand(len(x), -1).clone()
        possible[row, linked] = False
        wrong = ((x[:, group] == PRESENT) & ~possible[:, group]).any(1).nonzero().squeeze(1)
        weight = shares[group].clamp(min=1e-9) * possible[wrong][:, group]
        can = weight.sum(1) > 0
        wrong, weight = wrong[can], weight[can]
        if len(wrong):
            chosen = torch.multinomial(weight, 1, generator=generator).squeeze(1)
            x[wrong.unsqueeze(1), group] = ABSENT
            x[wrong, group[chosen]] = PRESENT


@dataclass
class Keeping:
    """What rules say of a batch of records while they are revealed."""

    table: RuleTable
    forbidden: Tensor  # (B, N) bool: hidden codes that cannot come any more
    forced: Tensor  # (B, N) bool: hidden codes that must come

    @classmethod
    def of(cls, table: RuleTable, x: Tensor) -> "Keeping":
        return cls(table, torch.zeros_like(x, dtype=torch.bool), torch.zeros_like(x, dtype=torch.bool))

    def settle(self, codes: Tensor, present: Tensor, p: Tensor, generator: torch.Generator) -> Tensor:
        """What was drawn for `codes` (C,), without pairs that exclude each other and with what must come, (B, C).

        Codes of one call are drawn without knowing of each other. Of two that exclude each other the likelier one more
        often gives way: both then lose the same share. Members of groups and what must come stay.
        """
        forced = self.forced.index_select(1, codes)
        present = present | forced
        position = torch.full((len(self.table.group_of),), -1, device=codes.device)
        position[codes] = torch.arange(len(codes), device=codes.device)
        rows, which = present.nonzero(as_tuple=True)
        row, code, linked = self.table.excluded.of(rows, codes[which])
        first, second = position[code], position[linked]
        both = (second > first) & present[row, second.clamp(min=0)]
        row, first, second = row[both], first[both], second[both]
        stays = forced | (self.table.group_of[codes] >= 0)
        first_goes = _more_common(p[row, first], p[row, second], generator)
        first_goes = torch.where(stays[row, first] == stays[row, second], first_goes, stays[row, second])
        present[row, torch.where(first_goes, first, second)] = False
        rows, which = present.nonzero(as_tuple=True)
        row, _, linked = self.table.implied.of(rows, codes[which])
        inside = position[linked] >= 0
        present[row[inside], position[linked[inside]]] = True
        return present

    def forbid_with(self, rows: Tensor, codes: Tensor) -> None:
        """These codes are there in these records, one for one: what they exclude cannot come."""
        row, _, linked = self.table.excluded.of(rows, codes)
        self.forbidden[row, linked] = True

    def note(self, codes: Tensor, present: Tensor) -> None:
        """These codes (C,) are revealed as `present` (B, C)."""
        rows, which = present.nonzero(as_tuple=True)
        self.forbid_with(rows, codes[which])
        row, _, linked = self.table.implied.of(rows, codes[which])
        self.forced[row, linked] = True
        wanted = self.table.implying.any_of(codes).nonzero().squeeze(1)
        rows, which = (~present[:, wanted]).nonzero(as_tuple=True)
        row, _, linked = self.table.implying.of(rows, codes[wanted[which]])
        self.forbidden[row, linked] = True

    def to_come(self, x: Tensor) -> Tensor:
        """How many hidden codes of each record must come, (B,)."""
        can = self.table.ever_implied  # few codes, if any
        return (self.forced.index_select(1, can) & (x.index_select(1, can) == HIDDEN)).sum(1)

    def keep(self, rows: Tensor) -> None:
        """Forget all records but `rows`."""
        self.forbidden, self.forced = self.forbidden[rows], self.forced[rows]


def _more_common(first: Tensor, second: Tensor, generator: torch.Generator) -> Tensor:
    """The first with probability first / (first + second)."""
    drawn = torch.rand(first.shape, generator=generator, device=first.device, dtype=torch.float64)
    return drawn * (first + second).double() < first.double()
