"""Codes drawn independently with the right prevalences: the yardstick that knows marginals and nothing else."""

from functools import partial
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from ehr.conditions import Condition
from ehr.errors import ConditionError, DataError
from ehr.generators.independent import INDEPENDENT
from ehr.groups import Groups
from ehr.records import Records
from ehr.rules import Rules
from worker.engine.conditional_prevalence import ConditionalPrevalence
from worker.engine.generators.protocol import (
    Chunk,
    FitRequest,
    Generator,
    LogLoss,
    SampleProgress,
    SampleRequest,
    State,
    sample_in_chunks,
)
from worker.engine.independent import independent_log_loss, independent_records
from worker.engine.rules import RuleTable

STATE_VERSION = 1
TRIES = 100  # to meet an any_of that rules leave hardly a way to meet


class IndependentGenerator(Generator):
    """p(x) = product of Bernoulli(prevalence). Conditions are exact: codes do not depend on each other."""

    spec = INDEPENDENT

    def __init__(
        self, prevalence: NDArray[np.float64], groups: Groups | None = None, rules: Rules | None = None
    ) -> None:
        self.prevalence = prevalence  # (N,)
        self.groups = groups or Groups(len(prevalence))
        self.rules = rules or Rules(self.groups)
        self.rule_table = RuleTable(self.rules)

    @classmethod
    def fit(cls, request: FitRequest) -> Self:
        if len(request.train) == 0:
            raise DataError("there is nothing to learn from: the training records are empty")
        return cls(request.train.prevalence(), request.groups, request.rules)

    def sample(self, request: SampleRequest, progress: SampleProgress | None = None) -> Records:
        self.method_of(request), self.sampling_of(request)  # refuse what cannot be

        def draw(chunk: Chunk) -> Records:
            rng = np.random.default_rng(chunk.seed)
            records = independent_records(self.prevalence, chunk.rows, rng)
            if not request.asks_for_something and len(self.groups) == 0 and len(self.rules) == 0:
                return records
            x: NDArray[Any] = records.to_dense(np.uint8)
            if len(self.groups):  # one variable, not codes by themselves
                x[:, self.groups.group_of >= 0] = 0
                self.groups.draw(x, self.prevalence, rng)
            for rows, condition in chunk.conditions():
                x[rows] = self._possible(x[rows], condition, rng)
            return Records.from_dense(x)

        return sample_in_chunks(request, len(self.prevalence), draw, progress)

    def _possible(self, x: NDArray[Any], condition: Condition | None, rng: np.random.Generator) -> NDArray[Any]:
        """Records under the condition, groups and rules. Where a rule took the last code of an any_of, again."""
        settled = None if condition is None else self.rules.settled(condition)
        unmet = np.arange(len(x))
        for _ in range(TRIES):
            if settled is not None:
                some = self._impose(settled, x[unmet], rng)
                self.groups.mend(some, self.prevalence, rng, settled)
                x[unmet] = some
            x[unmet] = self.rule_table.mended(x[unmet], settled, self.prevalence, rng)
            if settled is None or len(unmet) == 0:
                return x
            unmet = unmet[~settled.satisfied_by(Records.from_dense(x[unmet]))]
        if len(unmet):
            raise ConditionError("rules of the data leave hardly any record that satisfies the condition")
        return x

    def _impose(self, condition: Condition, x: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
        """The same records under the condition; codes it does not name stay as drawn."""
        x[:, sorted(condition.none_of)] = 0
        x[:, sorted(condition.all_of)] = 1
        for group in condition.any_of:
            self._require_any(x, np.array(sorted(group - condition.none_of)), rng)
        return x

    def _require_any(self, x: NDArray[np.float32], codes: NDArray[np.int64], rng: np.random.Generator) -> None:
        """Redraw the group in rows that have none of it, given that they have one.

        Given that some code of the group is present, the first one present (in a fixed order) is code k with
        probability proportional to p_k * prod over j < k of (1 - p_j); codes after it are free.
        """
        missing = np.flatnonzero(x[:, codes].sum(axis=1) == 0)
        p = self.prevalence[codes].clip(1e-12, 1)
        first = p * np.cumprod(np.append(1.0, 1 - p[:-1]))
        k = rng.choice(len(codes), size=len(missing), p=first / first.sum())
        redrawn = (rng.random((len(missing), len(codes))) < p) & (np.arange(len(codes)) > k[:, None])
        redrawn[np.arange(len(missing)), k] = True
        x[np.ix_(missing, codes)] = redrawn

    def conditional_prevalence(self) -> ConditionalPrevalence | None:
        if len(self.groups):
            return None

        def shares(known: Records) -> NDArray[np.float32]:
            given = known.to_dense(np.float32)
            return np.where(given > 0, 1.0, self.prevalence).astype(np.float32)

        return shares

    def log_loss(self) -> LogLoss:
        return partial(independent_log_loss, self.prevalence)

    def state(self) -> State:
        config: dict[str, Any] = {"generator": self.spec.name, "version": STATE_VERSION}
        if len(self.groups):
            config["groups"] = self.groups.as_json(range(self.groups.n_codes))
        if len(self.rules):
            config["rules"] = self.rules.as_json()
        return State({"prevalence": torch.from_numpy(self.prevalence)}, config)

    @classmethod
    def from_state(cls, state: State) -> Self:
        cls.require_own(state, STATE_VERSION)
        prevalence = state.tensors["prevalence"].numpy()
        groups = Groups.from_json(state.config.get("groups", []), range(len(prevalence)))
        return cls(prevalence, groups, Rules.from_json(state.config.get("rules", {}), groups))
