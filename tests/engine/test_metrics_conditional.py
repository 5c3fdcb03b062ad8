"""Conditional metrics, the held-out ELBO, and the rules that turn figures into verdicts."""

from statistics import NormalDist

import numpy as np
import pytest
from scipy.stats import bernoulli

from ehr.conditions import Condition
from ehr.records import Records
from ehr.reports import Verdict, worst
from tests.reporting import measured, real_sets, vocabulary
from worker.engine.independent import independent_records
from worker.engine.metrics import attainment, ess, held_out_elbo
from worker.engine.metrics.conditional import plan_conditional, with_bits_set
from worker.engine.metrics.measurement import SMALLEST_SLICE, Measurement, Result
from worker.engine.metrics.slice_prevalence_l1 import l1
from worker.engine.metrics.verdicts import Limits, at_least, between_yardsticks, by_gain, excess, near_yardstick


@pytest.fixture(scope="module")
def diabetes() -> Condition:
    return Condition.of(len(vocabulary()), all_of=[vocabulary().positions["ICD10CM:E11"]])


def conditional(cohort: Records, condition: Condition, real: Records, ordinary: Records | None) -> dict[str, Result]:
    return measured(plan_conditional(cohort, condition, real, lambda: ordinary, np.random.default_rng(0), None))


def test_wilson_is_the_solution_of_its_equation() -> None:
    z = NormalDist().inv_cdf(0.975)
    for met, n in ((0, 50), (7, 50), (50, 50)):
        for end in attainment.wilson(met, n):
            assert abs(met / n - end) == pytest.approx(z * np.sqrt(end * (1 - end) / n), abs=1e-6)


def test_attainment_counts_records_that_satisfy_the_condition(diabetes: Condition) -> None:
    code = next(iter(diabetes.all_of))
    cohort = Records.from_sets([{code, 0}] * 30 + [{0}] * 10, len(vocabulary()))
    result = conditional(cohort, diabetes, real_sets()["test"], None)["attainment"]
    assert result.measured["value"].value == 0.75
    assert result.verdict is not None and result.verdict.level == "caution"


def test_l1_is_the_sum_over_codes() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random((50, 8)) < 0.4, rng.random((70, 8)) < 0.4
    assert l1(a.sum(axis=0), 50, b.sum(axis=0), 70) == pytest.approx(np.abs(a.mean(axis=0) - b.mean(axis=0)).sum())


def test_writing_a_condition_in_adds_and_removes_what_it_names() -> None:
    condition = Condition.of(6, all_of=[0], any_of=[[1, 2]], none_of=[3])
    real = Records.from_sets([{2}, {2}, {1}], 6)  # 2 is the more common of the group
    made = with_bits_set(Records.from_sets([{3, 4}, {1, 5}, set()], 6), condition, real)
    assert [set(made.indices[made.indptr[i] : made.indptr[i + 1]]) for i in range(3)] == [{0, 2, 4}, {0, 1, 5}, {0, 2}]
    assert condition.satisfied_by(made).all()


def test_real_patients_with_the_condition_are_at_the_floor_and_written_in_codes_are_not(diabetes: Condition) -> None:
    real = real_sets()
    inside = real["train"].take(np.flatnonzero(diabetes.satisfied_by(real["train"])))
    everyone = Records.concatenate([real["test"], real["holdout"]])
    assert diabetes.satisfied_by(everyone).sum() >= SMALLEST_SLICE
    ordinary = independent_records(real["train"].prevalence(), 2000, np.random.default_rng(1))
    results = conditional(inside, diabetes, everyone, ordinary)
    for name in ("slice_prevalence_l1", "slice_cmd", "slice_mcad"):
        value, floor, bad = (results[name].measured[role] for role in ("value", "floor", "unconditional"))
        assert value.low is not None and floor.high is not None and value.low <= floor.high, name
        verdict = results[name].verdict
        assert verdict is not None
        if name == "slice_cmd":  # noise in N x N correlations hides all else in slices of this size
            assert verdict.level == "caution" and "too few" in verdict.reason
        else:
            assert bad.value is not None and floor.value is not None and bad.value > floor.value, name
            assert verdict.level == "good", name
    imposed = with_bits_set(ordinary, diabetes, everyone)
    worse = conditional(imposed, diabetes, everyone, ordinary)["slice_prevalence_l1"]
    assert worse.verdict is not None and worse.verdict.level == "fail"


def test_a_small_slice_is_absent_and_its_size_is_not_told(diabetes: Condition) -> None:
    real = real_sets()
    few = real["test"].take(np.flatnonzero(diabetes.satisfied_by(real["test"]))[:7])
    results = conditional(real["train"], diabetes, few, None)
    for name in ("slice_cmd", "slice_mcad", "slice_prevalence_l1"):
        assert results[name].measured["value"].absent is not None
        assert "7" not in (results[name].measured["value"].absent or "")


def test_ess_is_absent_where_no_weights_were_used() -> None:
    assert ess.measure(None, 100).absent == ess.NO_WEIGHTS
    assert ess.measure(25.0, 100).value == 0.25


def test_independent_log_loss_is_scipys_bernoulli() -> None:
    p = np.array([0.1, 0.5, 0.9])
    x = np.random.default_rng(0).random((200, 3)) < p
    nats = -bernoulli.logpmf(x, p).sum(axis=1)
    value, error = held_out_elbo.independent_log_loss(p, Records.from_dense(x))
    assert value == pytest.approx(nats.mean()) and error == pytest.approx(nats.std(ddof=1) / np.sqrt(200))


def test_held_out_elbo_beside_independent_codes() -> None:
    real = real_sets()
    better = held_out_elbo.measure(lambda _: (20.0, 0.1), real["test"], real["train"], np.random.default_rng(0))
    assert better.verdict is not None and better.verdict.level == "good"
    worse = held_out_elbo.measure(lambda _: (90.0, 0.1), real["test"], real["train"], np.random.default_rng(0))
    assert worse.verdict is not None and worse.verdict.level == "fail"
    unknown = held_out_elbo.measure("no likelihood", real["test"], real["train"], np.random.default_rng(0))
    assert unknown.value.absent is not None and unknown.verdict is None


# --- rules ---


def at(value: float, half: float = 0.1) -> Measurement:
    return Measurement(value, value - half, value + half)


def test_between_yardsticks() -> None:
    rule = between_yardsticks("lower", good_within=0.5, fail_beyond=2)
    for value, level in ((10.0, "good"), (14.0, "good"), (17.0, "caution"), (19.9, "fail"), (25.0, "fail")):
        assert rule({"value": at(value), "floor": at(10.0), "independent": at(20.0)}) == level
    for value, level in ((10.4, "good"), (11.5, "caution"), (13.0, "fail")):  # independent codes cannot be told apart
        assert rule({"value": at(value), "floor": at(10.0), "independent": at(10.0)}) == level
    # intervals that have points in common are no proof of being as good as the floor
    assert rule({"value": at(15.0, 9.0), "floor": at(10.0, 9.0), "independent": at(20.0, 0.1)}) == "unsure"
    strict = between_yardsticks("lower", good_within=0.5, fail_beyond=2, needs_contrast=True)
    assert strict({"value": at(10.0), "floor": at(10.0), "independent": at(10.0)}) == "unsure"
    assert strict({"value": at(10.0), "floor": at(10.0), "independent": at(20.0)}) == "good"
    missing = Measurement(absent="nothing")
    assert rule({"value": missing, "floor": at(1.0), "independent": at(2.0)}) is None


def test_other_rules() -> None:
    gain = by_gain(caution_above=0.01, fail_above=0.05, unsure_above=0.2)
    assert [gain({"gain": Measurement(v, low, high)}) for v, low, high in (
        (0.0, -0.1, 0.1), (0.03, 0.02, 0.04), (0.1, 0.06, 0.2), (0.0, -0.5, 0.5), (0.1, 0.005, 0.19)
    )] == ["good", "caution", "fail", "unsure", "unsure"]  # fmt: skip
    near = near_yardstick("real", "higher", Limits(good=0.03, sure=0.06, fail=0.1))
    assert [near({"value": at(v, 0.001), "real": at(0.9, 0.001)}) for v in (0.95, 0.88, 0.85, 0.7)] == [
        "good", "good", "caution", "fail",
    ]  # fmt: skip
    assert [at_least(0.9, 0.5)({"value": at(v)}) for v in (0.95, 0.6, 0.1)] == ["good", "caution", "fail"]


def test_only_what_noise_cannot_explain_is_good_or_failed() -> None:
    limits = Limits(good=0.03, sure=0.06, fail=0.1)
    assert [limits.finding(Measurement(value, low, high)) for value, low, high in (
        (0.0, -0.01, 0.01), (0.02, -0.02, 0.05), (-0.05, -0.2, 0.02),  # small, and surely not large
        (0.0, -0.1, 0.1), (0.02, -0.02, 0.07), (0.19, -0.05, 0.4),  # may be anything
        (0.05, 0.01, 0.08), (0.2, 0.01, 0.4),  # worse, but perhaps by a little only
        (0.2, 0.1, 0.3),
    )] == ["good"] * 3 + ["unsure"] * 3 + ["caution"] * 2 + ["fail"]  # fmt: skip


def test_the_excess_has_the_noise_of_both() -> None:
    over = excess(Measurement(5.0, 4.7, 5.4), Measurement(3.0, 2.7, 3.4), "lower")
    assert over.value == 2.0 and over.low == pytest.approx(2 - 0.5) and over.high == pytest.approx(2 + 0.5)
    same = excess(Measurement(3.0, 2.7, 3.4), Measurement(5.0, 4.7, 5.4), "higher")
    assert (same.value, same.low, same.high) == (over.value, over.low, over.high)


def test_the_worst_verdict_decides() -> None:
    verdicts = [
        None if level is None else Verdict(level=level, reason=reason, advice="")
        for level, reason in (("good", "a"), (None, ""), ("fail", "b"), ("fail", "c"))
    ]
    assert worst(verdicts) == verdicts[2] and worst([None]) is None
