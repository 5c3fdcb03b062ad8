"""The data of a report's pictures and tables, without counts of 1 to 10 real patients."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ehr.codes import meanings as code_systems
from ehr.disclosure import are_shown, large_bins
from ehr.records import Records
from ehr.reports import CodeRow, CorrelationPoint, DrillDown, GroupRow, GuidedBar, Pictures, PrevalencePoint, SizeBin
from ehr.vocabulary import Vocabulary
from worker.engine.metrics.cmd import co_occurrence, correlation
from worker.engine.metrics.measurement import SMALLEST_SLICE
from worker.evaluation.courses import courses_beside
from worker.evaluation.subject import Subject

MOST_OFF = 20
MOST_MISSING = 100
MOST_CATEGORIES = 40
CORRELATED_CODES = 60
MOST_PAIRS = 800
COMPANIONS = 10


@dataclass(frozen=True)
class RealCounts:
    """How many of the real records that a cohort is compared with have each code."""

    counts: NDArray[np.int64]  # (N,)
    total: int

    @classmethod
    def of(cls, real: Records) -> "RealCounts":
        return cls(real.counts().astype(np.int64), len(real))

    @property
    def visible(self) -> NDArray[np.bool_]:
        """The codes whose number of patients may be shown, (N,)."""
        return are_shown(self.counts)

    @property
    def prevalence(self) -> NDArray[np.float64]:
        return np.asarray(self.counts / max(self.total, 1))


def pictures_and_tables(subject: Subject, unconditional: Records | None) -> tuple[Pictures, DrillDown]:
    """Pictures and tables, against the slice where the cohort is conditioned and the slice is large enough."""
    synth, real = subject.inside("cohort"), subject.inside("test")
    everyone = RealCounts.of(subject.test)
    if not subject.is_conditioned:
        images = with_courses(pictures(synth, real, everyone, subject.vocabulary), subject)
        return images, drill_down(synth, everyone, subject.train, subject.vocabulary)
    inside, images, tables = None, Pictures(), DrillDown()
    if len(real) >= SMALLEST_SLICE:
        inside = RealCounts.of(real)
        images = pictures(synth, real, inside, subject.vocabulary)
        tables = drill_down(synth, inside, subject.inside("train"), subject.vocabulary)
    bars = guided_bars(subject.cohort, asked_codes(subject), everyone, inside, unconditional, subject.vocabulary)
    return with_courses(images.model_copy(update={"guided": bars}), subject), tables


def asked_codes(subject: Subject) -> list[int]:
    """The codes that a condition wants."""
    wanted: frozenset[int] = frozenset()
    if subject.condition is not None:
        wanted = subject.condition.all_of.union(*subject.condition.any_of)
    if subject.over_time is not None and subject.over_time.condition is not None:
        asked = subject.over_time.condition
        wanted = wanted.union(*asked.ever, *(codes for pair in asked.before for codes in pair))
    return sorted(wanted)


def with_courses(images: Pictures, subject: Subject) -> Pictures:
    """With pictures of patients over time, where there are any."""
    found = subject.over_time
    if found is None:
        return images
    courses = courses_beside(found.inside("cohort"), found.inside("test"), subject.vocabulary)
    return images.model_copy(update={"courses": courses})


def pictures(synth: Records, real: Records, counts: RealCounts, vocabulary: Vocabulary) -> Pictures:
    """Prevalences, codes per record and correlations of the cohort beside the real records."""
    visible, prevalence, of_synth = counts.visible, counts.prevalence, synth.prevalence()
    median = float(np.median(prevalence)) if len(prevalence) else 0.0
    points = [
        PrevalencePoint(
            code=vocabulary.codes[i],
            real=float(prevalence[i]),
            synthetic=float(of_synth[i]),
            rare=bool(prevalence[i] < median),
        )
        for i in np.flatnonzero(visible & (counts.counts > 0))
    ]
    return Pictures(
        prevalence=points,
        codes_not_shown=int((~visible).sum()),
        sizes=_sizes(synth, real),
        correlation=_correlations(synth, real, counts, vocabulary),
    )


def drill_down(synth: Records, counts: RealCounts, train: Records, vocabulary: Vocabulary) -> DrillDown:
    """Chapters, categories, the codes that are off the most and those that are missing."""
    visible, prevalence, of_synth = counts.visible, counts.prevalence, synth.prevalence()
    in_train = train.counts() > 0
    missing = np.flatnonzero(in_train & (of_synth == 0))
    categories = _groups(code_systems.category, counts, of_synth, vocabulary)
    if all(row.codes == 1 for row in categories):
        categories = []  # the codes are categories already
    categories.sort(key=lambda row: -abs(row.real - row.synthetic))

    def row(i: int) -> CodeRow:
        return CodeRow(
            code=vocabulary.codes[i],
            description=vocabulary.name_of(vocabulary.codes[i]),
            real=float(prevalence[i]) if visible[i] else None,
            synthetic=float(of_synth[i]),
        )

    worst_first = np.argsort(-_surprise(prevalence, counts.total, of_synth, len(synth)) * visible, kind="stable")
    most_missing = missing[np.argsort(-prevalence[missing] * visible[missing], kind="stable")][:MOST_MISSING]
    return DrillDown(
        chapters=_groups(code_systems.chapter, counts, of_synth, vocabulary),
        categories=[
            row.model_copy(update={"description": vocabulary.name_of(row.name) or code_systems.description(row.name)})
            for row in categories[:MOST_CATEGORIES]
        ],
        most_off=[row(int(i)) for i in worst_first[:MOST_OFF] if visible[i]],
        missing=[row(int(i)) for i in most_missing],
        missing_total=len(missing),
    )


def guided_bars(
    synth: Records,
    wanted: list[int],
    everyone: RealCounts,
    inside: RealCounts | None,
    unconditional: Records | None,
    vocabulary: Vocabulary,
) -> list[GuidedBar]:
    """The asked codes, and the codes that set real patients with the condition apart the most."""
    guided = synth.prevalence()
    ordinary = None if unconditional is None else unconditional.prevalence()
    asked = wanted[:COMPANIONS]

    def bar(i: int, real: RealCounts, is_asked: bool) -> GuidedBar:
        return GuidedBar(
            code=vocabulary.codes[i],
            description=vocabulary.name_of(vocabulary.codes[i]),
            real=float(real.prevalence[i]) if real.visible[i] else None,
            unconditional=None if ordinary is None else float(ordinary[i]),
            guided=float(guided[i]),
            asked=is_asked,
        )

    bars = [bar(i, everyone, True) for i in asked]
    if inside is not None:
        lift = np.abs(inside.prevalence - everyone.prevalence) * inside.visible * everyone.visible
        lift[asked] = 0
        bars += [bar(int(i), inside, False) for i in np.argsort(-lift, kind="stable")[:COMPANIONS] if lift[i] > 0]
    return bars


def _sizes(synth: Records, real: Records) -> list[SizeBin]:
    n_bins = int(max(synth.sizes().max(initial=0), real.sizes().max(initial=0))) + 1
    of_synth, of_real = (np.bincount(each.sizes(), minlength=n_bins) for each in (synth, real))
    bins = []
    for first, last in large_bins(of_real):
        here = slice(first, last + 1)
        shares = {
            name: float(found[here].sum() / max(len(records), 1))
            for name, found, records in (("real", of_real, real), ("synthetic", of_synth, synth))
        }
        bins.append(SizeBin(first=first, last=last, **shares))
    return bins


def _correlations(synth: Records, real: Records, counts: RealCounts, vocabulary: Vocabulary) -> list[CorrelationPoint]:
    """Pairs of common codes; a correlation tells how many patients have both, so every cell of the pair's table must
    be one that may be shown."""
    visible = np.flatnonzero(counts.visible & (counts.counts > 0))
    common = visible[np.argsort(-counts.prevalence[visible], kind="stable")][:CORRELATED_CODES]
    if len(common) < 2 or len(synth) == 0:
        return []
    of_real, of_synth = (co_occurrence(each, common).toarray() for each in (real, synth))
    together = of_real.astype(np.int64)
    rho = [correlation(of_real.astype(np.float64), len(real)), correlation(of_synth, len(synth))]
    a, b = np.triu_indices(len(common), 1)
    both, n = together[a, b], together.diagonal()
    cells = (both, n[a] - both, n[b] - both, len(real) - n[a] - n[b] + both)
    fit = np.logical_and.reduce([are_shown(cell) for cell in cells])
    a, b = a[fit], b[fit]
    strongest = np.argsort(-np.maximum(np.abs(rho[0][a, b]), np.abs(rho[1][a, b])), kind="stable")[:MOST_PAIRS]
    return [
        CorrelationPoint(
            codes=(vocabulary.codes[common[i]], vocabulary.codes[common[j]]),
            real=float(rho[0][i, j]),
            synthetic=float(rho[1][i, j]),
        )
        for i, j in zip(a[strongest], b[strongest], strict=True)
    ]


def _groups(
    group_of: Callable[[str], str], counts: RealCounts, of_synth: NDArray[np.float64], vocabulary: Vocabulary
) -> list[GroupRow]:
    """Codes per 100 records, summed over the codes that may be shown: nothing that those do not tell already."""
    prevalence, found = counts.prevalence, dict[str, list[int]]()
    for i in np.flatnonzero(counts.visible):
        found.setdefault(group_of(vocabulary.codes[i]), []).append(int(i))
    return [
        GroupRow(
            name=name,
            codes=len(codes),
            real=float(100 * prevalence[codes].sum()),
            synthetic=float(100 * of_synth[codes].sum()),
        )
        for name, codes in sorted(found.items())
    ]


def _surprise(p: NDArray[np.float64], n_p: int, q: NDArray[np.float64], n_q: int) -> NDArray[np.float64]:
    """By how many standard errors two shares differ, (N,)."""
    pooled = (p * n_p + q * n_q) / max(n_p + n_q, 1)
    error = np.sqrt(pooled * (1 - pooled) * (1 / max(n_p, 1) + 1 / max(n_q, 1)))
    return np.asarray(np.divide(np.abs(p - q), error, out=np.zeros_like(p), where=error > 0))
