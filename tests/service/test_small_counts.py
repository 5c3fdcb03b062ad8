"""No count of 1 to 10 patients is printed, not even for those who hold the records."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ehr.disclosure import large_bins
from ehr.records import Records
from ehr.vocabulary import Vocabulary
from tests.reporting import real_sets, small_report, vocabulary
from worker.evaluation.pictures import RealCounts, drill_down, pictures

SMALL = set(range(1, 11))


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


def test_pictures_and_tables_have_true_counts_and_no_small_ones() -> None:
    report, test = small_report(), real_sets()["test"]
    in_test = np.bincount(test.indices, minlength=test.n_codes)
    rows = [*report.pictures.prevalence, *report.drill_down.most_off, *report.drill_down.missing]
    told = {row.code: round(row.real * len(test)) for row in rows if row.real is not None}
    assert told == {code: in_test[vocabulary().positions[code]] for code in told}
    assert told and not SMALL & set(told.values())
    hidden = [code for code, i in vocabulary().positions.items() if in_test[i] in SMALL]
    assert hidden and report.pictures.codes_not_shown == len(hidden)
    assert not SMALL & {round(size.real * len(test)) for size in report.pictures.sizes}


def test_correlations_do_not_tell_how_few_have_both() -> None:
    report, test = small_report(), real_sets()["test"]
    x = test.to_dense(np.int64)
    assert report.pictures.correlation
    for point in report.pictures.correlation:
        a, b = (x[:, vocabulary().positions[code]] for code in point.codes)
        table = [int(np.sum((a == i) & (b == j))) for i in (0, 1) for j in (0, 1)]
        assert not SMALL & set(table)
        assert point.real == pytest.approx(np.corrcoef(a, b)[0, 1])


def test_a_tiny_data_set_shows_nothing() -> None:
    tiny = Records.from_sets([{0, 1}, {1}, {2}], 4)
    counts, names = RealCounts.of(tiny), Vocabulary(("A:0", "A:1", "A:2", "A:3"))
    drawn = pictures(tiny, tiny, counts, names)
    assert drawn.prevalence == [] and drawn.sizes == [] and drawn.correlation == []
    table = drill_down(tiny.take([1]), counts, tiny, names)
    assert [row.real for row in table.missing] == [None, None] and table.missing_total == 2
