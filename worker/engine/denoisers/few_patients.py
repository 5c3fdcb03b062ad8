"""What few patients have taught a network is said with what many have taught it.

A code that twenty patients have owns a row of some five hundred numbers in the network's output, enough to keep those
twenty apart from everyone else: they are remembered, and whoever asks for all their codes but one gets it back
(docs/decisions/0055). So a rare code's row is what its family's common codes say, and what it says beyond that is kept
in the directions in which rows of codes differ, as many as its patients pay for, and nothing of what is the row's own.
A link between two codes counts as far as patients have both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ehr.records import Records
from ehr.streams import RecordStream

PATIENTS_PER_DIRECTION = 8.0
# A family is believed as far as its common codes have patients; the wider one around it counts as this many.
PATIENTS_PER_FAMILY = 200.0
# With this many patients who have both codes, half of what was learned of the pair is kept.
PATIENTS_PER_LINK = 30.0
# Codes of so many patients or fewer keep nothing of their own, those of twice as many keep all of it; the most first.
RESTRAINTS = (400, 200, 100, 60, 40)
CALIBRATED_ON = 8192  # training records


@dataclass(frozen=True)
class CodeTables:
    """The names of a network's weights that speak for single codes, by what they are."""

    outputs: tuple[str, ...] = ()  # (N, D)
    pairs: tuple[str, ...] = ()  # (M, M): what one code says of another
    paired: tuple[int, ...] | None = None  # the M codes that `pairs` speak of, ascending; None: all
    bias: str = ""  # (N,): what shifts each code's log-odds


@dataclass(frozen=True)
class FewPatients:
    """How many patients stand behind every code and every pair of codes."""

    counts: Tensor  # (N,)
    seen: Tensor  # (M, M) patients who have both, of the codes that have links
    together: Tensor  # (M, M) the same, or as many as are to be expected by chance, whichever is more
    patients: int  # all of them
    some: Records  # a part of the training records, to see how common the network makes each code
    families: Tensor | None = None  # (levels, N) the number of each code's family, the widest first; None: no kin

    @classmethod
    def of(
        cls,
        train: Records | RecordStream,
        device: torch.device,
        paired: Sequence[int] | None = None,
        families: NDArray[np.int64] | None = None,
    ) -> Self:
        """`paired`: the codes that have links to each other; None: all. `families`: as ehr.codes.families has them."""
        counts = np.zeros(train.n_codes, dtype=np.float32)
        n_paired = train.n_codes if paired is None else len(paired)
        seen = np.zeros((n_paired, n_paired), dtype=np.float32)
        for part in (train,) if isinstance(train, Records) else train.pools():
            counts += part.counts().astype(np.float32)
            seen += pair_counts(part, paired)
        of_paired = counts if paired is None else counts[list(paired)]
        together = np.maximum(seen, np.outer(of_paired, of_paired) / max(len(train), 1))
        some = train.take(np.arange(min(len(train), CALIBRATED_ON)))
        kin = None if families is None else torch.from_numpy(families).to(device)
        of_codes, both, expected = (torch.from_numpy(each).to(device) for each in (counts, seen, together))
        return cls(of_codes, both, expected, len(train), some, kin)

    @classmethod
    def behind(
        cls,
        tables: CodeTables,
        train: Records | RecordStream,
        device: torch.device,
        families: NDArray[np.int64] | None = None,
    ) -> Self | None:
        """None where no weight speaks for single codes."""
        return None if tables == CodeTables() else cls.of(train, device, tables.paired, families)

    def applied(self, weights: Mapping[str, Tensor], tables: CodeTables, restraint: int) -> dict[str, Tensor]:
        """All weights, with those restrained that speak for single codes; `weights` stay as they are."""
        kept = {name: weight.detach().clone() for name, weight in weights.items()}
        for name in tables.outputs:
            kept[name] = self.outputs(kept[name], restraint)
        for name in tables.pairs:
            kept[name] = self.links(kept[name])
        return kept

    def outputs(self, table: Tensor, restraint: int) -> Tensor:
        """Rare codes' rows of the table (N, D) as their families have them, and beyond that in the first principal
        directions, in which a code counts as often as it was seen. Codes of `restraint` patients or fewer keep nothing
        else, those of twice as many are as they were.
        """
        rows, counts = table.double(), self.counts.double().unsqueeze(1)
        usual = self.usual(rows, restraint)
        beyond = rows - usual
        _, ascending = torch.linalg.eigh(beyond.T @ (beyond * counts))
        vectors = ascending.flip(1)  # (D, D), a direction in each column
        directions = torch.floor(counts / PATIENTS_PER_DIRECTION).clamp(min=1)  # (N, 1)
        kept = beyond @ vectors * (torch.arange(table.shape[1], device=table.device) < directions)
        shared = usual + kept @ vectors.T
        own = ((counts - restraint) / restraint).clamp(0, 1)
        return torch.where(own == 1, table, (shared + own * (rows - shared)).to(table.dtype))

    def usual(self, rows: Tensor, restraint: int) -> Tensor:
        """The row that a code's family leads to expect, (N, D): the mean of those of its codes that more than
        `restraint` patients have, by their patients; 0 where nothing is known of families."""
        usual = torch.zeros_like(rows)
        patients = self.counts.double().unsqueeze(1)
        patients = torch.where(patients > restraint, patients, 0.0)  # nobody's few patients are asked
        for level in self.families if self.families is not None else ():
            size = int(level.max()) + 1
            total = rows.new_zeros(size, rows.shape[1]).index_add_(0, level, rows * patients)
            behind = rows.new_zeros(size, 1).index_add_(0, level, patients)
            usual = (total[level] + PATIENTS_PER_FAMILY * usual) / (behind[level] + PATIENTS_PER_FAMILY)
        return usual

    def links(self, pairwise: Tensor) -> Tensor:
        """The pairwise table, (M, M), each weight as far as patients stand behind it."""
        square = self.together.square()
        return pairwise * (square / (square + PATIENTS_PER_LINK**2))


def pair_counts(records: Records, paired: Sequence[int] | None) -> NDArray[np.float32]:
    """How many records have both of two codes, (M, M), of all codes or of the `paired` ones; with itself: have it."""
    matrix = records.to_csr() if paired is None else records.to_csr()[:, list(paired)]
    return np.asarray((matrix.T @ matrix).todense(), dtype=np.float32)
