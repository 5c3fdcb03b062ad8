"""A cohort by itself. Nothing here is given a real record, so nothing of it can tell about one."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ehr.conditions import AskedTarget, Condition, Target
from ehr.groups import Groups
from ehr.records import Records
from ehr.reports import AttainedTarget, MetricReport
from ehr.rules import Rules
from ehr.shareable import CodeShare, SizeShare, SyntheticSide
from ehr.vocabulary import Vocabulary
from worker.engine.metrics.attainment import ATTAINMENT
from worker.engine.metrics.attainment import measure as share_of
from worker.engine.metrics.ess import ESS
from worker.engine.metrics.ess import measure as effective_share
from worker.engine.metrics.groups_broken import GROUPS_BROKEN
from worker.engine.metrics.measurement import Result
from worker.engine.metrics.rules_broken import RULES_BROKEN
from worker.evaluation.figures import of_metric


@dataclass
class Tally:
    """Counts over a cohort, which comes in blocks because it may be large."""

    vocabulary: Vocabulary
    condition: Condition | None = None
    targets: tuple[Target, ...] = ()
    groups: Groups | None = None
    rules: Rules | None = None
    records: int = 0
    satisfied: int = 0
    judged: int = 0  # records that groups and rules are about: of patients over time, their visits
    broken: int = 0  # groups
    against_rules: int = 0
    having: NDArray[np.int64] = field(init=False)  # (N,)
    sizes: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, dtype=np.int64))  # by number of codes
    meeting: list[int] = field(init=False)  # of each target

    def __post_init__(self) -> None:
        self.having = np.zeros(len(self.vocabulary), dtype=np.int64)
        self.meeting = [0] * len(self.targets)

    def add(self, block: Records, visits: Records | None = None) -> None:
        """`visits`: of patients over time, each with who its patient is; groups and rules are about those."""
        self.records += len(block)
        self.having += np.bincount(block.indices, minlength=block.n_codes)
        sizes = np.bincount(block.sizes(), minlength=len(self.sizes))
        sizes[: len(self.sizes)] += self.sizes
        self.sizes = sizes
        for number, target in enumerate(self.targets):
            self.meeting[number] += int(block.having_any(target.codes).sum())
        if self.condition is not None:
            self.satisfied += int(self.condition.satisfied_by(block).sum())
        judged = block if visits is None else visits
        self.judged += len(judged)
        if self.groups is not None:
            self.broken += int(self.groups.broken_by(judged).any(axis=1).sum())
        if self.rules is not None:
            self.against_rules += int(self.rules.broken_by(judged).sum())

    def described(self, effective: float | None) -> SyntheticSide:
        """`effective`: how many independent records the cohort is worth, where they were drawn by weight."""
        n = max(self.records, 1)
        present = np.flatnonzero(self.having)
        common_first = present[np.argsort(-self.having[present], kind="stable")]
        return SyntheticSide(
            codes_per_record=float(self.having.sum() / n),
            codes_present=len(present),
            prevalence=[
                CodeShare(code=self.vocabulary.codes[i], synthetic=float(self.having[i] / n)) for i in common_first
            ],
            sizes=[SizeShare(codes=i, synthetic=float(count / n)) for i, count in enumerate(self.sizes)],
            metrics={result.metric.name: of_metric(result) for result in self._measured(effective)},
        )

    def attained(self, asked: Iterable[AskedTarget]) -> list[AttainedTarget]:
        """The share that was asked for and the share that has one of the codes, for each target."""
        found, n = zip(asked, self.meeting, strict=True), max(self.records, 1)
        return [AttainedTarget(codes=each.codes, asked=each.share, attained=met / n) for each, met in found]

    def _measured(self, effective: float | None) -> Iterator[Result]:
        """The metrics that need no real record."""
        if self.condition is not None:
            yield from _attained(self.satisfied, self.records, effective)
        if self.groups is not None:
            yield Result(GROUPS_BROKEN, {"value": share_of(self.broken, self.judged)})
        if self.rules is not None:
            yield Result(RULES_BROKEN, {"value": share_of(self.against_rules, self.judged)})


def attained(met: int, records: int, effective: float | None) -> list[MetricReport]:
    """How many records have what was asked for, and how many independent ones they are worth."""
    return [of_metric(result) for result in _attained(met, records, effective)]


def _attained(met: int, records: int, effective: float | None) -> Iterator[Result]:
    yield Result(ATTAINMENT, {"value": share_of(met, records)})
    yield Result(ESS, {"value": effective_share(effective, records)})
