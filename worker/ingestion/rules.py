"""Rules that training records keep: edits of medicine that they confirm, and pairs that chance would have broken."""

from collections.abc import Iterator, Sequence
from math import log

import numpy as np
from numpy.typing import NDArray

from ehr.codes.edits import forbidden_pairs
from ehr.groups import Groups
from ehr.records import Records
from ehr.rules import Rules

# Chance alone would have broken a rule that is found so often, or oftener where more pairs are looked at: then not one
# pair in all of a hundred datasets is taken for a rule by chance.
EXPECTED_BREAKS = 20.0
FALSE_ALARMS = 0.01
# Of the records with a code, this share may contradict an edit: errors of coding, which no sampler repeats.
CODING_ERRORS = 0.01
CHUNK = 256  # codes whose company is counted at a time


def find_rules(train: Records, codes: Sequence[str], groups: Groups) -> Rules:
    """The rules of training records."""
    if len(train) == 0:
        return Rules(groups)
    counts = train.counts()
    wanted = list(forbidden_pairs(codes))
    excludes, implies, certain = [], [], []
    by_first: dict[int, list[int]] = {}
    for code, member in wanted:
        by_first.setdefault(code, []).append(member)
    enough = max(EXPECTED_BREAKS, log(max(train.n_codes, 2) ** 2 / FALSE_ALARMS))
    for first, together in _company(train):
        share = counts / len(train)
        number = np.arange(first, first + len(together))
        never = (together == 0) & (counts[number, None] * share >= enough)
        always = (together == counts[number, None]) & (counts[number, None] * (1 - share) >= enough)
        excludes.append(_pairs(never, first))
        implies.append(_pairs(always, first))
        for code in number.tolist():
            members = [m for m in by_first.get(code, ()) if together[code - first, m] <= CODING_ERRORS * counts[code]]
            certain += [(code, member) for member in members if counts[code] > 0]
    found = np.concatenate(implies)
    return Rules.of(groups, np.concatenate(excludes), found[_informative(found, groups)], certain)


def _company(train: Records) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """(first code, how many records have each of the next codes together with any code (C, N)), part by part."""
    matrix = train.to_csr(np.int64)
    by_code = matrix.T.tocsr()
    for first in range(0, train.n_codes, CHUNK):
        yield first, (by_code[first : first + CHUNK] @ matrix).toarray()


def _pairs(holds: NDArray[np.bool_], first: int) -> NDArray[np.int64]:
    """(code, other) wherever it holds, but for a code with itself."""
    row, other = np.nonzero(holds)
    pairs: NDArray[np.int64] = np.stack([row + first, other], axis=1)
    apart: NDArray[np.int64] = pairs[pairs[:, 0] != pairs[:, 1]]
    return apart


def _informative(implies: NDArray[np.int64], groups: Groups) -> NDArray[np.bool_]:
    """Without implications between members of a group, of which at most one is there."""
    group_of = groups.group_of[implies]
    kept: NDArray[np.bool_] = (group_of[:, 0] != group_of[:, 1]) | (group_of[:, 0] < 0)
    return kept
