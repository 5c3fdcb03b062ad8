"""Measure a cohort by every family of metrics and write its report."""

import logging
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from ehr.conditions import Condition
from ehr.disclosure import SMALLEST_SHOWN, rounded, to_step
from ehr.errors import JobCancelledError, LeaseLostError
from ehr.records import Records
from ehr.reports import (
    AugmentationReport,
    DrillDown,
    FamilyReport,
    Figures,
    Pictures,
    Report,
)
from worker.engine.generators import SampleRequest
from worker.engine.metrics import FIDELITY, fidelity
from worker.engine.metrics.classifier import ClassifierError, Label
from worker.engine.metrics.conditional import CONDITIONAL, SMALLEST_SLICE, conditional
from worker.engine.metrics.held_out_elbo import HELD_OUT_ELBO, LogLoss
from worker.engine.metrics.held_out_elbo import measure as measure_elbo
from worker.engine.metrics.privacy import PRIVACY, attack, privacy_verdict
from worker.engine.metrics.utility import UTILITY, augment_label, measurable, predict_label
from worker.evaluation.disclosure import told_attack, told_figures, told_metric, told_verdict
from worker.evaluation.near_identical import too_alike
from worker.evaluation.pictures import RealCounts, drill_down, guided_bars, pictures
from worker.evaluation.subject import Stopwatch, Subject, Watch
from worker.evaluation.verdicts import (
    CRASHED,
    FORBIDDEN,
    PARTLY,
    TOO_ALIKE,
    TOO_FEW,
    family_verdict,
    overall_verdict,
)

log = logging.getLogger(__name__)
REFERENCE_RECORDS = 5000  # unconditional records drawn beside a conditioned cohort
GUIDED, UNGUIDED = "real + guided synthetic", "real + unconditional synthetic"
CUT = "; the larger side is cut to the size of the smaller one"
NOT_ITS_DATA = "not measured, because the model has learned from other data; its report there judges privacy"


def measurements(subject: Subject) -> int:
    """How many measurements a report on the subject takes."""
    conditioned = subject.condition is not None
    n = len(FIDELITY) + 1 + len(CONDITIONAL) * conditioned + len(PRIVACY) * (1 + conditioned)
    return n + (1 if conditioned else 2 * len(subject.label_list)) + conditioned


def report_on(subject: Subject, rng: np.random.Generator, watch: Watch = lambda name, done: None) -> Report:
    """Every family, verdicts, pictures and tables."""
    clock = Stopwatch(watch)
    fidelity_rng, utility_rng, conditional_rng, privacy_rng, slice_rng, reference_rng = rng.spawn(6)
    reference = _reference(subject, reference_rng, clock)
    parts = {
        "fidelity": _fidelity(subject, fidelity_rng, clock),
        "conditional": _conditional(subject, reference, conditional_rng, clock),
        "privacy": _privacy(subject, privacy_rng, clock),
        "slice_privacy": _slice_privacy(subject, slice_rng, clock),
    }
    utility, augmentation = _utility(subject, reference, utility_rng, clock)
    clock.begin("pictures")
    images, tables = _shown(subject, reference)
    clock.end()
    families = {name: family for name, family in (parts | {"utility": utility}).items() if family is not None}
    return Report(
        **subject.ids,
        own_data=subject.own_data,
        records=len(subject.cohort),
        codes=len(subject.vocabulary),
        codes_left_out=subject.codes_left_out,
        condition=subject.asked,
        targets=list(subject.targets),
        verdict=overall_verdict(families),
        **families,
        augmentation=augmentation,
        pictures=images,
        drill_down=tables,
        seconds={name: round(seconds, 3) for name, seconds in clock.seconds.items()},
    )


def support_in_training(condition: Condition, train: Records) -> int | None:
    """About how many training records satisfy it, where that may be shown: reports on nested conditions exist too."""
    return rounded(int(condition.satisfied_by(train).sum()), len(train))


def _reference(subject: Subject, rng: np.random.Generator, clock: Stopwatch) -> Records | None:
    """Records of the same model without the condition; None where they are not needed or cannot be drawn."""
    if subject.condition is None or subject.generator is None:
        return None
    clock.begin("unconditional records")
    n = min(len(subject.cohort), REFERENCE_RECORDS)
    drawn = subject.generator.sample(SampleRequest(n=n, seed=int(rng.integers(2**62))))
    clock.end()
    return drawn


def _fidelity(subject: Subject, rng: np.random.Generator, clock: Stopwatch) -> FamilyReport:
    test, train, synth = (subject.inside(each) for each in (subject.test, subject.train, subject.cohort))
    against = "real test records"
    if subject.condition is not None:
        against += f" that satisfy the condition{CUT}"
    if subject.targets:
        against += " as they are: shares that were asked for count as differences"
    if subject.condition is not None and min(len(test), len(train)) < SMALLEST_SLICE:
        reason = f"fewer than {SMALLEST_SLICE} real records of the train or test split satisfy the condition"
        return FamilyReport(against=against, absent=reason)
    n = len(subject.cohort) if subject.condition is None else None
    metric_rng, elbo_rng = rng.spawn(2)
    following = dict(pairwise(metric.name for metric in FIDELITY))

    def on_progress(name: str, done: int, total: int) -> None:
        if done % (total // len(FIDELITY)) == 0 and name in following:
            clock.begin(following[name])

    clock.begin(FIDELITY[0].name)
    told = {}
    for name, result in fidelity(synth, test, train, metric_rng, on_progress).items():
        figures = {"value": result.value, "floor": result.floor, "independent": result.independent}
        told[name] = told_metric(result.metric, figures, result.verdict, n, len(test))
    clock.begin(HELD_OUT_ELBO.name)
    elbo = measure_elbo(_log_loss(subject), test, train, elbo_rng)
    figures = {"value": elbo.value, "floor": elbo.floor, "independent": elbo.independent}
    told[HELD_OUT_ELBO.name] = told_metric(HELD_OUT_ELBO, figures, elbo.verdict, n, len(test))
    clock.end()
    return FamilyReport(against=against, metrics=told, verdict=family_verdict(told.values()))


def _log_loss(subject: Subject) -> LogLoss | str:
    """How likely the model finds records, or why that is not measured."""
    generator = subject.generator
    if subject.condition is not None:
        return "how likely a record is without the condition says nothing about a conditioned cohort"
    if not subject.own_data:
        return "the model has learned from other data"
    if generator is None:
        return "the model is gone"
    log_loss = generator.log_loss()
    return "this kind of generator cannot tell how likely a record is" if log_loss is None else log_loss


def _utility(
    subject: Subject, reference: Records | None, rng: np.random.Generator, clock: Stopwatch
) -> tuple[FamilyReport, list[AugmentationReport]]:
    against = "a classifier trained on as many real records, both tested on real test records"
    try:
        if subject.condition is not None:
            reason = "a conditioned cohort is no sample of everyone; see what it adds to real records below"
            return FamilyReport(against=against, absent=reason), _guided_augmentation(subject, reference, rng, clock)
        return _all_labels(subject, against, rng, clock)
    except ClassifierError as error:
        return FamilyReport(against=against, absent=str(error)), []


def _all_labels(
    subject: Subject, against: str, rng: np.random.Generator, clock: Stopwatch
) -> tuple[FamilyReport, list[AugmentationReport]]:
    if not subject.label_list:
        return FamilyReport(against=against, absent="the data has none of the diseases to predict"), []
    told, augmentation = {}, []
    for label in subject.label_list:
        clock.begin("utility")
        result = predict_label(label, subject.cohort, subject.test, subject.train, rng)
        for metric in UTILITY:
            figures = result.measured[metric.name]
            key = f"{metric.name}: {label.name}"
            told[key] = told_metric(
                metric, figures, result.verdict(metric), len(subject.cohort), len(subject.test), label.name
            )
        clock.begin("augmentation")
        arms: dict[str, Records | None] = {UNGUIDED: subject.cohort, GUIDED: None}
        if measurable(label, [subject.test, subject.train]) is None:
            augmentation.append(_augmented(subject, label, arms, rng))
    clock.end()
    return FamilyReport(against=against, metrics=told, verdict=family_verdict(told.values())), augmentation


def _guided_augmentation(
    subject: Subject, reference: Records | None, rng: np.random.Generator, clock: Stopwatch
) -> list[AugmentationReport]:
    """Predict what was asked for."""
    condition = subject.condition
    assert condition is not None and subject.asked is not None
    clock.begin("augmentation")
    codes = tuple(sorted(condition.all_of.union(*condition.any_of)))
    name = ", ".join([*subject.asked.all_of, *(code for group in subject.asked.any_of for code in group)])
    label = Label(name, codes)
    found = []
    if codes and measurable(label, [subject.test, subject.train]) is None:
        found.append(_augmented(subject, label, {UNGUIDED: reference, GUIDED: subject.cohort}, rng))
    clock.end()
    return found


def _augmented(
    subject: Subject, label: Label, arms: dict[str, Records | None], rng: np.random.Generator
) -> AugmentationReport:
    result = augment_label(label, subject.train, subject.test, arms, rng)
    told: dict[str, Figures] = {
        arm: {
            name: told_figures(name, {name: measured}, len(subject.cohort), len(subject.test))[name]
            for name, measured in areas.items()
        }
        for arm, areas in result.arms.items()
    }
    sizes = {arm: _told_size(n) if arm == "real + real" else n for arm, n in result.added.items()}
    return AugmentationReport(label=label.name, arms=told, real_records=_told_size(result.start), added=sizes)


def _told_size(n: int) -> int:
    """A number of real records: two that differ by a few patients must not tell by how many."""
    return int(to_step(np.array(n)))


def _conditional(
    subject: Subject, reference: Records | None, rng: np.random.Generator, clock: Stopwatch
) -> FamilyReport | None:
    if subject.condition is None:
        return None
    unseen = Records.concatenate([subject.test, subject.holdout])
    results = conditional(
        subject.cohort, subject.condition, unseen, reference, rng, effective=subject.effective, before=clock.begin
    )
    clock.end()
    inside = subject.inside(unseen)
    few = _codes_that_vary(subject.inside(subject.cohort), inside) < SMALLEST_SHOWN
    told = {
        name: told_metric(result.metric, result.measured, result.verdict, None, len(inside) // 2, few_unknowns=few)
        for name, result in results.items()
    }
    against = f"unseen real records that satisfy the condition, halved{CUT}"
    return FamilyReport(against=against, metrics=told, verdict=family_verdict(told.values()))


def _codes_that_vary(*sets: Records) -> int:
    """How many codes some records of any set have and others do not."""
    counts = [np.bincount(records.indices, minlength=records.n_codes) for records in sets]
    varying = [(there > 0) & (there < len(records)) for there, records in zip(counts, sets, strict=True)]
    return int(np.logical_or.reduce(varying).sum())


def _privacy(subject: Subject, rng: np.random.Generator, clock: Stopwatch) -> FamilyReport:
    against = "unseen real records in the cohort's place (the control)"
    if not subject.own_data:
        return FamilyReport(against=against, absent=NOT_ITS_DATA)
    if not subject.attack:
        return FamilyReport(against=against, absent="the terms of this data forbid attacks", verdict=FORBIDDEN)
    sets = (subject.cohort, subject.train, subject.holdout, subject.test)
    return _attacked(subject, sets, rng, clock.begin, clock, against)


def _slice_privacy(subject: Subject, rng: np.random.Generator, clock: Stopwatch) -> FamilyReport | None:
    """The attacks on the patients who satisfy the condition: the ones a conditioned cohort is about."""
    if subject.condition is None or not subject.attack or not subject.own_data:
        return None
    against = f"unseen real records that satisfy the condition in the cohort's place{CUT}"
    sets = (subject.cohort, *(subject.inside(each) for each in (subject.train, subject.holdout, subject.test)))
    family = _attacked(subject, sets, rng, lambda name: clock.begin(f"slice {name}"), clock, against)
    if family.absent is None and all(metric.verdict is None for metric in family.metrics.values()):
        reason = family.metrics[PRIVACY[0].name].figures["attack"].absent
        return FamilyReport(against=against, absent=reason, verdict=TOO_FEW)
    return family


def _attacked(
    subject: Subject,
    sets: tuple[Records, ...],
    rng: np.random.Generator,
    before: Callable[[str], None],
    clock: Stopwatch,
    against: str,
) -> FamilyReport:
    cohort, train, holdout, test = sets
    if subject.codes_chosen and too_alike(cohort, subject.everyone):
        return FamilyReport(against=against, absent="many of its records are one and the same", verdict=TOO_ALIKE)
    try:
        results = attack(cohort, train, holdout, test, rng, before)
    except (JobCancelledError, LeaseLostError):
        raise
    except Exception as error:  # whatever it is: without this verdict the cohort must not leave
        log.exception("privacy evaluation crashed", extra={"type": type(error).__name__})
        return FamilyReport(against=against, absent=f"an unexpected {type(error).__name__}", verdict=CRASHED)
    finally:
        clock.end()
    size = len(cohort) if train is subject.train else None  # None: a slice
    patients = min(len(train), len(holdout))
    told = {name: told_attack(result, size, patients, subject.codes_chosen) for name, result in results.items()}
    verdict = family_verdict(told.values()) or told_verdict(privacy_verdict(results))
    if verdict is not None and verdict.level == "good" and any(each.verdict is None for each in told.values()):
        verdict = PARTLY
    return FamilyReport(against=against, metrics=told, verdict=verdict)


def _shown(subject: Subject, reference: Records | None) -> tuple[Pictures, DrillDown]:
    """Pictures and tables, against the slice where the cohort is conditioned and the slice is large enough."""
    synth, real = subject.inside(subject.cohort), subject.inside(subject.test)
    everyone = RealCounts.of(subject.test, subject.everyone)
    if subject.condition is None:
        images = pictures(synth, real, everyone, subject.vocabulary)
        return images, drill_down(synth, everyone, subject.train, subject.vocabulary)
    inside, images, tables = None, Pictures(), DrillDown()
    if len(real) >= SMALLEST_SLICE:
        inside = RealCounts.of_slice(real, subject.test, subject.everyone)
        images = pictures(synth, real, inside, subject.vocabulary)
        tables = drill_down(synth, inside, subject.inside(subject.train), subject.vocabulary)
    bars = guided_bars(subject.cohort, subject.condition, everyone, inside, reference, subject.vocabulary)
    return images.model_copy(update={"guided": bars}), tables
