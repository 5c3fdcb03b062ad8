"""Attacks on a model of patients over time: members are training patients, others unseen ones, each with all visits.

Three questions, as of records: what does a prompt with all visits of a patient but the last bring back, do the visits
surprise the network less, and does a cohort lie closer to the patient?
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ehr.histories import Histories
from ehr.records import Records
from worker.engine.audit.attack import AucLimits, AuditAttack, Variant
from worker.engine.audit.density_ratio import DENSITY_RATIO, attack_cohort
from worker.engine.audit.effort import affordable, operations
from worker.engine.audit.mask_loss import DRAWS, MASK_LOSS
from worker.engine.audit.people import FEWEST_PEOPLE, MOST_PEOPLE, RARE_SHARE, RAREST, AuditSets, without
from worker.engine.audit.separation import Scores
from worker.engine.histories.protocol import HistoryGenerator, HistoryRequest, LastVisits
from worker.engine.metrics.measurement import Words
from worker.engine.metrics.nearest import nearest
from worker.engine.metrics.time.yardsticks import all_visits

Ints = NDArray[np.int64]
TRIED = 8  # patients on whom it is counted what one takes
TOO_FEW = "there are too few such people among the members or the others"


@dataclass(frozen=True)
class AuditedHistories:
    """A generator, and the patients on whom it is tried."""

    generator: HistoryGenerator
    train: Histories
    unseen: Histories

    @cached_property
    def counts(self) -> Ints:
        """Training patients who ever have each code, (N,)."""
        return np.bincount(self.train.ever().indices, minlength=self.train.n_codes)

    @property
    def rare_below(self) -> float:
        """Fewer other training patients than this make a code rare."""
        return max(RARE_SHARE * len(self.train), RAREST)

    def seen(self, histories: Histories) -> Ints:
        """In how many other training patients each code was seen, (N,): a member does not count."""
        return self.counts - (1 if histories is self.train else 0)

    def sides(self, rng: np.random.Generator, most: int, below: float | None = None) -> list[Histories]:
        """Random members and others; with `below`, such whose rarest code fewer other training patients have."""
        found = []
        for histories in (self.train, self.unseen):
            rows = np.arange(len(histories))
            if below is not None:
                ever = histories.ever()
                rare = (self.seen(histories)[ever.indices] >= 1) & (self.seen(histories)[ever.indices] < below)
                rows = np.unique(ever.rows()[rare])
            found.append(histories.take(rng.permutation(rows)[:most]))
        return found


@dataclass(frozen=True)
class LastVisit:
    """Patients, and a code of each one's last visit that none of the earlier ones has: what is asked about."""

    histories: Histories
    codes: Ints  # (P,)

    @classmethod
    def of(
        cls, model: AuditedHistories, histories: Histories, rng: np.random.Generator, below: float | None, most: int
    ) -> "LastVisit":
        """A random such code, or with `below` the rarest if fewer other training patients than that have it."""
        last = new_at_last_visit(histories)
        seen = model.seen(histories)
        order = np.lexsort((rng.random(len(last.indices)) if below is None else seen[last.indices], last.rows()))
        patients = np.flatnonzero(last.sizes() > 0)
        codes = last.indices[order[last.indptr[:-1][patients]]].astype(np.int64)
        chosen = np.flatnonzero((seen[codes] >= 1) & (seen[codes] < (np.inf if below is None else below)))
        chosen = rng.permutation(chosen)[:most]
        return cls(histories.take(patients[chosen]), codes[chosen])

    def __len__(self) -> int:
        return len(self.codes)

    def known(self, rest_of_visit: bool) -> Records:
        """What is known of the last visit: nothing, or all of it but the code."""
        last = self.histories.visits.take(self.histories.offsets[1:] - 1)
        return without(last, self.codes) if rest_of_visit else Records.from_sets([[]] * len(self), last.n_codes)

    def take(self, rows: Ints) -> "LastVisit":
        return LastVisit(self.histories.take(rows), self.codes[rows])


def new_at_last_visit(histories: Histories) -> Records:
    """The codes of each patient's last visit that no earlier one has; nothing of patients with one visit."""
    visits, n = histories.visits, histories.n_codes
    is_last = np.zeros(len(visits), dtype=bool)
    is_last[histories.offsets[1:] - 1] = True
    here = is_last[visits.rows()]
    key = histories.patients()[visits.rows()] * n + visits.indices
    new = key[here][~np.isin(key[here], key[~here])]
    new = new[histories.visit_counts()[new // n] > 1]
    return Records.from_pairs(new // n, new % n, len(histories), n)


def measure_last_visit(model: AuditedHistories, rng: np.random.Generator) -> list[Variant]:
    """By how often the left-out code was seen, and by whether the rest of the visit is known."""
    asked = {
        "a new code of the last visit": (None, False, False),
        "a rare code, from the visits before": (model.rare_below, False, True),
        "a rare code, from the visits before and the rest of the last": (model.rare_below, True, True),
        f"a code of fewer than {RAREST} patients, from the same": (RAREST, True, True),
    }
    chances = model.generator.last_visits()
    if chances is None:
        reason = "the generator gives no probabilities of visits"
        return [Variant.missing(name, reason, rare) for name, (_, _, rare) in asked.items()]
    most = _most(model, chances, rng)
    variants = []
    for name, (below, rest, rare) in asked.items():
        sides = [LastVisit.of(model, each, rng, below, most) for each in (model.train, model.unseen)]
        if min(len(side) for side in sides) < FEWEST_PEOPLE:
            variants.append(Variant.missing(name, TOO_FEW, rare))
        else:
            members, others = lifts(chances, sides, rest)
            variants.append(Variant(name, members, others, rare=rare))
    return variants


def lifts(chances: LastVisits, sides: list[LastVisit], rest_of_visit: bool) -> list[Scores]:
    """Of each patient, how much likelier the model finds the left-out code than in all the others who are asked about:
    what it says of everyone tells of nobody."""
    shares = [chances(side.histories, side.known(rest_of_visit)).astype(np.float64) for side in sides]
    total, people = sum(share.sum(0) for share in shares), sum(len(side) for side in sides)
    scores = []
    for side, share in zip(sides, shares, strict=True):
        own = share[np.arange(len(side)), side.codes]
        usual = (total[side.codes] - own) / max(people - 1, 1)
        scores.append(np.asarray(own / np.maximum(usual, 1e-12), dtype=np.float64))
    return scores


def _most(model: AuditedHistories, chances: LastVisits, rng: np.random.Generator) -> int:
    """How many patients of each side are asked about."""
    first = LastVisit.of(model, model.train, rng, None, TRIED)
    if len(first) == 0:
        return FEWEST_PEOPLE
    work = operations(lambda: chances(first.histories, first.known(False))) / len(first)
    return affordable(2 * work, FEWEST_PEOPLE, MOST_PEOPLE)


def measure_loss(model: AuditedHistories, rng: np.random.Generator) -> list[Variant]:
    """Everyone, and patients with a rare code."""
    losses, seed = model.generator.history_losses(), int(rng.integers(2**31))
    asked = {"": (None, False), "people with a rare code": (model.rare_below, True)}
    if losses is None:
        reason = "the generator cannot tell how likely a history is"
        return [Variant.missing(name, reason, rare) for name, (_, rare) in asked.items()]
    some = model.train.take(np.arange(min(TRIED, len(model.train))))
    work = operations(lambda: losses(some, seed, DRAWS)) / max(len(some), 1)
    most = affordable(2 * work, FEWEST_PEOPLE, MOST_PEOPLE)
    variants = []
    for name, (below, rare) in asked.items():
        sides = model.sides(rng, most, below)
        if min(len(side) for side in sides) < FEWEST_PEOPLE:
            variants.append(Variant.missing(name, TOO_FEW, rare))
        else:
            members, others = (-losses(side, seed, DRAWS).sum(1) for side in sides)
            variants.append(Variant(name, members, others, rare=rare))
    return variants


def measure_cohort(model: AuditedHistories, rng: np.random.Generator) -> list[Variant]:
    """The attacks on a cohort of records, on all that each patient has at how many visits."""

    def draw(n: int, seed: int) -> Records:
        return all_visits(model.generator.sample(HistoryRequest(n, seed)))

    sets = AuditSets(all_visits(model.train), all_visits(model.unseen))
    return attack_cohort(sets, draw, rng, TRIED, {"nearest patient": nearer})


def nearer(cohort: Records, known: Records, people: Records) -> Scores:
    """By how much the nearest synthetic patient is nearer than the nearest of the people whom the attacker knows."""
    return np.asarray(nearest(people, known) - nearest(people, cohort), dtype=np.float64)


LAST_VISIT = AuditAttack[AuditedHistories](
    name="oracle",
    title="Prompt with all visits but the last",
    limits=AucLimits(caution=0.53, fail=0.57, unsure=0.66),
    words=Words(
        good="Whoever prompts with the visits of a patient learns no more about the next one than of any other person.",
        caution="Prompts bring back slightly more of what training patients have at their last visit than of others.",
        fail="Prompts betray training patients: whoever knows their visits but the last gets back what comes at it.",
        unsure="There are too few people to rule out that prompts betray training patients.",
        advice="Train with more patients or fewer passes over them, or leave out codes that few patients have.",
    ),
    measure=measure_last_visit,
)
HISTORY_LOSS = AuditAttack[AuditedHistories](
    MASK_LOSS.name, "Loss of all visits under masks, with the weights", MASK_LOSS.limits, MASK_LOSS.words, measure_loss
)
HISTORY_COHORT = AuditAttack[AuditedHistories](
    DENSITY_RATIO.name,
    "Density ratio on a cohort, of all visits",
    DENSITY_RATIO.limits,
    replace(DENSITY_RATIO.words, advice="Train with more patients or fewer passes over them."),
    measure_cohort,
)
