"""Attacks: each against brute force, at chance where there is nothing to find, and biting where there is."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.metrics import f1_score, roc_curve

from ehr.records import Records
from tests.reporting import copies, measured, perturbed, real_sets, some_copies
from worker.engine.metrics import air, attacks, dcr, exact_matches, mia_tpr_at_fpr, mir, nearest, nndr
from worker.engine.metrics.attacks import AttackResult, AttackSets
from worker.engine.metrics.privacy import PRIVACY, plan_attacks
from worker.evaluation.verdicts import attacks_verdict


def some(n: int, seed: int, n_codes: int = 40, p: float = 0.15) -> NDArray[np.uint8]:
    return (np.random.default_rng(seed).random((n, n_codes)) < p).astype(np.uint8)


def sets_of(cohort: int = 90, train: int = 120, holdout: int = 80, control: int = 70) -> AttackSets:
    parts = [Records.from_dense(some(n, seed)) for seed, n in enumerate((cohort, train, holdout, control))]
    return AttackSets(*parts, np.random.default_rng(0))


def attacked(cohort: Records) -> dict[str, AttackResult]:
    real = real_sets()
    return measured(plan_attacks(cohort, real["train"], real["holdout"], real["test"], np.random.default_rng(1)))


# --- against independent computations ---


@pytest.mark.parametrize("n_codes", [40, 20_000])  # 16-bit distances, and a vocabulary too large for them
def test_nearest_distances_are_scipys(n_codes: int) -> None:
    queries, base = some(20, 1, n_codes), some(1100, 2, n_codes)  # more than one block
    d = np.sort(cdist(queries, base, "cityblock"), axis=1)
    a, b = Records.from_dense(queries), Records.from_dense(base)
    assert np.array_equal(nearest.two_nearest(a, b), d[:, :2])
    assert np.array_equal(nearest.nearest(a, b), d[:, 0])


def test_no_record_is_its_own_neighbour() -> None:
    x = some(2500, 3)
    d = cdist(x, x, "cityblock")
    np.fill_diagonal(d, np.inf)
    records = Records.from_dense(x)
    assert np.array_equal(nearest.nearest(records, records, same=True), d.min(axis=1))


def test_mir_is_sklearns_f1_of_the_threshold() -> None:
    sets = sets_of(cohort=300, control=300)
    result = mir.measure(sets, np.random.default_rng(0))
    n = min(len(sets.members), len(sets.non_members))
    rng = np.random.default_rng(0)
    members, others = attacks.sampled(sets.members, n, rng), attacks.sampled(sets.non_members, n, rng)
    targets = np.concatenate([members.to_dense(), others.to_dense()])
    truth = np.repeat([1, 0], n)
    for role, cohort in (("attack", sets.cohort), ("control", sets.control)):
        called = cdist(targets, cohort.to_dense(), "sqeuclidean").min(axis=1) <= 3
        assert result.roles.by_name()[role].value == pytest.approx(f1_score(truth, called))
    assert result.roles.baseline.value == pytest.approx(2 / 3)
    natural = result.variants["at the natural ratio"].baseline.value
    assert natural == pytest.approx(f1_score([1] * 120 + [0] * 80, [1] * 200))


def test_guessing_member_for_everyone_scores_what_metrics_md_says() -> None:
    everyone = np.array(1.0)
    assert mir.f1(everyone, everyone, 1.0) == pytest.approx(0.667, abs=1e-3)
    assert mir.f1(everyone, everyone, 4.0) == pytest.approx(0.889, abs=1e-3)


@pytest.mark.parametrize("rate", [0.001, 0.01, 0.3])
def test_tpr_at_fpr_is_sklearns_roc_curve(rate: float) -> None:
    rng = np.random.default_rng(2)
    members, others = rng.integers(0, 50, 3000) / 10, rng.integers(5, 60, 2000) / 10  # with ties
    fpr, tpr, _ = roc_curve(
        np.repeat([1, 0], [3000, 2000]), -np.concatenate([members, others]), drop_intermediate=False
    )
    assert mia_tpr_at_fpr.tpr_at_fpr(members, others, rate) == pytest.approx(np.interp(rate, fpr, tpr))


def test_air_is_brute_force() -> None:
    targets, cohort = some(40, 5, p=0.3), some(60, 6, p=0.3)
    known, secret = np.arange(12), np.arange(12, 40)
    said = air.guessed(Records.from_dense(targets), Records.from_dense(cohort), known, secret).toarray()
    for i, target in enumerate(targets):
        d = np.abs(cohort[:, known].astype(int) - target[known]).sum(axis=1)
        tied = cohort[d == d.min()][:, secret]
        assert np.array_equal(said[i], tied.mean(axis=0) > 0.5)
    truth = targets[:, secret]
    weight = np.random.default_rng(0).random(len(secret))
    scores = np.array([f1_score(truth[:, j], said[:, j], zero_division=0) for j in range(len(secret))])
    counted = weight * ((truth.sum(axis=0) + said.sum(axis=0)) > 0)
    value = air.weighted_f1((truth * said).sum(axis=0), said.sum(axis=0), truth.sum(axis=0).astype(float), weight)
    assert value == pytest.approx(np.average(scores, weights=counted))


def test_dcr_and_nndr_are_brute_force() -> None:
    sets = sets_of(cohort=100, train=80, holdout=80, control=100)
    near = sets.nearest_distances
    rows, train, holdout = (each.to_dense() for each in (sets.cohort, sets.train, sets.holdout))
    for statistic, at in ((dcr.distances, lambda d: d[:, 0]), (nndr.ratios, lambda d: np.sqrt(_ratio(d)))):
        to = [at(np.sort(cdist(rows, base, "cityblock"), axis=1)) for base in (train, holdout)]
        expected = np.mean(to[0] < to[1]) + 0.5 * np.mean(to[0] == to[1])
        got = [statistic(each) for each in near[0]]
        assert np.mean(got[0] < got[1]) + 0.5 * np.mean(got[0] == got[1]) == pytest.approx(expected)
    assert dcr.measure(sets, np.random.default_rng(0)).roles.baseline.value == 0.5


def _ratio(d: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.divide(d[:, 0], d[:, 1], out=np.ones(len(d)), where=d[:, 1] > 0)


def test_exact_matches_are_counted_one_by_one() -> None:
    train = Records.from_sets([{0, 1}, {2}, {3, 4}, {5}] * 20, n_codes=8)
    holdout = Records.from_sets([{0, 1}, {6}] * 40, n_codes=8)
    cohort = Records.from_sets([{0, 1}] * 10 + [{2}] * 20 + [{7}] * 70, n_codes=8)
    rng = np.random.default_rng(0)
    result = exact_matches.measure(AttackSets(cohort, train, holdout, holdout, rng), rng)
    assert result.roles.attack.value == pytest.approx(0.3)
    assert result.roles.control.value == pytest.approx(0.1)
    assert result.roles.gain.value == pytest.approx(0.2)
    assert result.facts == {"identical_to_train": 30, "identical_to_holdout": 10}


def test_copies_count_whatever_part_of_train_they_come_from() -> None:
    """A training set of ten times the holdout: one record in ten of the cohort is a copy, and the gain says so."""
    train = Records.from_sets([{i % 30, 30 + i // 30} for i in range(800)], n_codes=60)
    holdout = Records.from_sets([{0, 59}] * 80, n_codes=60)
    cohort = Records.concatenate([train.take(np.arange(0, 800, 8)), Records.from_sets([{1, 2, 3}] * 900, 60)])
    rng = np.random.default_rng(0)
    gain = exact_matches.measure(AttackSets(cohort, train, holdout, holdout, rng), rng).roles.gain
    assert gain.value == pytest.approx(0.1)


# --- what cannot be attacked ---


def test_too_few_records_are_a_reason_and_no_verdict_but_fail() -> None:
    real = real_sets()
    few = real["holdout"].take(np.arange(20))
    results = measured(plan_attacks(real["others"], real["train"], few, real["test"], np.random.default_rng(0)))
    assert all(result.roles.gain.absent and "holdout" in result.roles.gain.absent for result in results.values())
    assert not any("20" in (result.roles.gain.absent or "") for result in results.values())  # how few is not told
    assert attacks_verdict(results.values()).level == "fail"


def test_every_attack_has_its_words_and_bounds() -> None:
    for metric in PRIVACY:
        assert metric.family == "privacy" and metric.meaning.endswith(".") and metric.bounds == (0.0, 1.0)
        for level in ("good", "caution", "fail"):
            assert metric.words.verdict(level, {"known": 256}).reason


# --- what is said of how it was measured ---


def test_what_is_measured_on_a_sample_says_so() -> None:
    rng = np.random.default_rng(0)
    whole, larger = sets_of(cohort=70), sets_of(cohort=6000, train=10_001, holdout=200, control=5001)
    for metric in PRIVACY:
        roles = metric.measure(whole, rng).roles
        assert all(each.note is None for each in (roles.attack, roles.control, roles.gain)), metric.name
    for metric in PRIVACY:
        if metric is not exact_matches.EXACT_MATCHES:  # the one that needs no sample
            roles = metric.measure(larger, rng).roles
            assert all("random" in (each.note or "") for each in (roles.attack, roles.control, roles.gain)), metric.name


# --- attacks bite ---


def test_records_of_other_people_pass() -> None:
    results = attacked(real_sets()["others"])
    assert attacks_verdict(results.values()).level == "good", {n: r.verdict for n, r in results.items()}
    for result in results.values():
        for roles in (result.roles, *result.variants.values()):
            assert roles.gain.low is not None and roles.gain.high is not None
            assert roles.gain.low <= 0.005 and roles.gain.high >= -0.005  # at its ideal within its interval


def test_copies_of_training_records_fail_on_every_attack_that_looks_for_them() -> None:
    results = attacked(copies(2000))
    for name in ("mir", "mia_tpr_at_fpr", "air", "exact_matches"):
        verdict = results[name].verdict
        assert verdict is not None and verdict.level == "fail", name
    assert attacks_verdict(results.values()).level == "fail"


def test_copies_of_one_training_record_in_twenty_are_caught() -> None:
    results = attacked(some_copies(2000, 0.05))
    assert attacks_verdict(results.values()).level == "fail"
    membership = results["mia_tpr_at_fpr"].verdict
    assert membership is not None and membership.level == "fail"


def test_perturbed_records_pass_the_distance_checks_and_are_caught_by_the_membership_attack() -> None:
    results = attacked(perturbed(2000, flips=4))
    for name in ("mir", "exact_matches"):
        verdict = results[name].verdict
        assert verdict is not None and verdict.level == "good", name
    membership = results["mia_tpr_at_fpr"].verdict
    assert membership is not None and membership.level == "fail"
    assert attacks_verdict(results.values()).level == "fail"


def test_the_same_seed_gives_the_same_numbers() -> None:
    a, b = (attacked(some_copies(500, 0.05)) for _ in range(2))
    assert {n: r.roles for n, r in a.items()} == {n: r.roles for n, r in b.items()}
