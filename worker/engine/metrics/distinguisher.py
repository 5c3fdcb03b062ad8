"""Can a classifier tell synthetic records from real ones, and what gives them away?"""

import numpy as np

from ehr.records import Records
from worker.engine.metrics.attacks import sampled
from worker.engine.metrics.auroc import auroc
from worker.engine.metrics.classifier import Classifier, Label
from worker.engine.metrics.intervals import N_BOOTSTRAPS, bootstrapped
from worker.engine.metrics.measurement import Bounds, CohortMetric, Measurement, Words
from worker.engine.metrics.ranking import Ranking
from worker.engine.metrics.verdicts import Limits, near_yardstick

BOUNDS: Bounds = (0.0, 1.0)
FEWEST, MOST = 300, 25_000  # records of each kind
TREES = 200  # telling two kinds apart needs fewer than predicting a disease


def measure(cohort: Records, test: Records, train: Records, rng: np.random.Generator) -> Measurement:
    """AUROC on a third of the records, of a classifier trained on the other two thirds, with as many of each kind."""
    return told_apart(cohort, test, rng)[0]


def told_apart(cohort: Records, test: Records, rng: np.random.Generator) -> tuple[Measurement, list[tuple[int, float]]]:
    """The same, and the codes that it is told by: (code, its share of it), the weightiest first."""
    n = min(len(cohort), len(test), MOST)
    if n < FEWEST:
        return Measurement(absent=f"fewer than {FEWEST} records of each kind"), []
    # one more code says which records are of the cohort: then this is a label like any other
    both = [_marked(sampled(cohort, n, rng)), _unmarked(sampled(test, n, rng))]
    mixed = Records.concatenate(both).take(rng.permutation(2 * n))
    label = Label("synthetic", (cohort.n_codes,))
    known, asked = mixed.take(np.arange(4 * n // 3)), mixed.take(np.arange(4 * n // 3, 2 * n))
    classifier = Classifier.trained(known, label, TREES)
    ranking = Ranking.of(label.of(asked), classifier.scores(asked))
    draws = [rng.integers(0, len(asked), len(asked)) for _ in range(N_BOOTSTRAPS)]
    found = bootstrapped(auroc(ranking.curve()), np.array([auroc(ranking.curve(rows)) for rows in draws]), BOUNDS, n)
    return found, classifier.weights()


def _unmarked(records: Records) -> Records:
    return Records(records.indptr, records.indices, records.n_codes + 1)


def _marked(records: Records) -> Records:
    ends = records.indptr[1:]
    indices = np.insert(records.indices, ends, records.n_codes).astype(np.int32)
    return Records(records.indptr + np.arange(len(records.indptr)), indices, records.n_codes + 1)


DISTINGUISHER = CohortMetric(
    name="distinguisher",
    family="plausible",
    title="Telling synthetic from real (AUROC)",
    direction="lower",
    bounds=BOUNDS,
    meaning="How often a classifier that has seen both gives a synthetic record a higher score than a real one (0.5: "
    "it cannot tell them apart; 1: it always can).",
    rule=near_yardstick("floor", "lower", Limits(good=0.1, sure=0.15, fail=0.3)),
    words=Words(
        good="A classifier can hardly tell synthetic records from real ones.",
        caution="A classifier tells synthetic records from real ones more often than not.",
        fail="A classifier tells synthetic records from real ones nearly always.",
        unsure="There are too few records to know whether a classifier can tell synthetic records from real ones.",
        advice="Train longer or on more records before you use single records rather than statistics over many.",
    ),
    measure=measure,
)
