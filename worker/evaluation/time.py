"""Time: are the courses of a cohort's patients like those of real ones?"""

from functools import cache, partial

import numpy as np

from ehr.histories import Histories
from worker.engine.generators.markov import MarkovGenerator
from worker.engine.histories.protocol import HistoryFit, HistoryRequest
from worker.engine.metrics.intervals import N_GROUPS
from worker.engine.metrics.measurement import SMALLEST_SLICE, Plan, Result
from worker.engine.metrics.time import TIME, plan_time
from worker.evaluation.figures import of_metric
from worker.evaluation.plan import FamilyPlan, reported
from worker.evaluation.subject import OverTime, Subject

# What a report looks at, of each set, whatever the size of the data and the cohort.
MOST_PATIENTS = 5_000
MOST_PAIRS = 12_000_000  # of codes of one visit and of two that follow each other
MOST_ORDERS = 4_000_000  # of codes of one patient, all of which are held in memory


def time_plan(subject: Subject, rng: np.random.Generator) -> FamilyPlan | None:
    """Every metric of time beside its yardsticks; None where records are by themselves."""
    found = subject.over_time
    if found is None:
        return None
    against = "real test patients" + (" who satisfy the condition" if subject.is_conditioned else "")
    against += f"; at most {MOST_PATIENTS:,} random patients of each kind are looked at"
    if (reason := _too_few(found)) is not None:
        return FamilyPlan.absent(against, reason)
    few_rng, markov_rng, metrics_rng = rng.spawn(3)

    @cache
    def plan() -> dict[str, partial[Result]]:
        cohort, test, train = (looked_at(found.inside(name), few_rng) for name in ("cohort", "test", "train"))
        chain = MarkovGenerator.fit(HistoryFit(train))
        last_visit = chain.sample(HistoryRequest(len(train), int(markov_rng.integers(2**62))))
        sets, codes = (cohort, test, train, last_visit), subject.vocabulary.codes
        return {name: partial(measure) for name, measure in plan_time(*sets, metrics_rng, codes=codes)}

    def measured(name: str) -> Result:
        return plan()[name]()

    steps: Plan[Result] = [(metric.name, partial(measured, metric.name)) for metric in TIME]
    return FamilyPlan.measuring(against, reported(steps, of_metric))


def _too_few(found: OverTime) -> str | None:
    """Why there is nothing to compare with, or None."""
    if found.condition is not None:
        inside = [len(found.inside(name)) for name in ("train", "test")]
        if min(inside) < SMALLEST_SLICE:
            return f"fewer than {SMALLEST_SLICE} real patients of the train or test split satisfy the condition"
    if min(len(found.inside(name)) for name in ("cohort", "train", "test")) < N_GROUPS:
        return f"fewer than {N_GROUPS} patients of the cohort, or of the train or test split"
    return None


def looked_at(histories: Histories, rng: np.random.Generator) -> Histories:
    """Random patients, as many as measuring takes a bounded time and memory for."""
    some = histories.take(rng.permutation(len(histories))[:MOST_PATIENTS])
    sizes = some.visits.sizes()
    after = np.append(sizes[1:], 0)
    after[some.offsets[1:] - 1] = 0
    of_visits = np.add.reduceat(sizes * (sizes + after), some.offsets[:-1]) if len(some) else sizes
    of_patients = np.square(some.ever().sizes())
    limits = ((of_visits, MOST_PAIRS), (of_patients, MOST_ORDERS))
    enough = min(int(np.searchsorted(np.cumsum(pairs), most, side="right")) for pairs, most in limits)
    return some if enough >= len(some) else some.take(np.arange(max(enough, N_GROUPS)))
