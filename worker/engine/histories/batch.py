"""Histories as a denoiser learns from them: every visit a record of tokens, with what was known before it."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ehr.disclosure import largest_shown
from ehr.errors import DataError
from ehr.groups import Groups
from ehr.histories import Histories
from worker.engine.denoisers.beside import Beside
from worker.engine.histories.earlier import Earlier, numbers_after
from worker.engine.histories.network import VisitDenoiser
from worker.engine.histories.protocol import HistoryFit
from worker.engine.histories.tokens import VisitTokens


@dataclass(frozen=True)
class Learnable:
    """Histories of bounded length. A patient whose later visits were left out is never said to have ended."""

    histories: Histories
    cut: NDArray[np.bool_]  # (P,)

    @classmethod
    def of(cls, histories: Histories, most_visits: int) -> Self:
        counts = histories.visit_counts()
        cut = counts > most_visits
        if not cut.any():
            return cls(histories, cut)
        place = np.arange(len(histories.visits)) - np.repeat(histories.offsets[:-1], counts)
        rows = np.flatnonzero(place < most_visits)
        offsets = np.concatenate([[0], np.cumsum(np.minimum(counts, most_visits))])
        return cls(Histories(histories.visits.take(rows), offsets, histories.gaps[rows], histories.static), cut)

    def __len__(self) -> int:
        return len(self.histories)

    def take(self, patients: ArrayLike) -> "Learnable":
        patients = np.asarray(patients, dtype=np.int64)
        return Learnable(self.histories.take(patients), self.cut[patients])


def keeping(histories: Histories, visit_groups: Groups | None, static_groups: Groups | None) -> Histories:
    """The patients who, and whose every visit, keep the groups."""
    broken = np.zeros(len(histories), dtype=bool)
    if visit_groups is not None:
        broken[histories.patients()[visit_groups.broken_by(histories.visits).any(axis=1)]] = True
    if static_groups is not None:
        broken |= static_groups.broken_by(histories.static).any(axis=1)
    return histories.take(np.flatnonzero(~broken)) if broken.any() else histories


def learnable(request: HistoryFit, most_visits: int) -> tuple[Learnable, Learnable | None]:
    """Training and held-out patients with up to so many visits, or as many as 11 training patients have: nobody's
    number of visits is where all drawn patients end."""
    groups = request.visit_groups, request.static_groups
    train = keeping(request.train, *groups)
    if len(train) == 0:
        raise DataError("there is nothing to learn from: every patient breaks a group")
    most = min(most_visits, largest_shown(train.visit_counts()))
    holdout = None if request.holdout is None else Learnable.of(keeping(request.holdout, *groups), most)
    return Learnable.of(train, most), holdout


@dataclass(frozen=True)
class Batch:
    """All visits of some patients, as tensors."""

    x_start: Tensor  # (V, tokens)
    known: Tensor  # (V, tokens) bool: what a visit begins with
    earlier: Earlier
    codes: Tensor  # of all visits, one after the other
    begins: Tensor  # (V,) where in `codes` each visit begins
    after: Tensor  # (V, FEATURES)
    patients: Tensor  # (P + 1,) where each patient's visits begin

    @classmethod
    def of(cls, rows: Learnable, tokens: VisitTokens, device: torch.device) -> Self:
        histories = rows.histories
        x_start = torch.from_numpy(tokens.records(histories, rows.cut).to_dense(np.uint8))
        is_first = torch.zeros(len(x_start), 1, dtype=torch.bool)
        is_first[torch.from_numpy(histories.offsets[:-1])] = True
        return cls(
            x_start.to(device),
            known_at_first(is_first, tokens).to(device),
            Earlier.of(histories).to(device),
            torch.from_numpy(histories.visits.indices.astype(np.int64)).to(device),
            torch.from_numpy(histories.visits.indptr[:-1].copy()).to(device),
            numbers_after(histories).to(device),
            torch.from_numpy(histories.offsets.copy()).to(device),
        )

    def beside(self, network: VisitDenoiser) -> Beside:
        """What the visits before each visit say: the recurrent network runs once over every patient."""
        states = network.states(self.codes, self.begins, self.after, self.patients)
        return network.beside(self.earlier, states)


def known_at_first(is_first: Tensor, tokens: VisitTokens) -> Tensor:
    """What is known of a visit before it is drawn, (V, tokens) bool: that it is a first one (V, 1), or what its patient
    is at every visit."""
    token = torch.arange(len(tokens), device=is_first.device)
    is_static = (token >= tokens.first_static) & (token < tokens.first_gap)
    is_gap = (token >= tokens.first_gap) & (token < tokens.first_end)
    return torch.where(is_first, is_gap, is_static)
