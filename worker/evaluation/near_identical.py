"""Cohorts of near-identical records.

Whoever asks for enough codes gets a cohort in which every record is the one they have thought of. Attacking it would
reveal whether a single patient has exactly that record, and how close the nearest one is.
"""

from collections import Counter

from ehr.disclosure import SMALLEST_SHOWN
from ehr.records import Records
from worker.engine.metrics.exact_matches import keys


def near_identical(cohort: Records, real: Records) -> bool:
    """Whether one record makes up more than an eleventh of the cohort, and at most ten real patients have it."""
    often = max(len(cohort) / SMALLEST_SHOWN, SMALLEST_SHOWN - 1)
    repeated = {key for key, times in Counter(keys(cohort)).items() if times > often}
    patients = Counter(key for key in keys(real) if key in repeated)  # keeping all real records would take memory
    return any(patients[key] < SMALLEST_SHOWN for key in repeated)
