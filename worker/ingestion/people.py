"""What is known of patients and of when records began, as codes of their own systems: SEX:F, AGE:60-69."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ehr.codes.systems import BANDS, SEX, age_band, birth_band
from ehr.formats.read.protocol import Patients
from worker.ingestion.numbering import EMPTY, Growing, Ints, Numbering

UNKNOWN = np.iinfo(np.int64).max
OLDEST = 125
OVER_89 = 90
ADULTS = 2  # the first band of adults


class People:
    """Numbers for sex (0 unknown, 1 F, 2 M), days of birth and death and first day, in days since 1970."""

    def __init__(self) -> None:
        self.sex, self.birth = Growing(0), Growing(UNKNOWN)
        self.death = Growing(UNKNOWN)
        self.first_day = Growing(UNKNOWN)  # of records: of all that is dated in them
        self.visit_day = Growing(UNKNOWN)  # as a table of visits has it

    def add(self, batch: Patients, patients: Numbering) -> None:
        """What comes first of a patient counts."""
        number = patients.of_column(batch.patient_id)
        known = number >= 0
        letter = pc.fill_null(pc.utf8_upper(pc.utf8_slice_codeunits(pc.utf8_trim_whitespace(batch.sex), 0, 1)), "")
        sex = np.select([np.asarray(pc.equal(letter, "F")), np.asarray(pc.equal(letter, "M"))], [1, 2], 0)
        _set_first(self.sex.up_to(len(patients)), number[known], sex[known], 0)
        _set_first(self.birth.up_to(len(patients)), number[known], days_since_1970(batch.birth)[known], UNKNOWN)
        if batch.death is not None:
            _set_first(self.death.up_to(len(patients)), number[known], days_since_1970(batch.death)[known], UNKNOWN)

    def saw(self, record: Ints, day: pa.Date32Array, n_records: int) -> None:
        np.minimum.at(self.first_day.up_to(n_records), record, days_since_1970(day))

    def began(self, record: Ints, day: pa.Date32Array, n_records: int) -> None:
        """Visits began then, whatever else is dated in them."""
        self.saw(record, day, n_records)
        np.minimum.at(self.visit_day.up_to(n_records), record, days_since_1970(day))

    def days(self, n_records: int) -> Ints:
        """When each record began, (R,); UNKNOWN where nothing says it."""
        visit, first = self.visit_day.up_to(n_records)[:n_records], self.first_day.up_to(n_records)[:n_records]
        return np.where(visit == UNKNOWN, first, visit)

    def codes(self, patient: Ints, day: Ints, masked_age: int | None) -> tuple[list[str | None], list[str | None]]:
        """(sex, age band on that day) of patients, as codes; None where it is not known."""
        sex = self.sex.up_to(int(patient.max(initial=0)) + 1)[patient]
        age = self._ages(patient, day)
        if masked_age is not None:
            age[age >= masked_age] = OVER_89
        sexes: list[str | None] = [None, f"{SEX}:F", f"{SEX}:M"]
        bands = [age_band(int(years)) if 0 <= years <= OLDEST else None for years in range(OLDEST + 1)]
        return [sexes[s] for s in sex], [bands[years] if 0 <= years <= OLDEST else None for years in age.tolist()]

    def birth_bands(self, patient: Ints, day: Ints, masked_age: int | None) -> list[str | None]:
        """In which ten years patients were born, as codes; None where it is not known, or was moved to hide an age."""
        age, birth = self._ages(patient, day), self._births(patient)
        known = (age >= 0) & (age < (OLDEST + 1 if masked_age is None else min(masked_age, OLDEST + 1)))
        years = birth.astype("datetime64[D]").astype("datetime64[Y]").astype(np.int64) + 1970
        return [birth_band(int(year)) if there else None for year, there in zip(years, known, strict=True)]

    def _births(self, patient: Ints) -> Ints:
        births: Ints = self.birth.up_to(int(patient.max(initial=0)) + 1)[patient]
        return births

    def _ages(self, patient: Ints, day: Ints) -> Ints:
        """Of patients on a day, in whole years; -1 where it is not known."""
        birth = self._births(patient)
        known = (birth != UNKNOWN) & (day != UNKNOWN)
        age = np.full(len(patient), -1, dtype=np.int64)
        age[known] = _years(birth[known], day[known])
        return age


def common_bands(bands: list[str | None], least: int) -> list[str | None]:
    """Bands of adults that fewer than `least` records have become the next towards the commonest, so that nobody is
    without an age because it is rare. Children are not made adults: theirs stay, and are dropped like any rare code."""
    adults = list(BANDS[ADULTS:])
    counts = Counter(band for band in bands if band in adults)
    if not counts:
        return bands
    top = adults.index(max(adults, key=lambda band: counts[band]))
    becomes: dict[str, str] = {}
    for place, towards in [*((i, 1) for i in range(top)), *((i, -1) for i in range(len(adults) - 1, top, -1))]:
        band, next_band = adults[place], adults[place + towards]
        if counts[band] < least:
            counts[next_band] += counts[band]
            becomes = {each: next_band if now == band else now for each, now in becomes.items()} | {band: next_band}
    return [band if band is None else becomes.get(band, band) for band in bands]


def common_visits(visit: Ints, least: int, other: int) -> Ints:
    """The kind of visit (R,) of each record, EMPTY where it is not known, so that all have one: rare kinds together are
    `other`, or the commonest kind if even together fewer than `least` records have them."""
    if not (visit != EMPTY).any():
        return visit
    counts = np.bincount(visit[visit != EMPTY])
    rare = (visit == EMPTY) | (counts[visit] < least)
    return np.where(rare, other if rare.sum() >= least else counts.argmax(), visit)


def days_since_1970(column: pa.Date32Array) -> Ints:
    days: Ints = pc.fill_null(pc.cast(pc.cast(column, pa.int32()), pa.int64()), UNKNOWN).to_numpy()
    return days


def _years(birth: Ints, day: Ints) -> Ints:
    """Whole years, by the calendar."""
    born, then = birth.astype("datetime64[D]"), day.astype("datetime64[D]")
    years = then.astype("datetime64[Y]").astype(np.int64) - born.astype("datetime64[Y]").astype(np.int64)
    anniversary_to_come = _within_year(then) < _within_year(born)
    whole: Ints = years - anniversary_to_come
    return whole


def _within_year(day: NDArray[np.datetime64]) -> Ints:
    """Month and day as one number."""
    month = day.astype("datetime64[M]")
    within: Ints = month.astype(np.int64) % 12 * 31 + (day - month.astype("datetime64[D]")).astype(np.int64)
    return within


def _set_first(values: Ints, at: Ints, new: Ints, unknown: int) -> None:
    wanted = (new != unknown) & (values[at] == unknown)
    values[at[wanted][::-1]] = new[wanted][::-1]  # the last write wins: so write backwards
