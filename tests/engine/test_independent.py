"""Codes drawn independently, as everyone could: exact by arithmetic."""

import numpy as np
import pytest

from ehr.conditions import Condition
from ehr.records import Records
from worker.engine.generators import SampleRequest
from worker.engine.generators.independent import IndependentGenerator


def test_independent_conditions_are_exact() -> None:
    """Given any_of, the law of a group is the product law restricted to records that have one of it."""
    p = np.array([0.3, 0.1, 0.5, 0.2])
    condition = Condition.of(4, all_of=[3], any_of=[[0, 1]], none_of=[2])
    drawn = IndependentGenerator(p).sample(SampleRequest(40_000, condition=condition))
    assert condition.satisfied_by(drawn).all()
    some = 1 - 0.7 * 0.9
    np.testing.assert_allclose(drawn.prevalence(), [0.3 / some, 0.1 / some, 0, 1], atol=0.01)


def test_independent_likelihood_is_the_sum_of_bernoulli_terms() -> None:
    p = np.array([0.3, 0.1, 0.5])
    records = Records.from_sets([[0, 2], [], [1]], 3)
    x = records.to_dense(np.float64)
    expected = -(x * np.log(p) + (1 - x) * np.log1p(-p)).sum(1).mean()
    assert IndependentGenerator(p).log_loss()(records)[0] == pytest.approx(expected)
