"""Steps of encoding that records and histories share: pairs of rows and codes, and the codes that are common enough."""

import numpy as np
from numpy.typing import NDArray

from ehr.disclosure import SMALLEST_SHOWN
from ehr.errors import DataError, TooLargeError
from worker.ingestion.encoded import Choices
from worker.ingestion.numbering import Ints

Mask = NDArray[np.bool_]


def common_codes(counts: Ints, patients: Ints, names: list[str], choices: Choices, of: str) -> tuple[Mask, list[str]]:
    """Which codes enough records, or patients, have, and their names. However many records of it there are, a code that
    fewer than 11 `patients` have is about those, unless a custodian asks for rarer ones."""
    stays: Mask = (counts >= max(choices.min_records, 1)) & (patients >= min(choices.min_records, SMALLEST_SHOWN))
    kept = [names[i] for i in np.flatnonzero(stays)]
    if not kept:
        raise DataError(f"no code is in at least {choices.min_records} {of}")
    if len(kept) > choices.max_codes:
        most = f"{choices.max_codes:,}"
        raise TooLargeError(f"{len(kept):,} codes are more than the {most} allowed; raise min_records")
    return stays, kept


def distinct(row: Ints, code: Ints, n_codes: int) -> tuple[Ints, Ints]:
    """(row, code) in order, each pair once."""
    key = row.astype(np.int64)
    key *= n_codes
    key += code
    key.sort()
    key = key[np.concatenate([[True], key[1:] != key[:-1]])]
    return np.divmod(key, n_codes)
