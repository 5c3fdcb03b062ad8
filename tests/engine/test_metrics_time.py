"""Metrics of patients over time: at their ideal for equal patients, worse for shuffled ones, right on small cases."""

from functools import cache

import numpy as np
import pytest

from ehr.codes.systems import band_middle
from ehr.errors import ConfigError
from ehr.histories import Histories
from ehr.records import Records, indptr_of
from worker.engine.generators.markov import MarkovGenerator
from worker.engine.histories.protocol import HistoryFit, HistoryRequest
from worker.engine.metrics.time import TIME, plan_time
from worker.engine.metrics.time.ks import ks_distance
from worker.engine.metrics.time.next_visit import _placements, ever_so_far
from worker.engine.metrics.time.onset import onsets
from worker.engine.metrics.time.onset_age import first_ages
from worker.engine.metrics.time.r2 import Counts, codes_of, pairs_across, pairs_within, r_squared
from worker.engine.metrics.time.recurrence import recurrences
from worker.engine.metrics.time.yardsticks import OFTEN, all_visits, shuffled
from worker.engine.population import simulate_histories


@cache
def simulated(n: int, seed: int) -> Histories:
    return simulate_histories(n, seed)[0]


CODES = simulate_histories(1, 0)[1].codes


# two patients: {0, 1} -> {1} after 5 days -> {0, 2} after 7; {2} alone
SMALL = Histories(
    Records.from_sets([[0, 1], [1], [0, 2], [2]], 3),
    np.array([0, 3, 4]),
    np.array([0, 5, 7, 0], dtype=np.int32),
    Records.from_sets([[], []], 3),
)


def counted(find: object) -> dict[int, tuple[float, float]]:
    found = Counts.of(SMALL, find, np.zeros(2, np.int64))  # type: ignore[arg-type]
    return {
        int(key): (float(visit), float(record))
        for key, visit, record in zip(found.keys, found.per_visit.sum(0), found.per_record.sum(0), strict=True)
    }


def test_keys_are_counted_per_visit_and_per_record() -> None:
    assert counted(codes_of) == {0: (2, 1), 1: (2, 1), 2: (2, 2)}
    assert counted(pairs_within) == {0 * 3 + 1: (1, 1), 0 * 3 + 2: (1, 1)}
    assert counted(pairs_across) == {0 * 3 + 1: (1, 1), 1 * 3 + 1: (1, 1), 1 * 3 + 0: (1, 1), 1 * 3 + 2: (1, 1)}
    rows, keys = pairs_across(SMALL, repeats=False)
    assert 1 * 3 + 1 not in keys.tolist() and len(rows) == 3


def test_small_cases() -> None:
    assert r_squared(np.array([0.0, 1.0]), np.array([0.0, 1.0])) == 1
    assert r_squared(np.array([0.0, 1.0]), np.array([0.5, 0.5])) == 0
    assert r_squared(np.array([1.0, 1.0]), np.array([0.5, 0.5])) is None
    assert ks_distance(np.array([1, 2]), np.array([2, 3])) == 0.5
    assert ks_distance(np.array([], dtype=np.int64), np.array([2])) is None
    tried, again = recurrences(SMALL, np.random.default_rng(0)).sum(axis=0)
    assert tried.tolist() == [1, 2, 0] and again.tolist() == [0, 1, 0]
    pair, days, patient = onsets(SMALL)
    assert sorted(zip(pair.tolist(), days.tolist(), patient.tolist(), strict=True)) == [(2, 12, 0), (5, 12, 0)]
    assert [set(row) for row in np.split(ever_so_far(SMALL).indices, [2, 4, 7])] == [{0, 1}, {0, 1}, {0, 1, 2}, {2}]


def test_ages_at_onset_are_bands_and_days() -> None:
    """A patient of 20 to 29 is taken to be 25 and has code 2 after three years; who has no age is left out."""
    visits = Records.from_sets([[1], [1, 2], [2]], 3)
    static = Records.from_sets([[0], []], 3)
    histories = Histories(visits, np.array([0, 2, 3]), np.array([0, 1100, 0], dtype=np.int32), static)
    code, age, patient = first_ages(histories, ("AGE:20-29", "DX:B", "DX:C"))
    assert list(zip(code.tolist(), age.tolist(), patient.tolist(), strict=True)) == [(1, 25, 0), (2, 28, 0)]
    assert [band_middle(name) for name in ("AGE:18-34", "AGE:80+", "AGE:elderly", "DX:20-29")] == [26.5, 85, None, None]


def test_placements_give_the_area() -> None:
    rng = np.random.default_rng(0)
    scores, there = rng.integers(0, 9, (80, 3)).astype(float), rng.random((80, 3)) < 0.3
    placed = _placements(scores, there)
    for code in range(3):
        yes, no = scores[there[:, code], code], scores[~there[:, code], code]
        area = ((yes[:, None] > no) + 0.5 * (yes[:, None] == no)).mean()
        assert placed[there[:, code], code].mean() == pytest.approx(area)
        assert placed[~there[:, code], code].mean() == pytest.approx(area)


def test_shuffling_keeps_all_but_the_order() -> None:
    histories = simulated(60, 0)
    mixed = shuffled(histories, np.random.default_rng(0))
    assert np.array_equal(mixed.ever().indices, histories.ever().indices)
    assert np.array_equal(mixed.gaps, histories.gaps) and len(mixed.visits) == len(histories.visits)
    assert not np.array_equal(mixed.visits.indices, histories.visits.indices)


def test_all_visits_of_a_patient_are_one_record() -> None:
    record = all_visits(SMALL)
    assert record.n_codes == 3 * (1 + len(OFTEN))
    assert record.indices[: record.indptr[1]].tolist() == [3, 4, 5, 6, 7]  # all once, 0 and 1 twice


def test_every_metric_is_at_its_best_for_real_patients() -> None:
    train, test = simulated(150, 0), simulated(150, 1)
    markov = MarkovGenerator.fit(HistoryFit(train)).sample(HistoryRequest(150, seed=1))
    plan = plan_time(test, test, train, markov, np.random.default_rng(0), codes=CODES)
    results = {name: measure() for name, measure in plan}
    assert list(results) == [metric.name for metric in TIME]
    for name, result in results.items():
        value, floor, worse = (result.measured[role].value for role in ("value", "floor", "markov"))
        assert value is not None and floor is not None and worse is not None, name
        if result.metric.direction == "higher":
            assert value >= floor >= worse - 0.05, name
        else:
            assert value <= floor <= worse + 0.05, name
    for name in (
        *(f"r2_{kind}_{per}" for kind in ("code", "pair", "next") for per in ("record", "visit")),
        "recurrence",
    ):
        assert results[name].value.value == pytest.approx(1), name
    assert results["gap_ks"].value.value == 0 and results["visits_ks"].value.value == 0
    assert results["onset"].value.value == 0 == results["onset_age"].value.value


def test_order_is_what_shuffling_takes_away() -> None:
    train, test = simulated(150, 0), simulated(150, 1)
    names = ["recurrence", "onset", "next_recall_10", "next_auroc"]
    plan = plan_time(train, test, train, train, np.random.default_rng(0), names)
    for name, measure in plan:
        result = measure()
        floor, mixed = result.floor.value, result.measured["shuffled"].value
        assert floor is not None and mixed is not None
        assert (floor > mixed) == (result.metric.direction == "higher"), name
    with pytest.raises(ConfigError, match="known: r2_code_record"):
        plan_time(train, test, train, train, np.random.default_rng(0), ["beauty"])


def test_too_few_patients_are_said_to_be_too_few() -> None:
    few = Histories(SMALL.visits, SMALL.offsets, SMALL.gaps, SMALL.static)
    assert indptr_of(np.array([3, 1])).tolist() == few.offsets.tolist()
    for _, measure in plan_time(few, few, few, few, np.random.default_rng(0), codes=("A", "B", "C")):
        assert "too few" in str(measure().value.absent)
