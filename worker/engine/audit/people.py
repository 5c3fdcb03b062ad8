"""Whom an audit attacks: training patients (members) and real people the model has never seen (others)."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ehr.records import Records
from worker.engine.metrics.attacks import sampled

MOST_PEOPLE = 3000  # of each side; more would narrow intervals by little
FEWEST_PEOPLE = 50  # of each side; below, an interval says nothing
RARE_SHARE = 0.002  # of the training records: a code below it is rare,
RAREST = 20  # and one that fewer training patients have is among the rarest


@dataclass(frozen=True)
class Sides:
    """People to be told apart, and for each the code that is left out of what is known of them."""

    members: Records
    others: Records
    of_members: NDArray[np.int64]  # (members,)
    of_others: NDArray[np.int64]

    @property
    def too_few(self) -> bool:
        return min(len(self.members), len(self.others)) < FEWEST_PEOPLE


@dataclass(frozen=True)
class AuditSets:
    """The records of an audit. How often a code was seen is counted without the person in question: by that count
    members and others are alike, if the model remembers none."""

    train: Records
    unseen: Records

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """Training records that have each code, (N,)."""
        return self.train.counts()

    @property
    def rare_below(self) -> float:
        """Fewer other training patients than this make a code rare."""
        return max(RARE_SHARE * len(self.train), RAREST)

    def people(self, rng: np.random.Generator, most: int = MOST_PEOPLE) -> tuple[Records, Records]:
        """Random members and others."""
        return sampled(self.train, most, rng), sampled(self.unseen, most, rng)

    def with_any_code(self, rng: np.random.Generator, most: int = MOST_PEOPLE) -> Sides:
        """Random people, a random code of each left out."""
        sides = []
        for records in self.people(rng, most):
            records = records.take(np.flatnonzero(records.sizes() > 1))
            place = (rng.random(len(records)) * records.sizes()).astype(np.int64)
            sides.append((records, records.indices[records.indptr[:-1] + place].astype(np.int64)))
        (members, of_members), (others, of_others) = sides
        return Sides(members, others, of_members, of_others)

    def with_rarest_code(
        self, below: float, rng: np.random.Generator, *, most: int = MOST_PEOPLE, with_self: bool = False
    ) -> Sides:
        """People whose rarest code fewer than `below` other training patients have, but one at least; that code is left
        out. `with_self`: the person counts too."""
        sides = []
        for records, own in ((self.train, 0 if with_self else 1), (self.unseen, 0)):
            rows, codes = rarest_codes(records, self.counts)
            seen = self.counts[codes] - own
            chosen = np.flatnonzero((seen >= 1) & (seen < below))
            if len(chosen) > most:
                chosen = rng.choice(chosen, most, replace=False)
            sides.append((records.take(rows[chosen]), codes[chosen]))
        (members, of_members), (others, of_others) = sides
        return Sides(members, others, of_members, of_others)


def rarest_codes(records: Records, counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Records with two codes or more, and of each the code that is rarest by `counts` (N,)."""
    rows = records.rows()
    order = np.lexsort((counts[records.indices], rows))
    first = records.indptr[:-1][records.sizes() > 1]
    return np.flatnonzero(records.sizes() > 1), records.indices[order[first]].astype(np.int64)


def without(records: Records, codes: NDArray[np.int64]) -> Records:
    """Each record without one of its codes, (R,)."""
    rows = records.rows()
    kept = records.indices != codes[rows]
    return Records.from_pairs(rows[kept], records.indices[kept], len(records), records.n_codes)
