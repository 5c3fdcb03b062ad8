"""Train on synthetic, test on real: is a model learned from the cohort as good as one learned from real records?"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from worker.engine.metrics.attacks import sampled
from worker.engine.metrics.auprc import AUPRC, auprc
from worker.engine.metrics.auroc import AUROC, auroc
from worker.engine.metrics.classifier import Label, trained_scores
from worker.engine.metrics.groups import CONFIDENCE
from worker.engine.metrics.measurement import Measurement, Metric, Verdict
from worker.engine.records import Records

N_BOOTSTRAPS = 50
BOOTSTRAP_SHARE = 0.8
SMALLEST_CLASS = 11  # fewer patients with (or without) the code are neither a test nor to be told
TRAININGS_AT_A_TIME = 2
AUGMENTED = 5000  # real records to start from, and records that are added

UTILITY: tuple[Metric, ...] = (AUROC, AUPRC)
AREAS: dict[str, Callable[[NDArray[np.bool_], NDArray[np.float64]], float]] = {"auroc": auroc, "auprc": auprc}
Fit = Callable[[Records, Records, Label], NDArray[np.float64]]  # (train, test, label) -> scores of the test records


@dataclass(frozen=True)
class LabelResult:
    """One label: each metric's `value` (trained on synthetic records) and `real` (on as many real ones)."""

    label: Label
    measured: Mapping[str, Mapping[str, Measurement]]  # metric -> role -> measurement

    def verdict(self, metric: Metric) -> Verdict | None:
        return metric.verdict(self.measured[metric.name], {"label": self.label.name})


@dataclass(frozen=True)
class Augmentation:
    """One label: the metrics after training on real records alone and with others added."""

    label: Label
    arms: Mapping[str, Mapping[str, Measurement]]  # arm -> metric -> measurement


def predict_label(
    label: Label, synth: Records, test: Records, train: Records, rng: np.random.Generator, fit: Fit = trained_scores
) -> LabelResult:
    """AUROC and AUPRC on test of a classifier trained on `synth` and of one trained on as many real records."""
    real = sampled(train, len(synth), rng)
    found = areas(label, {"value": synth, "real": real}, test, rng, fit)
    if len(real) < len(synth):
        note = "all training records: there are fewer of them than synthetic ones"
        found["real"] = {name: measured.noting(note) for name, measured in found["real"].items()}
    return LabelResult(label, {m.name: {role: areas[m.name] for role, areas in found.items()} for m in UTILITY})


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
    arms: dict[str, Records | None] = {"real": start, "real + real": Records.concatenate([start, more])}
    for name, records in synthetic.items():
        arms[name] = None if records is None else Records.concatenate([start, sampled(records, AUGMENTED, rng)])
    found = areas(label, {name: each for name, each in arms.items() if each is not None}, test, rng, fit)
    missing = _absent("this report has no such records")
    return Augmentation(label, {name: found.get(name, missing) for name in arms})


def areas(
    label: Label,
    trains: Mapping[str, Records],
    test: Records,
    rng: np.random.Generator,
    fit: Fit = trained_scores,
) -> dict[str, dict[str, Measurement]]:
    """Both areas after training on each of `trains`, tested on the same bootstraps.

    The same `rng` draws the same bootstraps, so that classifiers of several calls can be compared.

    Two trainings run at a time, with one thread each: LightGBM's own threads wait for each other at every node of
    every tree, which costs more than it gains and, when the cores are shared, twenty times as much.
    """
    reasons = {name: measurable(label, [train, test]) for name, train in trains.items()}
    with ThreadPoolExecutor(TRAININGS_AT_A_TIME) as pool:
        fits = {name: pool.submit(fit, train, test, label) for name, train in trains.items() if reasons[name] is None}
        scores = {name: each.result() for name, each in fits.items()}
    truth = label.of(test)
    draws = [rng.integers(0, len(test), int(BOOTSTRAP_SHARE * len(test))) for _ in range(N_BOOTSTRAPS)]
    draws = [rows for rows in draws if 0 < truth[rows].sum() < len(rows)]  # an area needs both classes
    found = {}
    for name, reason in reasons.items():
        if reason is not None:
            found[name] = _absent(reason)
        else:
            found[name] = {m.name: _with_interval(AREAS[m.name], truth, scores[name], draws) for m in UTILITY}
    return found


def measurable(label: Label, sets: Sequence[Records]) -> str | None:
    """Why the label cannot be learned from or tested on these records, or None."""
    for records in sets:
        there = int(label.of(records).sum())
        if min(there, len(records) - there) < SMALLEST_CLASS:
            return f"fewer than {SMALLEST_CLASS} records have it, or are without it"
    return None


def _with_interval(
    area: Callable[[NDArray[np.bool_], NDArray[np.float64]], float],
    truth: NDArray[np.bool_],
    scores: NDArray[np.float64],
    draws: Sequence[NDArray[np.int64]],
) -> Measurement:
    value = area(truth, scores)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile([area(truth[rows], scores[rows]) for rows in draws], [tail, 1 - tail])
    return Measurement.within((0.0, 1.0), value, min(low, value), max(high, value))


def _absent(reason: str) -> dict[str, Measurement]:
    return {metric.name: Measurement(absent=reason) for metric in UTILITY}
