"""The reference cohort: records that a model draws once after training. Estimates are made of them and of nothing else.

It is drawn without a condition by the model's own sampler, from a seed that is the same for every model, and held
against the training records as any cohort is: what copies patients may not be asked about.
"""

import logging
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ehr.audits import ReferenceFacts
from ehr.errors import JobInterruptedError
from ehr.generators import CHUNK
from ehr.records import Records
from ehr.reports import Verdict
from model_store.datasets import StoredDataset
from runtime.logs import place_of
from worker.engine.generators import Generator, SampleRequest
from worker.engine.metrics.attacks import AttackSets
from worker.engine.metrics.exact_matches import EXACT_MATCHES
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
Drawn = tuple[Records | None, dict[str, Any]]  # the records, and ReferenceFacts as plain JSON


def reference_cohort(
    generator: Generator,
    dataset: StoredDataset,
    holdout_share: float | None,
    n: int,
    seconds: float,
    on_progress: Callable[[int], None] = lambda done: None,
) -> Drawn:
    """Draw up to `n` records in about so many seconds, and check them. A training of hours is not lost because that
    failed: without a reference cohort, estimates say that they do not know."""
    train = dataset.split("train", holdout_share)
    records = None
    try:
        records = draw(generator, len(dataset.vocabulary), n, seconds, on_progress)
        verdict, absent = _checked(records, train, dataset, holdout_share)
    except JobInterruptedError:
        raise
    except Exception as error:
        log.warning("no reference cohort", extra={"type": type(error).__name__, "at": place_of(error)})
        verdict, absent = None, f"an unexpected {type(error).__name__}"
    facts = ReferenceFacts(
        records=0 if records is None else len(records),
        training_records=two_digits(len(train)),
        seed=REFERENCE_SEED,
        verdict=verdict,
        absent=absent,
    )
    return records, facts.model_dump(mode="json")


def draw(generator: Generator, n_codes: int, n: int, seconds: float, on_progress: Callable[[int], None]) -> Records:
    """The first `n` records, or as many whole chunks of them as the time allows, at least one."""
    parts, done, chunks = [Records.from_sets([], n_codes)], 0, 1
    deadline = time.monotonic() + seconds
    while done < n and (done == 0 or time.monotonic() < deadline):
        rows = min(chunks * CHUNK, n - done)
        parts.append(generator.sample(SampleRequest(n=rows, seed=REFERENCE_SEED, first_chunk=done // CHUNK)))
        done, chunks = done + rows, min(2 * chunks, MOST_CHUNKS)
        on_progress(done)
    return Records.concatenate(parts)


def _checked(
    records: Records, train: Records, dataset: StoredDataset, holdout_share: float | None
) -> tuple[Verdict | None, str | None]:
    """(verdict, None), or why there is none."""
    if not dataset.may_be_attacked:
        return None, UNDER_TERMS
    holdout, test = (dataset.split(name, holdout_share) for name in ("holdout", "test"))
    sets_rng, rng = np.random.default_rng(REFERENCE_SEED).spawn(2)
    sets = AttackSets(records, train, holdout, test, sets_rng)
    if (reason := sets.too_small()) is not None:
        return None, reason
    if near_identical(records, Records.concatenate([train, holdout, test])):
        return SAME_RECORD, None
    return EXACT_MATCHES.measure(sets, rng).verdict, None


def two_digits(count: int) -> int:
    """15,973 is 16,000."""
    return int(float(f"{count:.2g}"))
