"""What courses of disease are held against besides real ones, and patients over time as records for attacks."""

import numpy as np

from ehr.histories import Histories
from ehr.records import Records

OFTEN = (1, 2, 4, 8)  # a code at so many visits is a thing of its own that is known of a patient


def shuffled(histories: Histories, rng: np.random.Generator) -> Histories:
    """The same patients with their visits in random order and the same gaps between them: what knowing everything but
    the order gives."""
    order = np.lexsort([rng.random(len(histories.visits)), histories.patients()])
    return Histories(histories.visits.take(order), histories.offsets, histories.gaps, histories.static)


def all_visits(histories: Histories) -> Records:
    """One record for each patient that tells of all visits: static codes, and each code with how many visits it is at.
    Attacks on records thereby become attacks on patients (worker/engine/metrics/privacy.py)."""
    visits, n = histories.visits, histories.n_codes
    key, times = np.unique(histories.patients()[visits.rows()] * n + visits.indices, return_counts=True)
    rows, codes = [histories.static.rows()], [histories.static.indices.astype(np.int64)]
    for place, often in enumerate(OFTEN):
        kept = key[times >= often]
        rows.append(kept // n)
        codes.append(kept % n + (place + 1) * n)
    return Records.from_pairs(np.concatenate(rows), np.concatenate(codes), len(histories), n * (len(OFTEN) + 1))
