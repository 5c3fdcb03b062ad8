"""A cohort does not depend on who made which part of it, nor on how often someone died on the way."""

import numpy as np
import pytest

from ehr.generators import CHUNK
from ehr.records import Records
from model_store.repositories import CohortRepository
from model_store.tables import CohortPart
from tests.service.servers import wait_until
from tests.service.stand import BRIEF_LEASE, OWNER, Stand, long_csv
from worker.engine.generators import FitRequest, SampleRequest
from worker.engine.generators.independent import IndependentGenerator

PARTS = 40  # enough that a worker can be killed among them


def test_a_chunk_is_the_same_whoever_draws_it() -> None:
    train = Records.from_sets([[0], [0, 1], [1, 2], [2]], 3)
    generator = IndependentGenerator.fit(FitRequest(train))
    whole = generator.sample(SampleRequest(2 * CHUNK + 5, seed=3))
    tail = generator.sample(SampleRequest(CHUNK + 5, seed=3, first_chunk=1))
    assert np.array_equal(tail.indices, whole.take(np.arange(CHUNK, 2 * CHUNK + 5)).indices)


def parts_of(stand: Stand, job_id: str) -> list[CohortPart]:
    with stand.database.read_scope() as session:
        return CohortRepository(session).parts(job_id)


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
def test_killed_in_mid_generation_keeps_its_parts_and_two_workers_share_the_rest(stand: Stand) -> None:
    first = stand.worker(**BRIEF_LEASE)
    dataset_id = stand.succeed(stand.ingest(long_csv()))["dataset_id"]
    model_id = stand.succeed(stand.train(dataset_id, epochs=1))["model_id"]
    request = {"n": PARTS * CHUNK, "seed": 1, "steps": 50, "evaluate": False}
    reference = stand.generate(model_id, **request)
    stand.succeed(reference)
    job_id = stand.generate(model_id, **request)
    wait_until(lambda: any(part.state == "done" for part in parts_of(stand, job_id)), "a finished part")
    first.kill()
    kept = {part.number: part.blob for part in parts_of(stand, job_id) if part.state == "done"}
    assert 0 < len(kept) < PARTS
    stand.worker()
    stand.worker()
    stand.succeed(job_id)
    parts = parts_of(stand, job_id)
    assert {part.number: part.blob for part in parts if part.number in kept} == kept
    assert [part.sha256 for part in parts] == [part.sha256 for part in parts_of(stand, reference)]
    assert len({(part.worker or "").split(":")[1] for part in parts}) > 1
    # exactly the parts and the manifest are left
    wait_until(lambda: len(stand.blobs(f"cohorts/{job_id}")) == PARTS + 1, "a tidy folder")
    with stand.database.read_scope() as session:
        assert CohortRepository(session).get(OWNER, job_id).n_records == PARTS * CHUNK
