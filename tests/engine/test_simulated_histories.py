"""The simulated histories are an oracle, so their exact answers are held against their own samples."""

import numpy as np
import pytest
from numpy.typing import NDArray

from ehr.errors import ConditionError
from ehr.histories import Histories
from worker.engine.population import SimulatedHistories, simulate_histories, simulated_histories

Floats = NDArray[np.float64]
MOST_SIGMAS = 4.5  # of some hundred sums each


@pytest.fixture(scope="module")
def process() -> SimulatedHistories:
    return simulated_histories()


@pytest.fixture(scope="module")
def drawn(process: SimulatedHistories) -> Histories:
    return process.sample(3000, np.random.default_rng(1))


def sigmas(observed: Floats, p: Floats) -> Floats:
    """How far sums of coins lie from what their probabilities say; coins along the first axis."""
    spread = np.sqrt((p * (1 - p)).sum(axis=0))
    return np.abs(observed - p.sum(axis=0))[spread > 0] / spread[spread > 0]


def code(process: SimulatedHistories, name: str) -> int:
    return process.vocabulary.positions[name]


def test_what_is_predicted_happens(process: SimulatedHistories, drawn: Histories) -> None:
    few = drawn.take(np.arange(250))
    predicted = process.predictions(few)
    last = few.offsets[1:] - 1
    followed = np.setdiff1d(np.arange(len(few.visits)), last)
    seen = few.visits.take(followed + 1).to_dense()
    assert sigmas(seen.sum(axis=0), predicted.codes[followed]).max() < MOST_SIGMAS
    waited = np.eye(predicted.gaps.shape[1])[few.gaps[followed + 1]].sum(axis=0)
    assert sigmas(waited, predicted.gaps[followed]).max() < MOST_SIGMAS
    assert sigmas(np.array([float(len(few))]), predicted.end[:, None]).max() < MOST_SIGMAS
    # knowing the history tells more than knowing the shares of all visits
    shares = few.visits.prevalence()
    told = np.where(seen > 0, predicted.codes[followed], 1 - predicted.codes[followed])
    untold = np.where(seen > 0, shares, 1 - shares)
    assert np.log(np.maximum(told, 1e-9)).mean() > np.log(np.maximum(untold, 1e-9)).mean() * 0.9


def test_first_visits_are_as_they_say(process: SimulatedHistories, drawn: Histories) -> None:
    seen = drawn.visits.take(drawn.offsets[:-1]).to_dense().sum(axis=0)
    assert sigmas(seen, process.first_visit()[process.groups_of(drawn)]).max() < MOST_SIGMAS


def test_what_ever_happens_is_known(process: SimulatedHistories, drawn: Histories) -> None:
    groups, ever = process.groups_of(drawn), drawn.ever()
    for name in ("ICD10CM:E11", "ICD10CM:N18", "ICD10CM:K21", "RXNORM:6809", "RXNORM:7646", "ICD10CM:Z12"):
        p = process.ever_probability(code(process, name))[groups, None]
        assert sigmas(np.array([len(ever.having(code(process, name)))]), p).max(initial=0) < MOST_SIGMAS, name
    for names in (("ICD10CM:E11", "RXNORM:6809"), ("ICD10CM:K21", "RXNORM:7646"), ("ICD10CM:K21", "ICD10CM:E11")):
        a, b = (code(process, name) for name in names)
        both = (ever.having_any([a]) & ever.having_any([b])).sum()
        assert sigmas(np.array([both]), process.ever_both_probability(a, b)[groups, None]).max() < MOST_SIGMAS, names


def test_kidney_disease_after_diabetes_is_known(process: SimulatedHistories, drawn: Histories) -> None:
    a, b = code(process, "ICD10CM:E11"), code(process, "ICD10CM:N18")
    first, last = np.full(len(drawn), len(drawn.visits)), np.full(len(drawn), -1)
    visits, patients = drawn.visits, drawn.patients()
    np.minimum.at(first, patients[visits.having(a)], visits.having(a))
    np.maximum.at(last, patients[visits.having(b)], visits.having(b))
    p = process.before_probability(a, b)[process.groups_of(drawn), None]
    assert sigmas(np.array([(first < last).sum()]), p).max() < MOST_SIGMAS
    assert np.all(p[:, 0] <= process.ever_both_probability(a, b)[process.groups_of(drawn)] + 1e-12)


def test_counts_of_visits_are_known(process: SimulatedHistories, drawn: Histories) -> None:
    p = process.visit_count_probabilities()
    assert p.sum(axis=1) == pytest.approx(1)
    counts = np.bincount(drawn.visit_counts(), minlength=p.shape[1])
    assert sigmas(counts, p[process.groups_of(drawn)]).max() < MOST_SIGMAS
    assert np.all(counts[:10] == 0) and len(counts) == 31


def test_drugs_follow_their_diagnoses(process: SimulatedHistories, drawn: Histories) -> None:
    metformin, diabetes = code(process, "RXNORM:6809"), code(process, "ICD10CM:E11")
    patients, visits = drawn.patients(), drawn.visits
    first = np.full(len(drawn), len(visits))
    np.minimum.at(first, patients[visits.having(diabetes)], visits.having(diabetes))
    treated = visits.having(metformin)
    assert len(treated) and np.all(treated > first[patients[treated]])


def test_the_same_seed_draws_the_same_patients() -> None:
    (a, vocabulary), (b, _) = simulate_histories(20, seed=3), simulate_histories(20, seed=3)
    assert np.array_equal(a.visits.indices, b.visits.indices) and np.array_equal(a.gaps, b.gaps)
    assert len(vocabulary) == a.n_codes and all(vocabulary.name_of(each) for each in vocabulary.codes)


def test_what_is_not_known_is_refused(process: SimulatedHistories) -> None:
    with pytest.raises(ConditionError, match="no code of a visit"):
        process.ever_probability(0)
    with pytest.raises(ConditionError, match="at most one drug"):
        process.never_probability([code(process, "RXNORM:6809"), code(process, "RXNORM:7646")])
    with pytest.raises(ConditionError, match="follow the state"):
        process.before_probability(code(process, "ICD10CM:K21"), code(process, "ICD10CM:N18"))
