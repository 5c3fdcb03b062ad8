"""What is known of a patient's earlier visits when the next one is drawn: the codes ever seen, which of them at the
last visit, how often and how long ago, and a few numbers. Training reads it off whole histories, sampling keeps it up
to date; a test holds the two against each other."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from ehr.histories import Histories

FEATURES = 7


@dataclass(frozen=True)
class Earlier:
    """For B visits to come: the codes seen before each, row by row, and numbers of the patient so far."""

    rows: Tensor  # (K,) ascending
    codes: Tensor  # (K,)
    in_last: Tensor  # (K,) 1.0 if the last visit has the code
    count: Tensor  # (K,) earlier visits that have it
    since: Tensor  # (K,) days from the newest of them to the last visit
    numbers: Tensor  # (B, FEATURES)

    @classmethod
    def of(cls, histories: Histories) -> Self:
        """Before each visit of whole histories."""
        visits = histories.visits
        end = np.repeat(histories.offsets[1:], histories.visit_counts())  # (V,) where the visit's patient ends
        # Occurrences of a code, patient by patient and code by code, in order of time.
        rows, codes = visits.rows(), visits.indices.astype(np.int64)
        patient = histories.patients()[rows]
        key = patient * histories.n_codes + codes
        order = np.argsort(key, kind="stable")
        rows, codes, key = rows[order], codes[order], key[order]
        again = np.append(key[1:] == key[:-1], False)  # the next occurrence is of the same patient and code
        starts = np.append(True, key[1:] != key[:-1]) if len(key) else np.zeros(0, dtype=bool)
        place = np.arange(len(key))
        rank = place - np.maximum.accumulate(np.where(starts, place, 0))
        # What an occurrence says holds from the next visit up to the one at which the code is there again.
        until = np.where(again, np.append(rows[1:], 0), end[rows] - 1)
        spans = until - rows
        which = np.repeat(place, spans)
        visit = rows[which] + 1 + np.arange(len(which)) - np.repeat(np.cumsum(spans) - spans, spans)
        days = histories.days()
        by_visit = np.argsort(visit, kind="stable")
        visit, which = visit[by_visit], which[by_visit]
        return cls(
            torch.from_numpy(visit),
            torch.from_numpy(codes[which]),
            torch.from_numpy((visit == rows[which] + 1).astype(np.float32)),
            torch.from_numpy((rank[which] + 1).astype(np.float32)),
            torch.from_numpy((days[visit - 1] - days[rows[which]]).astype(np.float32)),
            numbers_before(histories),
        )

    def to(self, device: torch.device) -> "Earlier":
        return Earlier(*(getattr(self, name).to(device) for name in self.__dataclass_fields__))

    def bag(self, table: Tensor, weights: Tensor) -> Tensor:
        """Weighted sum over each row's codes of their rows in `table` (N, D), (B, D)."""
        counts = torch.bincount(self.rows, minlength=len(self.numbers))
        offsets = counts.cumsum(0) - counts
        return torch.nn.functional.embedding_bag(
            self.codes, table, offsets, mode="sum", per_sample_weights=weights.to(table.dtype)
        )


def numbers_after(histories: Histories) -> Tensor:
    """What is known of the patient in numbers after each visit, (V, FEATURES)."""
    place = np.arange(len(histories.visits)) - np.repeat(histories.offsets[:-1], histories.visit_counts())
    known = (place + 1, histories.days(), histories.gaps, histories.visits.sizes())
    return numbers(*(torch.from_numpy(each) for each in known))


def numbers_before(histories: Histories) -> Tensor:
    """The same before each visit."""
    nothing = torch.zeros(1)
    before = numbers_after(histories).roll(1, 0)
    before[torch.from_numpy(histories.offsets[:-1])] = numbers(nothing, nothing, nothing, nothing)
    return before


def numbers(number: Tensor, elapsed: Tensor, gap: Tensor, size: Tensor) -> Tensor:
    """What the network is told of a patient in numbers, (B, FEATURES): visits so far, days since the first and between
    the last two of them, codes at the last."""
    number, elapsed, gap, size = (each.float() for each in (number, elapsed, gap, size))
    return torch.stack(
        [
            (number == 0).float(),
            torch.log1p(number),
            number / 10,
            torch.log1p(elapsed) / 5,
            elapsed / 1000,
            torch.log1p(gap) / 5,
            torch.log1p(size),
        ],
        dim=1,
    )


def visits_before(numbers: Tensor) -> Tensor:
    """How many visits a patient has had, (B,), from what `numbers` gave."""
    return torch.expm1(numbers[:, 1]).round().long()


class Journal:
    """Patients whose histories are being drawn, up to date after every visit."""

    def __init__(self, patients: int, n_codes: int, width: int, device: torch.device) -> None:
        self.count = torch.zeros(patients, n_codes, device=device)
        self.seen_on = torch.zeros(patients, n_codes, device=device)
        self.last = torch.zeros(patients, n_codes, dtype=torch.bool, device=device)
        self.number = torch.zeros(patients, dtype=torch.long, device=device)
        self.day = torch.zeros(patients, device=device)
        self.gap = torch.zeros(patients, device=device)
        self.state = torch.zeros(patients, width, device=device)  # of the recurrent network

    def earlier(self) -> Earlier:
        rows, codes = self.count.nonzero(as_tuple=True)
        return Earlier(
            rows,
            codes,
            self.last[rows, codes].float(),
            self.count[rows, codes],
            self.day[rows] - self.seen_on[rows, codes],
            self.numbers(),
        )

    def numbers(self) -> Tensor:
        return numbers(self.number, self.day, self.gap, self.last.sum(1))

    def note(self, codes: Tensor, gap: Tensor) -> None:
        """A visit with these codes (B, N) bool, so many days after the one before, (B,)."""
        self.gap = gap.float()
        self.day = self.day + self.gap
        self.number = self.number + 1
        self.count += codes
        self.seen_on = torch.where(codes, self.day.unsqueeze(1), self.seen_on)
        self.last = codes

    def keep(self, rows: Tensor) -> None:
        """Forget all patients but `rows`, which may name some more than once."""
        for name, value in vars(self).items():
            setattr(self, name, value[rows])
