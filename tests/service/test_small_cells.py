"""No count of 1 to 10 patients leaves the service, nor anything from which one could be solved for."""

import itertools
import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ehr.conditions import Condition
from ehr.disclosure import large_bins, may_show, shown
from ehr.records import Records
from ehr.reports import Asked, Figure
from ehr.vocabulary import Vocabulary
from tests.reporting import DIABETES, IDS, real_sets, report_on, small_report, subject, vocabulary
from worker.engine.metrics.measurement import CUT_TO_SIZE
from worker.evaluation import Subject
from worker.evaluation.disclosure import NOT_SHOWN, rounded_figure, rounding_step
from worker.evaluation.near_identical import near_identical
from worker.evaluation.pictures import RealCounts, drill_down, pictures

SMALL = set(range(1, 11))


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=8),
    st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40)),
)
def test_differences_of_nested_counts_are_never_small(
    parts: list[tuple[int, int, int]], without: tuple[int, int, int]
) -> None:
    """Whoever knows the shown counts of a slice, of the test split and of all records can subtract them."""
    counts = np.cumsum(np.array(parts).T, axis=0)  # slice, test, everyone: each in the next
    totals = np.cumsum(np.array(parts).T.max(axis=1) + np.array(without))
    visible = may_show(list(counts), [int(n) for n in totals])
    for i in np.flatnonzero(visible):
        known = [(0, 0), *zip(counts[:, i].tolist(), totals.tolist(), strict=True)]
        for (inner, n_inner), (outer, n_outer) in itertools.combinations(known, 2):
            assert outer - inner not in SMALL
            assert (n_outer - n_inner) - (outer - inner) not in SMALL


@given(st.lists(st.integers(0, 40), max_size=60))
def test_merged_bins_hold_everyone_and_none_is_small(counts: list[int]) -> None:
    bins = large_bins(np.array(counts, dtype=np.int64))
    sums = [sum(counts[first : last + 1]) for first, last in bins]
    assert not SMALL & set(sums)
    if sum(counts) > 10:
        assert sum(sums) == sum(counts)  # nothing is left whose number could be the difference
        assert all(a[1] + 1 == b[0] for a, b in itertools.pairwise(bins))
    else:
        assert bins == []


@given(st.integers(20, 20_000), st.data())
def test_rounded_shares_do_not_tell_small_numbers_of_patients(n: int, data: st.DataObject) -> None:
    """Every rounded share stands for many possible numbers of patients, and no number from 1 to 10 is among few."""
    step = rounding_step(n)
    count = data.draw(st.integers(0, 10))
    value = rounded_figure(Figure(value=count / n, low=0.0, high=1.0), step).value
    same = [k for k in range(30) if rounded_figure(Figure(value=k / n, low=0.0, high=1.0), step).value == value]
    assert len(same) >= 5 and count in same


def _numbers(body: Any, path: str = "") -> list[tuple[str, float]]:
    if isinstance(body, dict):
        return [found for name, item in body.items() for found in _numbers(item, f"{path}.{name}")]
    if isinstance(body, list):
        return [found for i, item in enumerate(body) for found in _numbers(item, f"{path}.{i}")]
    return [(path, body)] if isinstance(body, int | float) and not isinstance(body, bool) else []


def test_a_report_cannot_be_solved_for_small_cells() -> None:
    """With the report, the data set's page of codes and every total that is published."""
    real, report = real_sets(), small_report()
    everyone = Records.concatenate([real["train"], real["holdout"], real["test"]])
    n_test, n_all = len(real["test"]), len(everyone)
    in_test, in_all = (np.bincount(r.indices, minlength=r.n_codes) for r in (real["test"], everyone))
    told = {point.code: round(point.real * n_test) for point in report.pictures.prevalence}
    rows = [*report.drill_down.most_off, *report.drill_down.missing]
    told |= {row.code: round(row.real * n_test) for row in rows if row.real is not None}
    assert told
    for code, count in told.items():
        i = vocabulary().positions[code]
        assert count == in_test[i]  # it is the true count: so it must not be small
        on_the_page = shown(int(in_all[i]), n_all)
        assert on_the_page is not None
        for solved in (count, n_test - count, on_the_page - count, (n_all - n_test) - (on_the_page - count)):
            assert solved not in SMALL
    hidden = [code for code, i in vocabulary().positions.items() if in_test[i] in SMALL]
    assert hidden and not set(hidden) & set(told)
    # a chapter tells nothing that its shown codes do not: subtracting those leaves nothing
    for chapter in report.drill_down.chapters:
        assert chapter.codes > 0
    total = sum(chapter.real for chapter in report.drill_down.chapters) * n_test / 100
    visible = RealCounts.of(real["test"], everyone).visible
    assert total == pytest.approx(in_test[visible].sum())
    for size_bin in report.pictures.sizes:
        assert round(size_bin.real * n_test) not in SMALL


def test_correlations_do_not_tell_how_few_have_both() -> None:
    report, test = small_report(), real_sets()["test"]
    x = test.to_dense(np.int64)
    assert report.pictures.correlation
    for point in report.pictures.correlation:
        a, b = (x[:, vocabulary().positions[code]] for code in point.codes)
        table = [int(np.sum((a == i) & (b == j))) for i in (0, 1) for j in (0, 1)]
        assert not SMALL & set(table)
        assert point.real == pytest.approx(np.corrcoef(a, b)[0, 1])


def test_numbers_of_real_records_are_not_told_by_the_way() -> None:
    """`n_used` of a figure is a number of synthetic records or nothing."""
    for conditioned in (False, True):
        body = small_report(conditioned).model_dump(mode="json")
        used = {value for path, value in _numbers(body) if path.endswith("n_used")}
        assert used <= {1500}


def test_no_size_of_a_slice_is_told_in_words_or_numbers() -> None:
    """Two reports on nested conditions would tell by subtraction how few patients lie between."""
    code = vocabulary().positions[DIABETES]
    sizes = {len(real_sets()[name].having(code)) for name in ("train", "holdout", "test")}
    body = small_report(conditioned=True).model_dump(mode="json")
    numbers = {int(n) for n in re.findall(r"(?<![\d.])\d+(?![\d.])", json.dumps(body))}
    assert not sizes & numbers
    blind = body["slice_privacy"]["metrics"]["mir"]["variants"]["at the natural ratio"]["baseline"]["value"]
    ratio = blind / (2 - 2 * blind)  # of train to holdout, from which their sizes could be worked out
    assert ratio == pytest.approx(round(ratio, 1), rel=2e-3)


def test_what_is_told_of_a_slice_does_not_depend_on_how_its_size_compares_with_the_cohorts() -> None:
    """Cohorts of several sizes would tell the size to the patient: above it, some records do not enter."""
    report = small_report(conditioned=True)
    assert report.conditional is not None and report.slice_privacy is not None
    for family in (report.fidelity, report.conditional, report.slice_privacy):
        assert "cut to the size of the smaller" in family.against
        figures = [each for metric in family.metrics.values() for each in metric.figures.values()]
        assert figures and all(figure.n_used is None for figure in figures)
        assert not any(CUT_TO_SIZE in (figure.note or "") for figure in figures)


def test_a_cohort_of_one_record_does_not_tell_whether_a_patient_has_it() -> None:
    """Whoever asks for enough codes can make every record the one they have thought of."""
    thought_of, n_codes = [DIABETES, *vocabulary().codes[10:16]], len(vocabulary())
    codes = [vocabulary().positions[code] for code in thought_of]
    one = Records.from_sets([set(codes)], n_codes)
    condition = Condition.of(n_codes, all_of=codes[:1])
    told = []
    for patients in (0, 1, 10):
        train = Records.concatenate([real_sets()["train"], *[one] * patients])
        asked = Asked(all_of=[DIABETES])
        made = subject(Records.concatenate([one] * 200), condition=condition, asked=asked, train=train, labels=[])
        report = report_on(made, np.random.default_rng(0))
        assert report.slice_privacy is not None and report.privacy.verdict is not None
        told.append((report.privacy, report.slice_privacy))
    assert told[0] == told[1] == told[2] and told[0][0].verdict is not None and told[0][0].verdict.level == "fail"
    common = Records.concatenate([real_sets()["train"], *[one] * 11])
    assert not near_identical(Records.concatenate([one] * 200), common)  # what many patients have betrays nobody
    assert not near_identical(Records.concatenate([one] * 10), real_sets()["train"])


def test_with_chosen_codes_nothing_is_told_of_single_patients() -> None:
    chosen, free = small_report(conditioned=True), small_report()
    assert chosen.slice_privacy is not None
    for family in (chosen.privacy, chosen.slice_privacy):
        copies, closest = (family.metrics[name] for name in ("exact_matches", "dcr"))
        assert all(figure.value is None and figure.absent == NOT_SHOWN for figure in copies.figures.values())
        assert copies.facts == closest.facts == {} and copies.verdict is not None
        assert family.metrics["air"].facts  # how much the attacker knows is nobody's record
    assert free.privacy.metrics["exact_matches"].facts and free.privacy.metrics["dcr"].facts


def test_a_slice_with_one_free_code_is_not_told_to_the_patient() -> None:
    """All codes but one are fixed: the summed difference of prevalences is that one's, a number over so many."""
    names = Vocabulary(tuple(f"A:{i}" for i in range(12)))
    condition = Condition.of(12, all_of=[0], none_of=range(2, 12))
    other = [{0, 1, i} for i in range(2, 12)] * 3
    sets = {name: Records.from_sets([{0}] * 57 + [{0, 1}] * 3 + other, 12) for name in ("train", "holdout", "test")}
    cohort = Records.from_sets([{0}] * 300, 12)
    asked = Asked(all_of=["A:0"])
    made = Subject(cohort, names, **sets, ids=IDS, condition=condition, asked=asked, labels=[])
    report = report_on(made, np.random.default_rng(0))
    assert report.conditional is not None
    told = report.conditional.metrics["slice_prevalence_l1"].figures["value"]
    step = rounding_step(60)
    assert told.value is not None and "rounded" in (told.note or "")
    assert told.value / step == pytest.approx(round(told.value / step))


def test_a_tiny_data_set_shows_nothing() -> None:
    tiny = Records.from_sets([{0, 1}, {1}, {2}], 4)
    counts = RealCounts.of(tiny, tiny)
    names = Vocabulary(("A:0", "A:1", "A:2", "A:3"))
    drawn = pictures(tiny, tiny, counts, names)
    assert drawn.prevalence == [] and drawn.sizes == [] and drawn.correlation == []
    table = drill_down(tiny.take([1]), counts, tiny, names)
    assert [row.real for row in table.missing] == [None, None] and table.missing_total == 2
