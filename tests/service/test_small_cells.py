"""No count of 1 to 10 patients leaves the service, nor anything from which one could be solved for."""

import itertools
import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_store.reports import Figure
from model_store.small_cells import large_bins, may_show, shown
from model_store.vocabulary import Vocabulary
from tests.reporting import DIABETES, real_sets, small_report, vocabulary
from worker.engine.records import Records
from worker.evaluation.pictures import RealCounts, drill_down, pictures
from worker.evaluation.telling import rounded, rounding_step

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
    told = data.draw(st.integers(0, 10))
    value = rounded(Figure(value=told / n, low=0.0, high=1.0), step).value
    alike = [k for k in range(30) if rounded(Figure(value=k / n, low=0.0, high=1.0), step).value == value]
    assert len(alike) >= 5 and told in alike


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


def test_a_tiny_data_set_shows_nothing() -> None:
    tiny = Records.from_sets([{0, 1}, {1}, {2}], 4)
    counts = RealCounts.of(tiny, tiny)
    names = Vocabulary(("A:0", "A:1", "A:2", "A:3"))
    drawn = pictures(tiny, tiny, counts, names)
    assert drawn.prevalence == [] and drawn.sizes == [] and drawn.correlation == []
    table = drill_down(tiny.take([1]), counts, tiny, names)
    assert [row.real for row in table.missing] == [None, None] and table.missing_total == 2
