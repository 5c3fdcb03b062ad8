"""Which codes did the generator forget?"""

import numpy as np

from ehr.records import Records
from worker.engine.metrics.intervals import code_counts, jackknife_interval, random_groups, too_few
from worker.engine.metrics.measurement import Bounds, CohortMetric, Measurement, Words
from worker.engine.metrics.verdicts import between_yardsticks

BOUNDS: Bounds = (0.0, None)


def measure(cohort: Records, test: Records, train: Records, rng: np.random.Generator) -> Measurement:
    """The number of codes that some training record has and no record of the cohort."""
    if (reason := too_few(cohort=cohort)) is not None:
        return Measurement(absent=reason)
    in_train = train.counts() > 0  # (N,)
    if not in_train.any():
        return Measurement(absent="no training record has any code")
    of_group = code_counts(random_groups(cohort, rng))[:, in_train]  # (G, n)
    in_cohort = of_group.sum(axis=0)  # (n,)
    # the codes to look for are fixed, only the cohort is left out: a code is lost when one group alone had it
    leave_outs = [float(np.sum(in_cohort == counts)) for counts in of_group]
    return jackknife_interval(float(np.sum(in_cohort == 0)), leave_outs, (0.0, float(in_train.sum())), len(cohort))


CODES_MISSING = CohortMetric(
    name="codes_missing",
    title="Codes missing",
    direction="lower",
    bounds=BOUNDS,
    meaning="How many codes of the training records appear in none of the synthetic records that were measured.",
    rule=between_yardsticks("lower", good_within=10, fail_beyond=50),
    words=Words(
        good="Hardly any code of the training records is missing.",
        caution="Some rare codes never appear in the cohort.",
        fail="Many codes of the training records never appear in the cohort.",
        unsure="There are too few records to tell whether more codes are missing than chance explains.",
        advice="Generate more records, or train longer; do not study the codes listed as missing.",
    ),
    measure=measure,
)
