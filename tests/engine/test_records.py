"""Records as sets of codes: what they refuse, and that subsets and round trips keep them."""

import numpy as np
import pytest

from ehr.errors import DataError
from ehr.records import Records
from tests.engine.test_generators import same


def test_records_refuse_what_is_not_in_the_vocabulary() -> None:
    with pytest.raises(DataError, match="0 to 2"):
        Records.from_sets([[0, 3]], 3)
    with pytest.raises(DataError, match="0 to 2"):
        Records.from_pairs([0], [-1], 1, 3)
    with pytest.raises(DataError, match="row"):
        Records.from_pairs([2], [0], 2, 3)


def test_records_round_trip_and_subsets() -> None:
    sets = [[2, 0], [], [1, 1, 3], [3]]
    records = Records.from_sets(sets, 4)
    assert records.sizes().tolist() == [2, 0, 2, 1]
    assert same(Records.from_dense(records.to_dense()), records)
    taken = records.take([3, 0, 0])
    assert same(taken, Records.from_sets([[3], [0, 2], [0, 2]], 4))
    assert same(Records.concatenate([records.take([0, 1]), records.take([2, 3])]), records)
    assert records.having(3).tolist() == [2, 3]
    np.testing.assert_array_equal(records.to_csr().toarray(), records.to_dense())
