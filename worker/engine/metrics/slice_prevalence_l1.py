"""Inside the slice: do the codes that go with the condition come as often as in real patients who have it?"""

import numpy as np
from numpy.typing import NDArray

from ehr.records import Records
from worker.engine.metrics.intervals import code_counts, jackknife_interval, random_groups, too_few
from worker.engine.metrics.measurement import Bounds, Measurement, SliceMetric, Words
from worker.engine.metrics.verdicts import between_yardsticks

BOUNDS: Bounds = (0.0, None)


def l1(a: NDArray[np.float64], n_a: int, b: NDArray[np.float64], n_b: int) -> float:
    """Summed absolute differences of prevalences, from the counts (N,) in n_a and n_b records."""
    return float(np.abs(a / n_a - b / n_b).sum())


def measure(cohort: Records, test: Records, train: Records, rng: np.random.Generator) -> Measurement:
    """The summed absolute difference of the prevalences, with the interval of leaving out a group at a time."""
    if (reason := too_few(cohort=cohort, **{"half of the real slice": test})) is not None:
        return Measurement(absent=reason)
    groups = [random_groups(records, rng) for records in (cohort, test)]
    x, y = (code_counts(each) for each in groups)  # (G, N)
    sizes = [[len(group) for group in each] for each in groups]
    n, m = len(cohort), len(test)
    leave_outs = [
        l1(x.sum(axis=0) - x[g], n - sizes[0][g], y.sum(axis=0) - y[g], m - sizes[1][g]) for g in range(len(x))
    ]
    return jackknife_interval(l1(x.sum(axis=0), n, y.sum(axis=0), m), leave_outs, BOUNDS, n)


SLICE_PREVALENCE_L1 = SliceMetric(
    name="slice_prevalence_l1",
    title="Frequencies of other codes",
    direction="lower",
    bounds=BOUNDS,
    meaning="How much the frequencies of all codes, added up, differ between synthetic and real patients who meet the "
    "condition (two halves of the real ones differ too, by chance).",
    rule=between_yardsticks("lower", good_within=0.1, fail_beyond=2.0, worse="unconditional"),
    words=Words(
        good="Other codes are about as common as in real patients with the condition.",
        caution="Some codes that go with the condition are too common or too rare.",
        fail="Records look like ordinary patients with the asked code written in, not like patients with the "
        "condition.",
        unsure="There are too few patients with the condition to tell whether other codes are as common as in "
        "real ones.",
        advice="Look at the guided prevalences; use another method, or train on more patients with the condition.",
    ),
    measure=measure,
    fewest=2,  # one for each half
)
