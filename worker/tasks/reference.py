"""The reference cohort: records that a model draws once after training. Estimates are made of them and of nothing else.

It is drawn without a condition by the model's own sampler, from a seed that is the same for every model, and held
against the training records as any cohort is: what copies patients may not be asked about.
"""

import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ehr.audits import ReferenceFacts
from ehr.errors import JobInterruptedError
from ehr.generators import CHUNK
from ehr.histories import Histories
from ehr.records import Records
from ehr.reports import Verdict
from model_store.datasets import SPLITS, StoredDataset
from runtime.logs import place_of
from worker.engine.generators import Generator, SampleRequest
from worker.engine.histories.protocol import HistoryGenerator, HistoryRequest
from worker.engine.metrics.attacks import AttackSets
from worker.engine.metrics.exact_matches import EXACT_MATCHES
from worker.engine.metrics.time.yardsticks import all_visits
from worker.evaluation.near_identical import near_identical

log = logging.getLogger(__name__)

REFERENCE_SEED = 7_310_579_622_081_664  # that nobody asks for by chance
SHARE_OF_TRAINING = 0.1
MOST_CHUNKS = 16  # drawn between two looks at the clock
UNDER_TERMS = "the terms of this data forbid attacks"
SAME_RECORD = Verdict(
    level="fail",
    reason="Many of the records that this model draws are identical, and hardly any real patient has such a record.",
    advice="Train again with other settings, or another generator.",
)
MOST_PATIENTS = 20_000  # of models of patients over time: each has many records' worth of codes
Drawn = tuple[Records | Histories | None, dict[str, Any]]  # what was drawn, and ReferenceFacts as plain JSON
Made = TypeVar("Made", Records, Histories)


def reference_cohort(
    generator: Generator | HistoryGenerator,
    dataset: StoredDataset,
    holdout_share: float | None,
    n: int,
    seconds: float,
    on_progress: Callable[[int], None] = lambda done: None,
) -> Drawn:
    """Draw up to `n` records or patients in about so many seconds, and check them. A training of hours is not lost
    because that failed: without a reference cohort, estimates say that they do not know."""
    drawn: Records | Histories | None = None
    try:
        drawn = _drawn(generator, len(dataset.vocabulary), n, seconds, on_progress)
        verdict, absent = _checked(drawn, dataset, holdout_share)
    except JobInterruptedError:
        raise
    except Exception as error:
        log.warning("no reference cohort", extra={"type": type(error).__name__, "at": place_of(error)})
        verdict, absent = None, f"an unexpected {type(error).__name__}"
    learned = dataset.split if dataset.histories is None else dataset.split_histories
    facts = ReferenceFacts(
        records=0 if drawn is None else len(drawn),
        training_records=two_digits(len(learned("train", holdout_share))),
        seed=REFERENCE_SEED,
        verdict=verdict,
        absent=absent,
    )
    return drawn, facts.model_dump(mode="json")


def _drawn(
    generator: Generator | HistoryGenerator, n_codes: int, n: int, seconds: float, on_progress: Callable[[int], None]
) -> Records | Histories:
    if isinstance(generator, HistoryGenerator):
        over_time = generator

        def patients(rows: int, chunk: int) -> Histories:
            return over_time.sample(HistoryRequest(rows, REFERENCE_SEED, first_chunk=chunk))

        return Histories.concatenate(in_time(patients, n, seconds, on_progress))
    return draw(generator, n_codes, n, seconds, on_progress)


def draw(generator: Generator, n_codes: int, n: int, seconds: float, on_progress: Callable[[int], None]) -> Records:
    """The first `n` records, or as many whole chunks of them as the time allows, at least one."""

    def records(rows: int, chunk: int) -> Records:
        return generator.sample(SampleRequest(n=rows, seed=REFERENCE_SEED, first_chunk=chunk))

    return Records.concatenate([Records.from_sets([], n_codes), *in_time(records, n, seconds, on_progress)])


def in_time(make: Callable[[int, int], Made], n: int, seconds: float, on_progress: Callable[[int], None]) -> list[Made]:
    """`make(rows, first chunk)` until there are n rows or the time is over."""
    parts: list[Made] = []
    done, chunks, deadline = 0, 1, time.monotonic() + seconds
    while done < n and (done == 0 or time.monotonic() < deadline):
        rows = min(chunks * CHUNK, n - done)
        parts.append(make(rows, done // CHUNK))
        done, chunks = done + rows, min(2 * chunks, MOST_CHUNKS)
        on_progress(done)
    return parts


def _checked(
    drawn: Records | Histories, dataset: StoredDataset, holdout_share: float | None
) -> tuple[Verdict | None, str | None]:
    """(verdict, None), or why there is none. Patients over time are compared by all their visits."""
    if not dataset.may_be_attacked:
        return None, UNDER_TERMS
    if isinstance(drawn, Histories):
        records = all_visits(drawn)
        real = [all_visits(dataset.split_histories(name, holdout_share)) for name in SPLITS]
    else:
        records, real = drawn, [dataset.split(name, holdout_share) for name in SPLITS]
    sets_rng, rng = np.random.default_rng(REFERENCE_SEED).spawn(2)
    train, holdout, test = real
    sets = AttackSets(records, train, holdout, test, sets_rng)
    if (reason := sets.too_small()) is not None:
        return None, reason
    if near_identical(records, Records.concatenate(real)):
        return SAME_RECORD, None
    return EXACT_MATCHES.measure(sets, rng).verdict, None


def two_digits(count: int) -> int:
    """15,973 is 16,000."""
    return int(float(f"{count:.2g}"))
