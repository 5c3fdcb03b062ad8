"""Fidelity metrics: each against an independent computation, at its ideal, and where it cannot be computed."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import euclidean_distances, rbf_kernel

from ehr.errors import ConfigError, DataError
from ehr.records import Records
from worker.engine.independent import independent_records
from worker.engine.metrics import FIDELITY, Measurement, cmd, fidelity, fidelity_metric, mmd
from worker.engine.metrics.intervals import N_GROUPS, jackknife_interval, random_groups
from worker.engine.metrics.measurement import CUT_TO_SIZE
from worker.engine.metrics.prevalence_spearman import spearman

N_CODES = 30
# four kinds of patients with their own prevalences: codes are correlated through the kind
PREVALENCES = np.random.default_rng(7).beta(0.6, 3, size=(4, N_CODES))


def patients(n: int, rng: np.random.Generator) -> Records:
    """`n` records of the latent mixture."""
    return Records.from_dense(rng.random((n, N_CODES)) < PREVALENCES[rng.integers(0, 4, n)])


def measured(name: str, cohort: Records, test: Records, train: Records | None = None, seed: int = 0) -> Measurement:
    """One metric; train matters to codes_missing only."""
    return fidelity_metric(name).measure(cohort, test, cohort if train is None else train, np.random.default_rng(seed))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(11)


def dense_sets(min_rows: int = N_GROUPS, n_codes: int = 6) -> st.SearchStrategy[NDArray[np.bool_]]:
    """Small 0/1 arrays (R, N), with constant and repeated columns among them."""
    return st.tuples(st.integers(min_rows, min_rows + 15), st.integers(0, 2**32 - 1), st.floats(0, 1)).map(
        lambda drawn: np.random.default_rng(drawn[1]).random((drawn[0], n_codes)) < drawn[2]
    )


# --- against independent computations ---


def test_spearman_is_scipys_on_prevalences(rng: np.random.Generator) -> None:
    cohort, test = patients(150, rng), patients(200, rng)
    a, b = cohort.to_dense().mean(axis=0), test.to_dense().mean(axis=0)
    rare = b < np.median(b)
    assert measured("prevalence_spearman", cohort, test).value == pytest.approx(stats.spearmanr(a, b).statistic)
    expected = stats.spearmanr(a[rare], b[rare]).statistic
    assert measured("prevalence_spearman_rare", cohort, test).value == pytest.approx(expected)


def test_rare_means_strictly_below_the_median() -> None:
    rows = Records.from_sets([set(range(5 - i // 5)) for i in range(25)], n_codes=5)  # 5, 10, 15, 20, 25 records
    result = measured("prevalence_spearman_rare", rows, rows)
    assert result.absent is not None and "only 2 codes" in result.absent


def test_codes_missing_counts_train_codes_in_no_record() -> None:
    train = Records.from_sets([{0, 1, 2}, {3, 4}], n_codes=8)  # 5, 6, 7 are not in train
    cohort = Records.from_sets([{0, 7}] * 19 + [{1}], n_codes=8)  # 2, 3, 4 are missing
    result = measured("codes_missing", cohort, cohort, train)
    assert result.value == 3
    assert result.low is not None and result.high is not None
    assert result.low <= 3 < result.high <= 5  # code 1 hangs on one record; there are no more than 5 to miss


def test_cmd_is_the_norm_of_the_difference_of_numpys_corrcoef(rng: np.random.Generator) -> None:
    a, b = patients(300, rng).to_dense(), patients(400, rng).to_dense()
    expected = np.linalg.norm(np.corrcoef(a, rowvar=False) - np.corrcoef(b, rowvar=False))
    assert measured("cmd", Records.from_dense(a), Records.from_dense(b)).value == pytest.approx(expected, rel=1e-5)


def test_a_constant_column_correlates_zero(rng: np.random.Generator) -> None:
    a, b = (rng.random((2, 200, 4)) < 0.4).astype(float)
    a[:, 1], a[:, 2] = 0, 1  # never there, always there
    with np.errstate(invalid="ignore"):
        expected = np.nan_to_num(np.corrcoef(a, rowvar=False)) - np.corrcoef(b, rowvar=False)
    result = measured("cmd", Records.from_dense(a), Records.from_dense(b))
    assert result.value == pytest.approx(np.linalg.norm(expected))


@pytest.mark.parametrize("sizes", [(23, 31), (40, 20)])
def test_mmd_is_the_double_loop_over_explicit_kernels(sizes: tuple[int, int], rng: np.random.Generator) -> None:
    x, y = (patients(n, rng).to_dense(np.float64) for n in sizes)
    n, m, pooled = len(x), len(y), np.concatenate([x, y])
    average = np.mean([np.linalg.norm(a - b) for i, a in enumerate(pooled) for j, b in enumerate(pooled) if i != j])

    def kernel(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
        bandwidths = [average * 2 ** (g - 5 / 2) for g in (1, 2, 3, 4, 5)]
        return float(np.mean([np.exp(-np.sum((a - b) ** 2) / (2 * h**2)) for h in bandwidths]))

    within_x = sum(kernel(x[i], x[j]) for i in range(n) for j in range(n) if i != j) / (n * (n - 1))
    within_y = sum(kernel(y[i], y[j]) for i in range(m) for j in range(m) if i != j) / (m * (m - 1))
    across = sum(kernel(a, b) for a in x for b in y) / (n * m)
    result = measured("mmd", Records.from_dense(x), Records.from_dense(y))
    assert result.value == pytest.approx(within_x + within_y - 2 * across, abs=1e-12)


def test_mmd_is_what_sklearns_kernels_give(rng: np.random.Generator) -> None:
    x, y = patients(300, rng).to_dense(np.float64), patients(250, rng).to_dense(np.float64)
    pooled = euclidean_distances(np.concatenate([x, y]))
    average = pooled[~np.eye(len(pooled), dtype=bool)].mean()
    expected = 0.0
    for g in range(1, 6):
        gamma = 1 / (2 * (average * 2 ** (g - 5 / 2)) ** 2)
        xx, yy, xy = rbf_kernel(x, x, gamma), rbf_kernel(y, y, gamma), rbf_kernel(x, y, gamma)
        unbiased = [(k.sum() - len(k)) / (len(k) * (len(k) - 1)) for k in (xx, yy)]
        expected += (sum(unbiased) - 2 * xy.mean()) / 5
    assert measured("mmd", Records.from_dense(x), Records.from_dense(y)).value == pytest.approx(expected, abs=1e-9)


def test_distance_counts_are_those_of_scipy(rng: np.random.Generator) -> None:
    x, y = patients(60, rng), patients(45, rng)
    counts = mmd.distance_counts(random_groups(x, rng), random_groups(y, rng), 2 * N_CODES + 1).sum(axis=(0, 1))
    expected = np.bincount(cdist(x.to_dense(), y.to_dense(), "cityblock").astype(int).ravel())
    np.testing.assert_array_equal(np.trim_zeros(counts, "b"), expected)


def test_mcad_is_half_the_summed_share_differences() -> None:
    cohort = Records.from_sets([{0}] * 10 + [{0, 1}] * 10, n_codes=3)
    test = Records.from_sets([{0}] * 5 + [{1}] * 10 + [{0, 1, 2}] * 5, n_codes=3)
    # shares at 1, 2, 3 codes: (.5, .5, 0) against (.75, 0, .25)
    assert measured("mcad", cohort, test).value == pytest.approx(0.5)


def test_the_jackknife_error_of_a_mean_is_the_textbook_one(rng: np.random.Generator) -> None:
    draws = rng.random(N_GROUPS)
    leave_outs = [float(np.delete(draws, g).mean()) for g in range(N_GROUPS)]
    result = jackknife_interval(float(draws.mean()), leave_outs, (None, None), N_GROUPS)
    expected = stats.t.interval(0.95, N_GROUPS - 1, loc=draws.mean(), scale=stats.sem(draws))
    assert (result.low, result.high) == pytest.approx(expected)


# --- ideals and yardsticks ---


def test_two_samples_of_one_distribution_are_at_the_ideal(rng: np.random.Generator) -> None:
    for seed in range(5):
        same = measured("mmd", patients(400, rng), patients(500, rng), seed=seed)
        assert same.low is not None and same.high is not None
        assert same.low <= 0 <= same.high
    value = measured("mcad", patients(4000, rng), patients(4000, rng)).value
    assert value is not None and value < 0.04


def test_the_mmd_interval_covers_zero_under_one_distribution_and_shrinks(rng: np.random.Generator) -> None:
    small = [measured("mmd", patients(60, rng), patients(80, rng), seed=seed) for seed in range(60)]
    assert sum(m.low <= 0 <= m.high for m in small if m.low is not None and m.high is not None) >= 54
    large = measured("mmd", patients(1000, rng), patients(1000, rng))
    assert large.high is not None and large.low is not None
    assert large.high - large.low < 0.3 * np.median([(m.high or 0) - (m.low or 0) for m in small])


def test_independent_codes_are_worse_than_the_floor_where_codes_are_correlated(rng: np.random.Generator) -> None:
    results = fidelity(patients(1500, rng), patients(1500, rng), patients(3000, rng), rng)
    for name in ("cmd", "mmd"):
        synth, floor, independent = results[name].value, results[name].floor, results[name].independent
        assert independent.low is not None and floor.high is not None and synth.high is not None
        assert independent.low > floor.high  # knowing only the prevalences is not enough
        assert independent.low > synth.high  # and a perfect generator is seen to be better
    assert results["cmd"].value.value == pytest.approx(results["cmd"].floor.value, rel=0.15)


def test_a_large_cohort_is_sampled_and_says_so(rng: np.random.Generator) -> None:
    cohort, test = patients(300, rng), patients(90, rng)
    exact, sampled = (mmd.measure(cohort, test, cohort, np.random.default_rng(0), limit) for limit in (300, 100))
    assert (exact.note, exact.n_used) == (None, 300)
    assert sampled.note is not None and "100 random records" in sampled.note
    assert sampled.n_used == 100


# --- laws ---


@settings(max_examples=40, deadline=None)
@given(dense_sets(), dense_sets())
def test_mcad_is_symmetric_and_within_0_and_1(a: NDArray[np.bool_], b: NDArray[np.bool_]) -> None:
    there = measured("mcad", Records.from_dense(a), Records.from_dense(b))
    back = measured("mcad", Records.from_dense(b), Records.from_dense(a))
    assert there.value is not None and there.low is not None and there.high is not None
    assert there.value == pytest.approx(back.value)
    assert 0 <= there.low <= there.value <= there.high <= 1


@settings(max_examples=40, deadline=None)
@given(dense_sets())
def test_a_set_is_at_no_distance_from_itself(x: NDArray[np.bool_]) -> None:
    records = Records.from_dense(x)
    assert measured("cmd", records, records).value == 0
    assert measured("mcad", records, records).value == 0
    assert measured("codes_missing", records, records).value in (0, None)
    assert measured("prevalence_spearman", records, records).value in (None, pytest.approx(1))


@settings(max_examples=40, deadline=None)
@given(dense_sets(), dense_sets(), st.permutations(range(6)))
def test_renaming_the_codes_changes_nothing(a: NDArray[np.bool_], b: NDArray[np.bool_], order: list[int]) -> None:
    for name in ("prevalence_spearman", "prevalence_spearman_rare", "cmd", "mmd", "mcad"):
        before = measured(name, Records.from_dense(a), Records.from_dense(b))
        after = measured(name, Records.from_dense(a[:, order]), Records.from_dense(b[:, order]))
        assert before.absent == after.absent
        if before.value is not None:
            assert (before.value, before.low, before.high) == pytest.approx((after.value, after.low, after.high))


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=3, max_size=12))
def test_spearman_sees_only_the_order(counts: list[tuple[int, int]]) -> None:
    a, b = np.array(counts, dtype=float).T
    assert spearman(a, b) == pytest.approx(spearman(a**3 + 1, np.sqrt(b)), nan_ok=True)
    assert spearman(a, b) == pytest.approx(spearman(b, a), nan_ok=True)
    assert np.ptp(a) == 0 or spearman(a, np.exp(a / 10)) == pytest.approx(1)


@settings(max_examples=40, deadline=None)
@given(dense_sets(), dense_sets())
def test_cmd_of_any_sets_is_finite_and_symmetric(a: NDArray[np.bool_], b: NDArray[np.bool_]) -> None:
    x, y = (cmd.co_occurrence(Records.from_dense(each)).toarray() for each in (a, b))
    there, back = cmd.distance(x, len(a), y, len(b)), cmd.distance(y, len(b), x, len(a))
    assert np.isfinite(there) and there == pytest.approx(back)


# --- what cannot be computed, and the whole ---


@pytest.mark.parametrize("n", [0, 1, N_GROUPS - 1])
def test_an_empty_or_tiny_cohort_is_absent_with_its_reason(n: int, rng: np.random.Generator) -> None:
    results = fidelity(patients(50, rng).take(range(n)), patients(50, rng), patients(50, rng), rng)
    for result in results.values():
        for each in (result.value, result.floor, result.independent):
            assert (each.value, each.low, each.high) == (None, None, None)
            assert each.absent is not None and f"fewer than {N_GROUPS} records" in each.absent


def test_records_without_codes_leave_metrics_absent_rather_than_nan() -> None:
    empty = Records.from_sets([set()] * 30, n_codes=5)
    results = fidelity(empty, empty, empty, np.random.default_rng(0))
    absent = {name for name, result in results.items() if result.value.absent is not None}
    assert absent == {"prevalence_spearman", "prevalence_spearman_rare", "codes_missing", "mmd"}
    assert results["cmd"].value.value == results["mcad"].value.value == 0


def test_a_measurement_has_a_finite_value_or_a_reason() -> None:
    with pytest.raises(ValueError, match="must say why"):
        Measurement(float("nan"), 0.0, 1.0)
    with pytest.raises(ValueError, match="must say why"):
        Measurement()
    with pytest.raises(ValueError, match="not both"):
        Measurement(1.0, 0.0, 2.0, absent="no reason")


def test_an_unknown_metric_is_refused_with_the_known_ones(rng: np.random.Generator) -> None:
    records = patients(30, rng)
    with pytest.raises(ConfigError, match=r"'accuracy'.*prevalence_spearman, .*mcad"):
        fidelity(records, records, records, rng, names=["cmd", "accuracy"])


def test_different_vocabularies_are_refused(rng: np.random.Generator) -> None:
    records = patients(30, rng)
    with pytest.raises(DataError, match="31 in test"):
        fidelity(records, replace(records, n_codes=31), records, rng)


def test_the_same_seed_gives_the_same_report_and_a_part_of_it_the_same_numbers(rng: np.random.Generator) -> None:
    sets = patients(80, rng), patients(90, rng), patients(100, rng)
    full = fidelity(*sets, np.random.default_rng(3))
    assert full == fidelity(*sets, np.random.default_rng(3))
    assert fidelity(*sets, np.random.default_rng(3), names=["mmd"]) == {"mmd": full["mmd"]}
    assert list(full) == [metric.name for metric in FIDELITY]


def test_all_are_measured_at_the_size_of_a_train_set_smaller_than_the_cohort(rng: np.random.Generator) -> None:
    calls: list[tuple[str, int, int]] = []
    result = fidelity(
        patients(60, rng), patients(60, rng), patients(40, rng), rng, lambda *call: calls.append(call), ["cmd", "mcad"]
    )["cmd"]
    for measured in (result.value, result.floor, result.independent):
        assert measured.n_used == 40 and measured.note == CUT_TO_SIZE
    assert calls == [("cmd", 1, 2), ("mcad", 2, 2)]


# --- independent records ---


def test_independent_records_have_the_prevalences_and_no_correlations(rng: np.random.Generator) -> None:
    prevalence = np.array([0.0, 1.0, 0.5, 0.5, 0.02, 0.9])
    records = independent_records(prevalence, 20_000, rng)
    assert (len(records), records.n_codes) == (20_000, 6)
    np.testing.assert_allclose(records.prevalence(), prevalence, atol=0.015)
    x = records.to_dense()
    assert x.sum() == len(records.indices)  # no code twice in a record
    assert np.abs(np.corrcoef(x[:, 2:], rowvar=False) - np.eye(4)).max() < 0.03
    assert len(independent_records(prevalence, 0, rng)) == 0
