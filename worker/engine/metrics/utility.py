"""Train on synthetic, test on real: is a model learned from the cohort as good as one learned from real records?"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ehr.records import Records
from ehr.reports import Level, Verdict
from worker.engine.metrics.attacks import sampled
from worker.engine.metrics.auprc import AUPRC
from worker.engine.metrics.auroc import AUROC
from worker.engine.metrics.classifier import Label, trained_scores
from worker.engine.metrics.intervals import bootstrapped
from worker.engine.metrics.measurement import Measurement, Metric
from worker.engine.metrics.ranking import AreaMetric, Ranking

N_BOOTSTRAPS = 50
BOOTSTRAP_SHARE = 0.8
SMALLEST_CLASS = 11  # fewer patients with (or without) the code are neither a test nor to be told
TRAININGS_AT_A_TIME = 2
AUGMENTED = 5000  # real records to start from, and records that are added
REAL_ADDED = "real + real"  # the arm that adds more real records
NO_MORE_REAL = "the training set is too small: there are no more real records to add"

UTILITY: tuple[AreaMetric, ...] = (AUROC, AUPRC)
Fit = Callable[[Records, Records, Label], NDArray[np.float64]]  # (train, test, label) -> scores of the test records


@dataclass(frozen=True)
class LabelResult:
    """One label: each metric's `value` (trained on synthetic records), `real` (on as many real ones) and `shortfall`
    (real minus synthetic on the same test records)."""

    label: Label
    measured: Mapping[str, Mapping[str, Measurement]]  # metric -> role -> measurement
    chance: Mapping[str, float]  # metric -> what scores that know nothing give
    expected: float  # records with the label, if the cohort had it as often as the test records

    def verdict(self, metric: Metric) -> Verdict | None:
        """What was lost; a cohort without the disease has lost it all, unless it is too small to have it."""
        chance = self.chance[metric.name]
        value, real = (self.measured[metric.name][role] for role in ("value", "real"))
        if value.absent is not None and real.low is not None and real.low > chance:
            return _unlearned("fail" if self.expected >= 2 * SMALLEST_CLASS else "caution", self.label)
        yardstick = {"chance": Measurement(chance, chance, chance)}
        return metric.verdict({**self.measured[metric.name], **yardstick}, {"label": self.label.words})


@dataclass(frozen=True)
class Augmentation:
    """One label: the metrics after training on real records alone and with others added."""

    label: Label
    arms: Mapping[str, Mapping[str, Measurement]]  # arm -> metric -> measurement
    start: int  # real records that every arm has
    added: Mapping[str, int]  # arm -> records added to them, where there are any


def predict_label(
    label: Label, synth: Records, test: Records, train: Records, rng: np.random.Generator, fit: Fit = trained_scores
) -> LabelResult:
    """AUROC and AUPRC on test of a classifier trained on `synth` and of one trained on as many real records."""
    real = sampled(train, len(synth), rng)
    trial = Trial.of(label, {"value": synth, "real": real}, test, rng, fit)
    found = {role: trial.areas(role) for role in ("value", "real")}
    if len(real) < len(synth):
        note = "all training records: there are fewer of them than synthetic ones"
        found["real"] = {name: measured.noting(note) for name, measured in found["real"].items()}
    found["shortfall"] = trial.differences("real", "value")
    chance = {metric.name: metric.chance(trial.prevalence) for metric in UTILITY}
    for name, lowest in ((name, measured.low) for name, measured in found["real"].items()):
        if lowest is not None and lowest <= chance[name]:
            note = "not judged: a model trained on real records may be no better than chance"
            found["shortfall"][name] = found["shortfall"][name].noting(note)
    measured = {m.name: {role: areas[m.name] for role, areas in found.items()} for m in UTILITY}
    return LabelResult(label, measured, chance, trial.prevalence * len(synth))


def augment_label(
    label: Label,
    train: Records,
    test: Records,
    synthetic: Mapping[str, Records | None],
    rng: np.random.Generator,
    fit: Fit = trained_scores,
) -> Augmentation:
    """What adding records to a small real training set does. `synthetic` are the arms beside more real records; None
    is an arm for which there are no records."""
    order = rng.permutation(len(train))
    start, more = train.take(order[:AUGMENTED]), train.take(order[AUGMENTED : 2 * AUGMENTED])
    added: dict[str, Records | None] = {REAL_ADDED: more if len(more) >= SMALLEST_CLASS else None}
    for name, records in synthetic.items():
        added[name] = None if records is None else sampled(records, AUGMENTED, rng)
    there = {name: each for name, each in added.items() if each is not None}
    trains = {name: Records.concatenate([start, each]) for name, each in there.items()}
    trial = Trial.of(label, {"real": start, **trains}, test, rng, fit)
    arms = {"real": trial.areas("real")}
    for name in added:
        why = NO_MORE_REAL if name == REAL_ADDED else "this report has no such records"
        arms[name] = trial.areas(name) if name in there else _absent(why)
    return Augmentation(label, arms, len(start), {name: len(each) for name, each in there.items()})


def _unlearned(level: Level, label: Label) -> Verdict:
    reason = (
        f"No model for {label.words} can be trained on this cohort: too few of its records have it, or are without."
    )
    advice = "Draw more records, or ask for the disease as a condition."
    return Verdict(level=level, reason=reason, advice=advice)


def measurable(label: Label, sets: Sequence[Records]) -> str | None:
    """Why the label cannot be learned from or tested on these records, or None."""
    for records in sets:
        there = int(label.of(records).sum())
        if min(there, len(records) - there) < SMALLEST_CLASS:
            return f"fewer than {SMALLEST_CLASS} records have it, or are without it"
    return None


@dataclass(frozen=True)
class Trial:
    """Classifiers tested on the same bootstraps of the test records, so that their differences have intervals too."""

    prevalence: float  # of the label among the test records
    drawn: Mapping[str, Mapping[str, NDArray[np.float64]]]  # name -> metric -> area on test, then on each bootstrap
    reasons: Mapping[str, str]  # why there is no classifier of that name

    @classmethod
    def of(
        cls,
        label: Label,
        trains: Mapping[str, Records],
        test: Records,
        rng: np.random.Generator,
        fit: Fit = trained_scores,
    ) -> "Trial":
        """Train on each of `trains`. The same `rng` draws the same bootstraps, so that several trials can be compared.

        Two trainings run at a time, with one thread each: LightGBM's own threads wait for each other at every node of
        every tree, which costs more than it gains and, when the cores are shared, twenty times as much.
        """
        checked = {name: measurable(label, [train, test]) for name, train in trains.items()}
        with ThreadPoolExecutor(TRAININGS_AT_A_TIME) as pool:
            fits = {name: pool.submit(fit, trains[name], test, label) for name, why in checked.items() if why is None}
            scores = {name: each.result() for name, each in fits.items()}
        truth = label.of(test)
        draws = [rng.integers(0, len(test), int(BOOTSTRAP_SHARE * len(test))) for _ in range(N_BOOTSTRAPS)]
        draws = [rows for rows in draws if 0 < truth[rows].sum() < len(rows)]  # an area needs both classes
        drawn = {}
        for name, each in scores.items():
            ranking = Ranking.of(truth, each)
            curves = [ranking.curve(), *map(ranking.curve, draws)]
            drawn[name] = {metric.name: np.array([metric.area(curve) for curve in curves]) for metric in UTILITY}
        reasons = {name: why for name, why in checked.items() if why is not None}
        return cls(float(truth.mean()) if len(test) else 0.0, drawn, reasons)

    def areas(self, name: str) -> dict[str, Measurement]:
        """Of one classifier, by metric."""
        if name in self.reasons:
            return _absent(self.reasons[name])
        return {m: bootstrapped(drawn[0], drawn[1:], (0.0, 1.0)) for m, drawn in self.drawn[name].items()}

    def differences(self, name: str, other: str) -> dict[str, Measurement]:
        """The areas of one classifier minus those of the other, by metric."""
        reason = self.reasons.get(name) or self.reasons.get(other)
        if reason is not None:
            return _absent(reason)
        lost = {m: drawn - self.drawn[other][m] for m, drawn in self.drawn[name].items()}
        return {m: bootstrapped(drawn[0], drawn[1:], (-1.0, 1.0)) for m, drawn in lost.items()}


def _absent(reason: str) -> dict[str, Measurement]:
    return {metric.name: Measurement(absent=reason) for metric in UTILITY}
