"""Synthetic records have no dates, and some formats cannot be without: these are made from the record's number.

Histories have days between visits and no calendar: all of them begin on one day, the origin.
"""

import numpy as np
from numpy.typing import NDArray

SYNTHETIC_DATES = (
    "records have no dates; where a format needs them (omop.zip, fhir.ndjson, meds.parquet, mimic-iii.zip) the day is"
    " 2020-01-01 plus the record's number modulo 365 days, a birth lies as many years before as are the age band's"
    " middle, or the year nearest to it at which people have the record's codes, and both carry no information"
)
Day = np.datetime64
Days = NDArray[np.datetime64]
HISTORY_ORIGIN = "2000-01-01"  # unless a request says another
FIRST_DAY = np.datetime64("2020-01-01", "D")
DAYS = 365
# Who has no age band was born in a year nobody takes for true: the first that OHDSI's checks let pass.
UNKNOWN_BIRTH_YEAR = 1850


def days_of(records: NDArray[np.int64]) -> Days:
    """The day of each record that has none."""
    days: Days = FIRST_DAY + (records % DAYS).astype("timedelta64[D]")
    return days


def dates_of_histories(origin: Day) -> str:
    return (
        f"every patient's first visit is on {origin}, a day that carries no information; the days between visits are"
        " the history's own; a birth lies as many years before the origin as are the age band's middle, or the year"
        " nearest to it at which people have the first visit's codes"
    )


def birth_year(age: int | None, year: int = 2020) -> int:
    """The year of birth, as of whose first day one has this age on any day of the year."""
    return UNKNOWN_BIRTH_YEAR if age is None else year - age
