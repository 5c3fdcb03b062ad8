"""Visits in order: which visit of which patient each record becomes, and by which rules some are left out."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ehr.errors import DataError
from ehr.records import indptr_of
from worker.ingestion.numbering import Ints

NOWHERE = -1
# Days since 1970 of 1900 and 2300. Dates that were shifted to protect people lie up to two hundred years ahead; others
# outside stand for "not known", and would make gaps of centuries.
CALENDAR = (-25_567, 120_530)


@dataclass(frozen=True)
class Timeline:
    """The visits of P patients, each patient's together and oldest first."""

    place: Ints  # (R,), the visit that each record is, or is a part of; NOWHERE if it was left out
    owners: Ints  # (P,), the patients, as they were numbered
    offsets: Ints  # (P + 1,), where each patient's visits begin
    days: Ints  # (V,), since 1970
    counts: Mapping[str, int]  # of visits (and patients) that a rule was applied to

    def gaps(self) -> NDArray[np.int32]:
        """Days since the visit before, (V,); 0 at a patient's first."""
        gaps = np.diff(self.days, prepend=self.days[:1])
        gaps[self.offsets[:-1]] = 0
        return gaps.astype(np.int32)


def timeline(present: NDArray[np.bool_], owner: Ints, day: Ints, death: Ints, most_visits: int) -> Timeline:
    """`owner` and `day` are of records, `death` of patients; below 0 and `people.UNKNOWN` where they are not known.

    Visits without a date are left out (one outside of `CALENDAR` is none), and those after the patient's death.
    Whatever order they come in, they are put in the order of their dates; visits of one day are one visit; of a longer
    history the first `most_visits` stay.
    """
    named = present & (owner >= 0)
    dated = named & (day >= CALENDAR[0]) & (day < CALENDAR[1])
    alive = dated.copy()
    alive[dated] = day[dated] <= death[owner[dated]]
    records = np.flatnonzero(alive)
    if len(records) == 0:
        raise DataError(
            f"of {int(present.sum()):,} visits none has a patient and a date that can be read (2020-12-31), so there is"
            " no order; upload them with unit=visit or unit=patient"
        )
    whose, when = owner[records], day[records]
    out_of_order = _out_of_order(whose, when)
    first = int(when.min())
    span = int(when.max()) - first + 1
    keys, which = np.unique(whose * span + (when - first), return_inverse=True)
    owners, counts = np.unique(keys // span, return_counts=True)
    number = np.arange(len(keys)) - np.repeat(indptr_of(counts)[:-1], counts)  # of the visit, within its patient
    stays = number < most_visits
    place = np.full(len(present), NOWHERE)
    place[records] = np.where(stays, np.cumsum(stays) - 1, NOWHERE)[which]
    return Timeline(
        place,
        owners,
        indptr_of(np.minimum(counts, most_visits)),
        (keys % span + first)[stays],
        {
            "visits_without_patient": int((present & ~named).sum()),
            "visits_without_date": int((named & ~dated).sum()),
            "visits_after_death": int((dated & ~alive).sum()),
            "visits_out_of_order": out_of_order,
            "visits_on_one_day": len(records) - len(keys),
            "visits_beyond_the_most": int((~stays).sum()),
            "patients_with_more": int((counts > most_visits).sum()),
            "patients_left_out": len(np.unique(owner[named])) - len(owners),
        },
    )


def _out_of_order(whose: Ints, when: Ints) -> int:
    """How many visits came after a later one of the same patient, in the order of the upload."""
    order = np.argsort(whose, kind="stable")
    span = int(when.max()) - int(when.min()) + 1
    key = whose[order] * span + (when[order] - int(when.min()))
    return int((key < np.maximum.accumulate(key)).sum())
