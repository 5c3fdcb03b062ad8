"""Synthetic records have no dates, and some formats cannot be without: these are made from the record's number."""

import numpy as np
from numpy.typing import NDArray

SYNTHETIC_DATES = (
    "records have no dates; where a format needs them (omop.zip, fhir.ndjson, meds.parquet, mimic-iii.zip) the day is"
    " 2020-01-01 plus the record's number modulo 365 days, a birth lies as many years before as are the age band's"
    " middle, or the year nearest to it at which people have the record's codes, and both carry no information"
)
FIRST_DAY = np.datetime64("2020-01-01", "D")
DAYS = 365
# Who has no age band was born in a year nobody takes for true: the first that OHDSI's checks let pass.
UNKNOWN_BIRTH_YEAR = 1850


def days_of(records: NDArray[np.int64]) -> NDArray[np.datetime64]:
    """The day of each record, the same in every format."""
    days: NDArray[np.datetime64] = FIRST_DAY + (records % DAYS).astype("timedelta64[D]")
    return days


def birth_year(age: int | None) -> int:
    """The year of birth, as of whose first day one has this age on any of the days above."""
    return UNKNOWN_BIRTH_YEAR if age is None else 2020 - age
