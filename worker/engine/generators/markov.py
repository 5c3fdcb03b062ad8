"""Histories by a first-order Markov chain: each code by itself, given whether it was there at the last visit."""

from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from ehr.conditions import Condition
from ehr.disclosure import largest_shown
from ehr.errors import ConfigError
from ehr.generators.markov import MARKOV
from ehr.groups import Groups
from ehr.histories import Histories
from ehr.records import Records
from ehr.rules import Rules
from worker.engine.generators.protocol import SampleProgress, State, chunk_seed
from worker.engine.histories.gaps import GapBuckets
from worker.engine.histories.protocol import (
    HistoryFit,
    HistoryGenerator,
    HistoryRequest,
    LastVisits,
    histories_in_chunks,
)
from worker.engine.histories.tokens import in_order, told
from worker.engine.rules import RuleTable

STATE_VERSION = 2
FEWEST_PATIENTS = 11  # that a set of static codes must have to be drawn
Floats = NDArray[np.float64]


class MarkovGenerator(HistoryGenerator):
    """P(code at the first visit), P(code | it was there last) and P(code | it was not)."""

    spec = MARKOV

    def __init__(
        self,
        codes: Floats,
        static: NDArray[np.uint8],
        static_shares: Floats,
        goes_on: Floats,
        gaps: GapBuckets,
        gap_shares: Floats,
        rules: Rules | None = None,
    ) -> None:
        self.codes = codes  # (3, N): at the first visit, after a visit without the code, after one with it
        self.static, self.static_shares = static, static_shares  # (K, N) sets of static codes, and how common each is
        self.goes_on = goes_on  # (most visits,): P(another visit | so many and one)
        self.gaps, self.gap_shares = gaps, gap_shares
        self.rules = Rules(Groups(codes.shape[1])) if rules is None else rules  # of visits with static codes
        self.rule_table = RuleTable(self.rules)

    @classmethod
    def fit(cls, request: HistoryFit) -> Self:
        histories = request.train
        visits, first = histories.visits, histories.offsets[:-1]
        rows = np.delete(np.arange(len(visits)), histories.offsets[1:] - 1)
        x, y = visits.take(rows).to_csr(np.float64), visits.take(rows + 1).to_csr(np.float64)
        had, both, has = x.sum(axis=0), x.multiply(y).sum(axis=0), y.sum(axis=0)
        # a code that was hardly ever tried is as common as it is anywhere
        prior = visits.prevalence()
        stays, comes = (both + prior) / (had + 1), (has - both + prior) / (len(rows) - had + 1)
        visits_of_each = histories.visit_counts()
        counts = np.bincount(visits_of_each.clip(max=largest_shown(visits_of_each)))[1:]
        reached = counts[::-1].cumsum()[::-1]
        gaps = GapBuckets.of(histories)
        shares = np.bincount(gaps.bucket(histories.gaps[rows + 1]), minlength=len(gaps)).astype(np.float64)
        sets, common = np.unique(histories.static.to_dense(np.uint8), axis=0, return_counts=True)
        kept = common >= min(FEWEST_PATIENTS, common.max())
        return cls(
            np.stack([visits.take(first).prevalence(), comes, stays]),
            sets[kept],
            common[kept] / common[kept].sum(),
            1 - counts / np.maximum(reached, 1),
            gaps,
            shares / max(shares.sum(), 1),
            request.rules,
        )

    def sample(self, request: HistoryRequest, progress: SampleProgress | None = None) -> Histories:
        if request.targets or not (request.condition is None or request.condition.is_empty):
            raise ConfigError("'markov' meets no conditions: it is a yardstick")
        return histories_in_chunks(
            request, self.codes.shape[1], lambda *part: self._draw(request.seed, *part), progress
        )

    def _draw(self, seed: int, chunk: int, patients: int) -> Histories:
        rng = np.random.default_rng(chunk_seed(seed, chunk))
        static = self.static[rng.choice(len(self.static), patients, p=self.static_shares)]
        slots, x = np.arange(patients), rng.random((patients, self.codes.shape[1])) < self.codes[0]
        x = self._keeping_rules(x, static, rng)
        who, gaps, visits = [slots], [np.zeros(patients, np.int64)], [Records.from_dense(x)]
        for goes_on in self.goes_on:
            stay = rng.random(len(slots)) < goes_on
            slots, x = slots[stay], x[stay]
            if len(slots) == 0:
                break
            x = rng.random(x.shape) < np.where(x, self.codes[2], self.codes[1])
            x = self._keeping_rules(x, static[slots], rng)
            who.append(slots)
            visits.append(Records.from_dense(x))
            gaps.append(self.gaps.days(rng.choice(len(self.gaps), len(slots), p=self.gap_shares), rng))
        drawn = Records.concatenate(visits), Records.from_dense(static)
        return in_order(np.concatenate(who), np.concatenate(gaps), *drawn)

    def _keeping_rules(
        self, x: NDArray[np.bool_], static: NDArray[np.uint8], rng: np.random.Generator
    ) -> NDArray[np.bool_]:
        """Visits (B, N) of patients with these static codes (B, N), mended where they break a rule: the patients stay
        who they are."""
        if len(self.rules) == 0:
            return x
        patient = Condition.of(x.shape[1], np.flatnonzero(self.static.any(axis=0)).tolist())
        mended = self.rule_table.mended((x | (static > 0)).astype(np.uint8), patient, self.codes.mean(axis=0), rng)
        return (mended > 0) & ~(static > 0)

    def last_visits(self) -> LastVisits:
        def chances(histories: Histories, known: Records) -> NDArray[np.float32]:
            before = histories.visits.take(np.maximum(histories.offsets[1:] - 2, 0)).to_dense(bool)
            again = np.where(before, self.codes[2], self.codes[1])
            has_one = histories.visit_counts() == 1
            return np.asarray(np.where(has_one[:, None], self.codes[0], again), dtype=np.float32)

        return chances

    def state(self) -> State:
        arrays = {
            "codes": self.codes,
            "static": self.static,
            "static_shares": self.static_shares,
            "goes_on": self.goes_on,
            "gap_edges": self.gaps.edges,
            "gap_days": self.gaps.shares,
            "gap_shares": self.gap_shares,
        }
        tensors = {name: torch.from_numpy(value) for name, value in arrays.items()}
        config: dict[str, Any] = {"generator": self.spec.name, "version": STATE_VERSION}
        return State(tensors, config | told(self.rules))

    @classmethod
    def from_state(cls, state: State) -> Self:
        state.require(cls.spec.name, STATE_VERSION)
        of = {name: tensor.numpy() for name, tensor in state.tensors.items()}
        gaps = GapBuckets(of["gap_edges"], of["gap_days"])
        groups = Groups.from_json(state.config.get("visit_groups", []), range(of["codes"].shape[1]))
        rules = Rules.from_json(state.config.get("visit_rules", {}), groups)
        return cls(of["codes"], of["static"], of["static_shares"], of["goes_on"], gaps, of["gap_shares"], rules)
