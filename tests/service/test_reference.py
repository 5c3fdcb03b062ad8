"""The reference cohort: drawn once, in bounded time, and held against the training records."""

import time
from typing import Any, Self

import numpy as np
import pytest

from ehr.audits import ReferenceFacts, withholding_verdict
from ehr.errors import JobCancelledError
from ehr.generators import CHUNK
from ehr.generators.independent import INDEPENDENT
from ehr.records import Records
from ehr.vocabulary import Vocabulary
from model_store.datasets import StoredDataset, positions
from worker.engine.generators import FitRequest, Generator, SampleRequest, State, generator_named
from worker.engine.generators.protocol import Chunk, SampleProgress, sample_in_chunks
from worker.tasks.reference import REFERENCE_SEED, draw, reference_cohort, two_digits

N_CODES = 30


class Parrot(Generator):
    """Draws one of a few records again and again; `slow` seconds for each chunk."""

    spec = INDEPENDENT

    def __init__(self, records: Records, slow: float = 0) -> None:
        self.records, self.slow = records, slow

    def sample(self, request: SampleRequest, progress: SampleProgress | None = None) -> Records:
        def repeated(chunk: Chunk) -> Records:
            time.sleep(self.slow)
            return self.records.take(np.random.default_rng(chunk.seed).integers(len(self.records), size=chunk.rows))

        return sample_in_chunks(request, self.records.n_codes, repeated, progress)

    @classmethod
    def fit(cls, request: FitRequest) -> Self:
        return cls(request.train)

    def state(self) -> State:
        raise NotImplementedError

    @classmethod
    def from_state(cls, state: State) -> Self:
        raise NotImplementedError


def dataset(n: int = 2_000, **options: Any) -> StoredDataset:
    records = Records.from_dense(np.random.default_rng(0).random((n, N_CODES)) < 0.3)
    vocabulary = Vocabulary(tuple(f"X:{code}" for code in range(N_CODES)))
    return StoredDataset(records, positions(np.arange(n), n), vocabulary, 0.1, 0.1, "hash", **options)


def facts_of(generator: Generator, data: StoredDataset, n: int = 4 * CHUNK) -> ReferenceFacts:
    facts = ReferenceFacts.of({"reference": reference_cohort(generator, data, None, n, seconds=60)[1]})
    assert facts is not None
    return facts


def test_a_model_that_repeats_its_patients_fails_and_withholds_everything() -> None:
    data = dataset()
    facts = facts_of(Parrot(data.split("train")), data)
    assert facts.verdict is not None and facts.verdict.level == "fail" and not facts.may_be_told
    assert withholding_verdict({"reference": facts.model_dump(mode="json")}) == facts.verdict


def test_one_record_again_and_again_fails() -> None:
    facts = facts_of(Parrot(Records.from_sets([[1, 2, 3]], N_CODES)), dataset())
    assert facts.verdict is not None and facts.verdict.level == "fail" and "identical" in facts.verdict.reason


def test_a_model_of_prevalences_passes() -> None:
    data = dataset()
    model = generator_named("independent").fit(FitRequest(data.split("train")))
    facts = facts_of(model, data)
    assert facts.may_be_told and facts.records == 4 * CHUNK and facts.training_records == 1_600
    assert withholding_verdict({"reference": facts.model_dump(mode="json")}) is None


def test_what_may_not_be_attacked_or_cannot_be_checked_is_not_told_and_does_not_fail() -> None:
    for data, words in ((dataset(may_be_attacked=False), "terms"), (dataset(300), "fewer than 50")):
        facts = facts_of(Parrot(data.split("train")), data)
        assert facts.verdict is None and words in str(facts.absent) and not facts.may_be_told


def test_a_generator_that_cannot_draw_does_not_lose_its_training() -> None:
    class Broken(Parrot):
        def sample(self, request: SampleRequest, progress: SampleProgress | None = None) -> Records:
            raise ValueError("no")

    records, facts = reference_cohort(Broken(dataset().records), dataset(), None, 10, 60)
    assert records is None and facts["records"] == 0 and facts["absent"] == "an unexpected ValueError"


def test_the_clock_ends_it_and_what_is_there_is_the_beginning_of_the_same() -> None:
    slow, quick = (Parrot(dataset().records, seconds) for seconds in (0.05, 0))
    whole = draw(quick, N_CODES, 20 * CHUNK + 7, 60, lambda done: None)
    assert len(whole) == 20 * CHUNK + 7
    begun = draw(slow, N_CODES, 20 * CHUNK + 7, 0.3, lambda done: None)
    assert CHUNK <= len(begun) < len(whole) and len(begun) % CHUNK == 0
    assert np.array_equal(begun.indices, whole.indices[: len(begun.indices)])
    asked = quick.sample(SampleRequest(n=20 * CHUNK + 7, seed=REFERENCE_SEED))
    assert np.array_equal(asked.indices, whole.indices)  # what anyone would get who asked for that seed


def test_a_cancelled_job_stops_drawing() -> None:
    def cancel(done: int) -> None:
        raise JobCancelledError("the job was asked to stop")

    with pytest.raises(JobCancelledError):
        reference_cohort(Parrot(dataset().records), dataset(), None, 10 * CHUNK, 60, cancel)


def test_two_digits() -> None:
    assert [two_digits(n) for n in (0, 7, 99, 104, 15_973, 1_650_001)] == [0, 7, 99, 100, 16_000, 1_700_000]
