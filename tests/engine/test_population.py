"""The simulated population is an oracle, so it is checked against brute force and against its own samples."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ehr.errors import ConditionError, DataError
from ehr.records import Records
from tests.engine import oracle
from worker.engine.population import SimulatedPopulation, catalogue, simulated_population

Floats = NDArray[np.float64]

# every record over 4 codes, in the order of their bits
EVERY = np.array(list(itertools.product([0, 1], repeat=4)))  # (16, 4)


@pytest.fixture(scope="module")
def population() -> SimulatedPopulation:
    return simulated_population()


@pytest.fixture(scope="module")
def records(population: SimulatedPopulation) -> Records:
    return population.sample(200_000, np.random.default_rng(1))


def tiny() -> SimulatedPopulation:
    """Three states and four codes, with probabilities of 0 and 1 among them."""
    return SimulatedPopulation(
        vocabulary=("A", "B", "C", "D"),
        descriptions=("a", "b", "c", "d"),
        state_weights=np.array([0.5, 0.3, 0.2]),
        code_probabilities=np.array([[1.0, 0.1, 0.7, 0.02], [0.0, 0.4, 0.0, 0.9], [1.0, 0.6, 0.3, 0.5]]),
    )


def brute_force(population: SimulatedPopulation) -> Floats:
    """P(record) for every record of `EVERY`, straight from the definition, (16,)."""
    p = population.code_probabilities[:, None, :]  # (S, 1, N)
    probability: Floats = population.state_weights @ np.where(EVERY == 1, p, 1 - p).prod(axis=2)
    return probability


def z_scores(observed: Floats, expected: Floats, n: int) -> Floats:
    """How many standard errors lie between a share of n records and its probability."""
    return (observed - expected) / np.sqrt(np.maximum(expected * (1 - expected), 1e-12) / n)


# ---- brute force


def test_log_probability_is_the_definition() -> None:
    log_p = oracle.log_probability(tiny(), Records.from_dense(EVERY))
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(log_p, np.log(brute_force(tiny())), atol=1e-12)
    assert np.exp(log_p).sum() == pytest.approx(1, abs=1e-12)


def test_moments_are_the_definition() -> None:
    p = brute_force(tiny())
    pairs = np.einsum("r,ri,rj->ij", p, EVERY, EVERY)
    np.testing.assert_allclose(tiny().prevalence(), p @ EVERY, atol=1e-12)
    np.testing.assert_allclose(oracle.pair_probability(tiny()), pairs, atol=1e-12)
    covariance = np.cov(EVERY.T, aweights=p, ddof=0)
    deviation = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(oracle.correlation(tiny()), covariance / np.outer(deviation, deviation), atol=1e-12)


@pytest.mark.parametrize("max_size", [0, 2, 4, 7])
def test_size_distribution_is_the_definition(max_size: int) -> None:
    expected = np.bincount(EVERY.sum(axis=1), weights=brute_force(tiny()), minlength=8)[: max_size + 1]
    np.testing.assert_allclose(oracle.size_distribution(tiny(), max_size), expected, atol=1e-12)


CODES = st.sets(st.integers(0, 3))


@given(all_of=CODES, any_of=CODES, none_of=CODES)
@settings(max_examples=200, deadline=None)
def test_conditional_prevalence_is_bayes(all_of: set[int], any_of: set[int], none_of: set[int]) -> None:
    meets = EVERY[:, list(all_of)].all(axis=1) & ~EVERY[:, list(none_of)].any(axis=1)
    if any_of:
        meets &= EVERY[:, list(any_of)].any(axis=1)
    p = brute_force(tiny()) * meets
    condition = {"all_of": list(all_of), "any_of": list(any_of), "none_of": list(none_of)}
    if p.sum() == 0:
        with pytest.raises(ConditionError):
            tiny().conditional_prevalence(**condition)
        return
    probability, prevalence = tiny().conditional_prevalence(**condition)
    assert probability == pytest.approx(p.sum(), abs=1e-12)
    np.testing.assert_allclose(prevalence, p @ EVERY / p.sum(), atol=1e-12)


def hidden() -> Floats:
    """0 and 1 are seen as they are, 2 hides the code."""
    return np.tile([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], (4, 1, 1))


def noisy() -> Floats:
    """A code flips with a probability of its own; there are two kinds of observation."""
    flip = np.array([0.1, 0.2, 0.05, 0.4])
    return np.stack([np.stack([1 - flip, flip], axis=1), np.stack([flip, 1 - flip], axis=1)], axis=1)


@pytest.mark.parametrize("channel", [hidden, noisy])
def test_exact_denoiser_is_bayes(channel: Callable[[], Floats]) -> None:
    likelihood = channel()  # (N, M, 2)
    observed = np.array(list(itertools.product(range(likelihood.shape[1]), repeat=4)))  # (B, N)
    # P(observation b | record r), (B, 16)
    given_record = likelihood[np.arange(4), observed[:, None, :], EVERY].prod(axis=2)
    joint = given_record * brute_force(tiny())
    possible = joint.sum(axis=1) > 0
    expected = joint[possible] @ EVERY / joint[possible].sum(axis=1, keepdims=True)
    np.testing.assert_allclose(
        oracle.exact_x0_probability(tiny(), observed[possible], likelihood), expected, atol=1e-12
    )
    for impossible in observed[~possible]:
        with pytest.raises(DataError, match="observation 0 cannot come"):
            oracle.exact_x0_probability(tiny(), impossible[None], likelihood)


def test_denoiser_of_a_hidden_record_is_the_prevalence_and_of_a_seen_one_the_record(
    population: SimulatedPopulation, records: Records
) -> None:
    likelihood = np.tile([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], (population.n_codes, 1, 1))
    x = records.take(np.arange(20)).to_dense().astype(np.int64)
    np.testing.assert_allclose(oracle.exact_x0_probability(population, x, likelihood), x, atol=1e-9)
    hidden_record = np.full((1, population.n_codes), 2)
    np.testing.assert_allclose(
        oracle.exact_x0_probability(population, hidden_record, likelihood)[0], population.prevalence(), atol=1e-9
    )


def test_denoiser_agrees_with_the_conditional_prevalence(population: SimulatedPopulation) -> None:
    present, absent = oracle.index(population, "ICD10CM:E84"), oracle.index(population, "SEX:M")
    observed = np.full((1, population.n_codes), 2)
    observed[0, present], observed[0, absent] = 1, 0
    likelihood = np.tile([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], (population.n_codes, 1, 1))
    _, expected = population.conditional_prevalence(all_of=[present], none_of=[absent])
    np.testing.assert_allclose(oracle.exact_x0_probability(population, observed, likelihood)[0], expected, atol=1e-9)


# ---- samples


def test_sample_follows_the_tiny_population() -> None:
    n = 100_000
    drawn = tiny().sample(n, np.random.default_rng(3)).to_dense(np.int64)
    shares = np.bincount(drawn @ [8, 4, 2, 1], minlength=16) / n
    assert np.abs(z_scores(shares, brute_force(tiny()), n)).max() < 4.5


def test_sample_has_the_exact_prevalence_and_pairs(population: SimulatedPopulation, records: Records) -> None:
    z = z_scores(records.prevalence(), population.prevalence(), len(records))
    assert np.abs(z).max() < 5 and 0.8 < z[8:].std() < 1.2
    x = records.to_csr(np.float64)
    pairs, expected = (x.T @ x).toarray() / len(records), oracle.pair_probability(population)
    frequent = np.triu(expected * len(records) > 50, k=1)  # where the normal approximation holds
    z = z_scores(pairs[frequent], expected[frequent], len(records))
    assert np.abs(z).max() < 6.5 and 0.9 < z.std() < 1.1
    assert not pairs[expected == 0].any()


def test_sample_has_the_exact_conditionals(population: SimulatedPopulation, records: Records) -> None:
    diabetes, lung, kidney = (oracle.index(population, f"ICD10CM:{code}") for code in ("E11", "J44", "N18"))
    woman = oracle.index(population, "SEX:F")
    probability, prevalence = population.conditional_prevalence(
        all_of=[woman], any_of=[diabetes, lung], none_of=[kidney]
    )
    x = records.to_csr(np.float64)[:, [woman, diabetes, lung, kidney]].toarray()
    meets = np.flatnonzero((x[:, 0] == 1) & (x[:, 1] + x[:, 2] > 0) & (x[:, 3] == 0))
    assert abs(z_scores(np.array(len(meets) / len(records)), np.array(probability), len(records))) < 4
    frequent = (prevalence > 0.005) & (prevalence < 1)
    z = z_scores(records.take(meets).prevalence()[frequent], prevalence[frequent], len(meets))
    assert np.abs(z).max() < 5 and 0.8 < z.std() < 1.2


def test_sample_has_the_exact_sizes(population: SimulatedPopulation, records: Records) -> None:
    exact = oracle.size_distribution(population, 60)
    shares = np.bincount(records.sizes(), minlength=61) / len(records)
    frequent = exact > 1e-4
    assert np.abs(z_scores(shares[:61][frequent], exact[frequent], len(records))).max() < 4.5
    assert exact @ np.arange(61) == pytest.approx(population.prevalence().sum(), abs=1e-6)


def test_log_probability_of_a_sample_is_finite_and_of_impossible_records_is_not(
    population: SimulatedPopulation, records: Records
) -> None:
    assert np.isfinite(oracle.log_probability(population, records.take(np.arange(300)))).all()
    both = [oracle.index(population, code) for code in ("SEX:F", "SEX:M", "AGE:18-34")]
    assert (
        oracle.log_probability(population, Records.from_sets([both, []], population.n_codes)).tolist() == [-np.inf] * 2
    )


def test_the_same_seed_gives_the_same_records(population: SimulatedPopulation) -> None:
    one, two, other = (population.sample(3_000, np.random.default_rng(seed)) for seed in (5, 5, 6))
    np.testing.assert_array_equal(one.indices, two.indices)
    np.testing.assert_array_equal(one.indptr, two.indptr)
    assert one.indices.tolist() != other.indices.tolist()


@pytest.mark.parametrize("n", [0, 1, 65_536, 65_537])
def test_sample_has_the_size_asked_for(n: int) -> None:
    drawn = tiny().sample(n, np.random.default_rng(0))
    assert len(drawn) == n and drawn.n_codes == 4
    assert len(oracle.log_probability(tiny(), drawn)) == n


# ---- the catalogue


def test_the_population_is_a_distribution(population: SimulatedPopulation) -> None:
    p = population.code_probabilities
    assert population.state_weights.sum() == pytest.approx(1, abs=1e-12) and population.state_weights.min() > 0
    assert len(population.state_weights) <= 4_000
    assert set(np.unique(p[:, :8])) == {0.0, 1.0}
    assert p[:, 8:].min() >= 0 and p[:, 8:].max() <= 0.98
    assert len(set(population.vocabulary)) == population.n_codes == len(population.descriptions)
    assert 250 <= population.n_codes <= 400


def test_rates_look_like_a_hospital(population: SimulatedPopulation) -> None:
    prevalence = population.prevalence()[8:]
    assert 0.2 < prevalence.max() < 0.35 and 0.0007 < prevalence.min() < 0.0012
    assert 7.5 < population.prevalence().sum() < 9
    sizes = oracle.size_distribution(population, 60).cumsum()
    tenth, median, last = (int(np.searchsorted(sizes, q)) for q in (0.1, 0.5, 0.99))
    assert last - median > 3 * (median - tenth)  # right-skewed


def test_every_condition_is_described_and_looks_only_at_earlier_ones() -> None:
    names = [condition.name for condition in catalogue.CONDITIONS]
    for position, condition in enumerate(catalogue.CONDITIONS):
        assert set(condition.odds) <= set(names[:position])
    for condition in catalogue.CONSTELLATIONS:
        assert set(condition.odds) <= set(names)
    assert set(catalogue.EFFECTS) == {*names, *(c.name for c in catalogue.CONSTELLATIONS)}


def test_demographics_are_exclusive(population: SimulatedPopulation, records: Records) -> None:
    x = records.take(np.arange(2_000)).to_dense()
    assert (x[:, :2].sum(axis=1) == 1).all() and (x[:, 2:8].sum(axis=1) == 1).all()
    shares = [share for by_age in catalogue.POPULATION.values() for share in by_age]
    pairs = oracle.pair_probability(population)[:2, 2:8]
    np.testing.assert_allclose(pairs.ravel(), np.array(shares) / 100, atol=1e-12)  # dropping states moves nobody


def test_pregnancy_and_prostate_know_their_sex_and_age(population: SimulatedPopulation) -> None:
    _, men = population.conditional_prevalence(all_of=[oracle.index(population, "SEX:M")])
    _, women = population.conditional_prevalence(all_of=[oracle.index(population, "SEX:F")])
    _, children = population.conditional_prevalence(all_of=[oracle.index(population, "AGE:0-17")])
    _, old = population.conditional_prevalence(all_of=[oracle.index(population, "AGE:65-79")])
    pregnancy = [i for i, code in enumerate(population.vocabulary) if code.startswith(("ICD10CM:O", "ICD10CM:Z34"))]
    prostate = [oracle.index(population, code) for code in ("ICD10CM:C61", "ICD10CM:N40", "RXNORM:77492")]
    assert len(pregnancy) > 10 and women[pregnancy].min() > 0.001
    assert not men[pregnancy].any() and not children[pregnancy].any() and not old[pregnancy].any()
    assert not women[prostate].any() and not children[prostate].any() and old[prostate].min() > 0.01


@pytest.mark.parametrize(
    ("cause", "sign", "times"),
    [
        ("ICD10CM:E11", "RXNORM:6809", 8),  # type 2 diabetes and metformin
        ("ICD10CM:E11", "ICD10CM:I10", 2),  # and hypertension
        ("ICD10CM:E11", "ICD10CM:E1142", 8),  # and neuropathy
        ("ICD10CM:E11", "ICD10CM:N18", 3),  # and chronic kidney disease
        ("ICD10CM:J44", "ICD10CM:F17", 4),  # COPD and tobacco
        ("ICD10CM:I50", "ICD10CM:I48", 10),  # heart failure and atrial fibrillation
        ("ICD10CM:I50", "RXNORM:4603", 10),  # and furosemide
        ("ICD10CM:E84", "RXNORM:1243041", 500),  # cystic fibrosis and ivacaftor
        ("ICD10CM:G70", "RXNORM:9000", 500),  # myasthenia and pyridostigmine
        ("ICD10CM:D57", "RXNORM:5552", 500),  # sickle cell and hydroxyurea
    ],
)
def test_comorbidities_a_physician_expects(
    population: SimulatedPopulation, cause: str, sign: str, times: float
) -> None:
    _, given_cause = population.conditional_prevalence(all_of=[oracle.index(population, cause)])
    position = oracle.index(population, sign)
    assert given_cause[position] > times * population.prevalence()[position]
    assert oracle.correlation(population)[oracle.index(population, cause), position] > 0.05


# ---- errors


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ({"all_of": [1], "none_of": [1]}, "B is both required and forbidden"),
        ({"all_of": [4]}, "code 4 is outside the vocabulary: codes run from 0 to 3"),
        ({"none_of": [-1]}, "code -1 is outside"),
        ({"any_of": [1], "none_of": [1]}, "probability is 0"),
        ({"all_of": [2], "none_of": [0]}, "probability is 0"),  # C needs a state in which A is certain
    ],
)
def test_contradictory_conditions_are_refused(condition: dict[str, list[int]], message: str) -> None:
    with pytest.raises(ConditionError, match=message):
        tiny().conditional_prevalence(**condition)


def test_unknown_codes_name_their_neighbours(population: SimulatedPopulation) -> None:
    with pytest.raises(DataError, match=r"ICD10CM:E1.* is not in the vocabulary; close to it are ICD10CM:E1"):
        oracle.index(population, "ICD10CM:E119")
    assert population.vocabulary[oracle.index(population, "ICD10CM:I10")] == "ICD10CM:I10"


def test_malformed_input_is_refused() -> None:
    p = tiny()
    with pytest.raises(DataError, match="cannot be drawn"):
        p.sample(-1, np.random.default_rng(0))
    with pytest.raises(DataError, match="5 codes"):
        oracle.log_probability(p, Records.from_sets([[0]], 5))
    with pytest.raises(DataError, match="at least 0"):
        oracle.size_distribution(p, -1)
    with pytest.raises(DataError, match="run from 0 to 2"):
        oracle.exact_x0_probability(p, np.full((1, 4), 3), hidden())
    with pytest.raises(DataError, match="shape"):
        oracle.exact_x0_probability(p, np.zeros((1, 4), dtype=np.int64), np.ones((3, 2, 2)))
    with pytest.raises(DataError, match="integers"):
        oracle.exact_x0_probability(p, np.zeros((1, 4)), hidden())  # type: ignore[arg-type]
    with pytest.raises(DataError, match="sum to 1"):
        SimulatedPopulation(p.vocabulary, p.descriptions, p.state_weights * 2, p.code_probabilities)
    with pytest.raises(DataError, match="shape"):
        SimulatedPopulation(p.vocabulary, p.descriptions, p.state_weights[:2], p.code_probabilities)
    with pytest.raises(DataError, match="between 0 and 1"):
        SimulatedPopulation(p.vocabulary, p.descriptions, p.state_weights, p.code_probabilities * 2)
