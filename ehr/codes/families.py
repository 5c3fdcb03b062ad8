"""Which codes are kin by the way they are written: what is known of many says something of the few."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ehr.codes.systems import split_code

# Codes of these systems begin with what they have in common with their kin; others are numbers in no order.
KIN_BY_SPELLING = ("ICD", "CPT", "HCPCS", "ATC")
SHARED_CHARACTERS = (1, 2, 3)


def families(codes: Sequence[str]) -> NDArray[np.int64]:
    """The number of each code's family, (levels, N): its system first, then codes that begin with the same one, two
    and three characters."""
    split = [split_code(code) for code in codes]
    levels = [[(system, "") for system, _ in split]]
    for length in SHARED_CHARACTERS:
        levels.append([(system, rest[:length] if system.startswith(KIN_BY_SPELLING) else "") for system, rest in split])
    return np.array([_numbered(level) for level in levels], dtype=np.int64).reshape(len(levels), len(codes))


def _numbered(names: Sequence[tuple[str, str]]) -> list[int]:
    numbers: dict[tuple[str, str], int] = {}
    return [numbers.setdefault(name, len(numbers)) for name in names]
