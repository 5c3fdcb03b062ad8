"""What few patients have taught a network is said with what many have taught it.

A code that twenty patients have owns a row of some five hundred numbers in each table of the network, enough to keep
those twenty apart from everyone else: they are remembered, and whoever asks for all their codes but one gets it back
(docs/decisions/0055). So what a row says is divided: in the directions in which the rows of common codes differ, as
many as its patients pay for, it stays; the remainder, which is the row's own, is kept in part, the fewer patients the
less. A link between two codes counts as far as patients have both.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from ehr.records import Records

PATIENTS_PER_DIRECTION = 8.0  # for a row that speaks for its code;
PATIENTS_PER_INPUT = 1.0  # for one its code speaks with, which betrays less and costs more to take away
# With this many patients who have both codes, half of what was learned of the pair is kept.
PATIENTS_PER_LINK = 30.0
# How many patients a code needs to keep half of what is its own, from the strongest restraint to none.
RESTRAINTS = (math.inf, 300.0, 100.0, 30.0, 10.0, 3.0, 0.0)
CALIBRATED_ON = 8192  # training records
USUAL_RESTRAINT = 30.0  # where there are no held-out records to choose by


@dataclass(frozen=True)
class CodeTables:
    """The names of a network's weights that belong to single codes, by what they are."""

    outputs: tuple[str, ...] = ()  # (N, D): what speaks for a code
    inputs: tuple[str, ...] = ()  # (N, D): what a code speaks with
    transposed_inputs: tuple[str, ...] = ()  # (D, N)
    pairs: tuple[str, ...] = ()  # (N, N): what one code says of another
    bias: str = ""  # (N,): what shifts each code's log-odds


@dataclass(frozen=True)
class FewPatients:
    """How many patients stand behind every code and every pair of codes."""

    counts: Tensor  # (N,)
    together: Tensor  # (N, N), seen or to be expected by chance, whichever is more
    some: Records  # a part of the training records, to see how common the network makes each code

    @classmethod
    def of(cls, train: Records, device: torch.device) -> Self:
        counts = np.bincount(train.indices, minlength=train.n_codes).astype(np.float32)
        matrix = train.to_csr()
        seen = np.asarray((matrix.T @ matrix).todense(), dtype=np.float32)
        together = np.maximum(seen, np.outer(counts, counts) / max(len(train), 1))
        some = train.take(np.arange(min(len(train), CALIBRATED_ON)))
        return cls(torch.from_numpy(counts).to(device), torch.from_numpy(together).to(device), some)

    def applied(self, weights: Mapping[str, Tensor], tables: CodeTables, restraint: float) -> dict[str, Tensor]:
        """All weights, with those restrained that belong to single codes; `weights` stay as they are."""
        kept = {name: weight.detach().clone() for name, weight in weights.items()}
        for name in tables.outputs:
            kept[name] = self.outputs(kept[name], restraint)
        for name in tables.inputs:
            kept[name] = self.inputs(kept[name], restraint)
        for name in tables.transposed_inputs:
            kept[name] = self.inputs(kept[name].T, restraint).T.contiguous()
        for name in tables.pairs:
            kept[name] = self.links(kept[name])
        return kept

    def outputs(self, table: Tensor, restraint: float) -> Tensor:
        """The rows that speak for codes, (N, D)."""
        directions = torch.floor(self.counts / PATIENTS_PER_DIRECTION).clamp(min=1)
        return self._restrained(table, torch.zeros_like(table[0]).double(), directions, restraint)

    def inputs(self, table: Tensor, restraint: float) -> Tensor:
        """The rows codes speak with, (N, D); about the average row, since a row of zeros would say that the code is
        like none rather than like any."""
        weight = self.counts.double().unsqueeze(1)
        centre = (table.double() * weight).sum(0) / weight.sum()
        return self._restrained(table, centre, self.counts / PATIENTS_PER_INPUT, restraint)

    def links(self, pairwise: Tensor) -> Tensor:
        """The pairwise table, (N, N), each weight as far as patients stand behind it."""
        square = self.together.square()
        return pairwise * (square / (square + PATIENTS_PER_LINK**2))

    def _restrained(self, table: Tensor, centre: Tensor, directions: Tensor, restraint: float) -> Tensor:
        """Each row in its first `directions` (N,) principal ones of the table, in which a code counts as often as it
        was seen, and a part of the remainder."""
        rows, width = table.double() - centre, table.shape[1]
        _, ascending = torch.linalg.eigh(rows.T @ (rows * self.counts.double().unsqueeze(1)))
        vectors = ascending.flip(1)  # (D, D), a direction in each column
        paid_for = torch.arange(width, device=table.device) < directions.unsqueeze(1)  # (N, D)
        shared = (rows @ vectors * paid_for) @ vectors.T
        own = torch.zeros_like(self.counts) if math.isinf(restraint) else self.counts / (self.counts + restraint + 1e-9)
        restrained = centre + shared + own.double().unsqueeze(1) * (rows - shared)
        return torch.where(paid_for.all(1, keepdim=True), table, restrained.to(table.dtype))
