"""Synthetic records have no dates, and some formats cannot be without: these are made from the record's number."""

import numpy as np
from numpy.typing import NDArray

from ehr.codes.systems import band_start

SYNTHETIC_DATES = (
    "records have no dates; where a format needs them (omop.zip, fhir.ndjson, meds.parquet, mimic-iii.zip) the day is"
    " 2020-01-01 plus the record's number modulo 365 days, a birth is that day minus the age band's first year and five"
    " more, and both carry no information"
)
FIRST_DAY = np.datetime64("2020-01-01", "D")
DAYS = 365
# A band of ten years is entered by its middle. Who has no age band was born in a year nobody takes for true: the first
# that OHDSI's checks let pass.
MIDDLE_OF_BAND = 5
UNKNOWN_BIRTH_YEAR = 1850


def days_of(records: NDArray[np.int64]) -> NDArray[np.datetime64]:
    """The day of each record, the same in every format."""
    days: NDArray[np.datetime64] = FIRST_DAY + (records % DAYS).astype("timedelta64[D]")
    return days


def birth_year(band: str | None) -> int:
    """The year of birth that reads as this age band on any of the days above."""
    return UNKNOWN_BIRTH_YEAR if band is None else 2020 - band_start(band) - MIDDLE_OF_BAND
