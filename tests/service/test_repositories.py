"""Laws of the tables: one claim, one job for one key, and nothing of other owners."""

import threading
from collections.abc import Iterator
from itertools import pairwise

import pytest
from sqlalchemy import select

from ehr.errors import (
    AccessError,
    ConflictError,
    EhrError,
    IdempotencyConflictError,
    JobCancelledError,
    LeaseLostError,
    NotFoundError,
    RequestError,
)
from model_store import layout, migrate
from model_store.database import Database
from model_store.ids import JOB, MODEL, new_id
from model_store.repositories import (
    CohortRepository,
    DatasetRepository,
    IdempotencyRepository,
    JobRepository,
    KeyRepository,
    LeaseRepository,
    ModelRepository,
    ReportRepository,
)
from model_store.repositories.leases import Claim
from model_store.tables import Discard, Job
from tests.clocks import set_monotonic
from worker.contract import ROUTES
from worker.progress import JobProgress


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    migrate.upgrade(database_url)
    database = Database(database_url)
    yield database
    database.close()


def submitted(database: Database, owner: str = "ada", max_attempts: int = 3) -> str:
    with database.session_scope() as session:
        payload = {"model_id": new_id(MODEL)}
        return JobRepository(session).submit(owner, "train", *ROUTES["train"], payload, max_attempts).id


def claimed(database: Database, job_id: str, worker: str = "w", seconds: float = 60) -> Claim | None:
    with database.session_scope() as session:
        return LeaseRepository(session).claim(job_id, worker, seconds)


def state_of(database: Database, job_id: str) -> str:
    with database.read_scope() as session:
        job = session.get(Job, job_id)
        assert job is not None
        return job.state


def test_of_20_simultaneous_claims_one_wins(database: Database) -> None:
    job_id = submitted(database)
    won: list[Claim] = []
    threads = [
        threading.Thread(target=lambda i=i: won.extend(c for c in [claimed(database, job_id, f"w{i}")] if c))
        for i in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1 and won[0].attempt == 1


def test_20_threads_with_one_idempotency_key_make_one_job(database: Database) -> None:
    seen: list[str] = []

    def submit() -> None:
        with database.session_scope() as session:
            job_id = new_id(JOB)
            earlier = IdempotencyRepository(session).reserve("ada", "POST /train", "k", "hash", job_id)
            if earlier is not None:
                seen.append(earlier)
                return
            payload = {"model_id": new_id(MODEL)}
            JobRepository(session).submit("ada", "train", *ROUTES["train"], payload, 3, job_id=job_id)
            seen.append(job_id)

    threads = [threading.Thread(target=submit) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 20 and len(set(seen)) == 1
    with database.read_scope() as session:
        assert len(JobRepository(session).page("ada").rows) == 1


def test_an_idempotency_key_belongs_to_one_request_of_one_owner(database: Database) -> None:
    mine, theirs = new_id(JOB), new_id(JOB)
    with database.session_scope() as session:
        assert IdempotencyRepository(session).find("ada", "POST /train", "k", "one") is None
        assert IdempotencyRepository(session).reserve("ada", "POST /train", "k", "one", mine) is None
    with database.session_scope() as session:
        assert IdempotencyRepository(session).find("ada", "POST /train", "k", "one") == mine
        assert IdempotencyRepository(session).reserve("ada", "POST /train", "k", "one", theirs) == mine
    for again in (lambda keys: keys.find, lambda keys: lambda *asked: keys.reserve(*asked, theirs)):
        with database.session_scope() as session, pytest.raises(IdempotencyConflictError):
            again(IdempotencyRepository(session))("ada", "POST /train", "k", "two")
    with database.session_scope() as session:
        assert IdempotencyRepository(session).reserve("bob", "POST /train", "k", "two", theirs) is None
    with database.session_scope() as session, pytest.raises(RequestError):
        IdempotencyRepository(session).reserve("ada", "POST /train", "", "one", mine)
    for seconds, kept in ((3600, mine), (-1, None)):  # keys are for retries of a request, not for ever
        with database.session_scope() as session:
            IdempotencyRepository(session).forget_older_than(seconds)
            assert IdempotencyRepository(session).find("ada", "POST /train", "k", "one") == kept


def test_an_expired_claim_can_change_nothing(database: Database) -> None:
    job_id = submitted(database)
    old = claimed(database, job_id, "old", seconds=-1)
    new = claimed(database, job_id, "new")
    assert old is not None and new is not None and new.attempt == 2
    for write in (
        lambda leases: leases.heartbeat(old, 60),
        lambda leases: leases.succeed(old, {}),
        lambda leases: leases.fail(old, "x", "y"),
        lambda leases: leases.finish_cancel(old),
        lambda leases: leases.save_checkpoint(old, {}),
        lambda leases: leases.check(old),
    ):
        with database.session_scope() as session, pytest.raises(LeaseLostError):
            write(LeaseRepository(session))
    with database.session_scope() as session:
        assert not LeaseRepository(session).heartbeat(new, 60).is_cancelled
    assert state_of(database, job_id) == "running"


def test_cancel_and_success_exclude_each_other(database: Database) -> None:
    first, second = submitted(database), submitted(database)
    one, two = claimed(database, first), claimed(database, second)
    assert one is not None and two is not None
    with database.session_scope() as session:
        JobRepository(session).request_cancel("ada", first)
    with database.session_scope() as session, pytest.raises(JobCancelledError):
        LeaseRepository(session).succeed(one, {})
    with database.session_scope() as session:
        LeaseRepository(session).finish_cancel(one)
    with database.session_scope() as session:
        LeaseRepository(session).succeed(two, {"model_id": "x"})
    with database.session_scope() as session, pytest.raises(ConflictError):
        JobRepository(session).request_cancel("ada", second)
    assert (state_of(database, first), state_of(database, second)) == ("cancelled", "succeeded")


def test_a_sweep_queues_again_then_gives_up(database: Database) -> None:
    job_id = submitted(database, max_attempts=2)
    for attempt in (1, 2):
        claim = claimed(database, job_id, f"w{attempt}", seconds=-1)
        assert claim is not None and claim.attempt == attempt
        with database.session_scope() as session:
            (expired,) = LeaseRepository(session).expire(ROUTES)
        assert expired.state == ("queued" if attempt == 1 else "failed")
    with database.read_scope() as session:
        job = JobRepository(session).get("ada", job_id)
    assert job.error is not None and job.error["type"] == "poison"
    assert claimed(database, job_id) is None


def test_progress_that_is_kept_of_a_week_and_of_a_job_that_has_ended(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress, clock, kept = JobProgress("train"), [0.0], 0
    set_monotonic(monkeypatch, lambda: clock[0])
    while clock[0] < 7 * 86_400:
        clock[0] += 2
        kept += progress.is_an_event(clock[0])
    assert 100 < kept < 500  # as many as a page shows
    monkeypatch.undo()
    job_id = submitted(database)
    claim = claimed(database, job_id)
    assert claim is not None
    with database.session_scope() as session:
        for number in range(200):
            progress_then = {"number": number, "step": "load" if number < 2 else "fit" if number < 198 else "store"}
            LeaseRepository(session).heartbeat(claim, 60, progress_then, keeps=number % 2 == 1)
    with database.session_scope() as session:
        LeaseRepository(session).succeed(claim, {})
    with database.read_scope() as session:
        events, log = JobRepository(session).events("ada", job_id), JobRepository(session).log("ada", job_id, 100)
    told = [event.data["number"] for event in events if event.kind == "progress"]
    assert 16 < len(told) <= 32 + 3 and told[-1] == 199 and events[-1].data["state"] == "succeeded"
    assert max(b - a for a, b in pairwise(told)) <= 8  # a curve without holes
    assert [event.data["step"] for event in log if event.kind == "progress"] == ["load", "fit", "store"]


def test_a_retry_takes_back_what_was_to_be_removed(database: Database) -> None:
    """A removal that failed is tried again later: by then the folder may hold what the new attempt wrote."""
    job_id = submitted(database)
    claim = claimed(database, job_id)
    assert claim is not None
    with database.session_scope() as session:
        LeaseRepository(session).fail(claim, "bad-data", "no")
    with database.read_scope() as session:
        prefixes = set(session.scalars(select(Discard.prefix)))
    assert prefixes == {layout.model_folder(claim.payload["model_id"]), layout.checkpoint_folder(job_id)}
    with database.session_scope() as session:
        JobRepository(session).retry("ada", job_id, *ROUTES["train"], 1)
        assert session.scalars(select(Discard.prefix)).all() == []


def test_another_owners_rows_are_invisible(database: Database) -> None:
    job_id = submitted(database, "ada")
    with database.session_scope() as session:
        jobs = JobRepository(session)
        for look in (
            lambda: jobs.get("bob", job_id),
            lambda: jobs.events("bob", job_id),
            lambda: jobs.request_cancel("bob", job_id),
            lambda: jobs.retry("bob", job_id, *ROUTES["train"], 1),
            lambda: CohortRepository(session).get("bob", job_id),
            lambda: ReportRepository(session).newest("bob", job_id),
        ):
            with pytest.raises(NotFoundError):
                look()
        assert jobs.page("bob").rows == []


@pytest.mark.parametrize(
    "trick", ["../../etc/passwd", "job_" + "0" * 31 + "/", "job_%2e%2e", "", "ds_" + "g" * 32, "\x00"]
)
def test_what_is_no_id_is_not_found(database: Database, trick: str) -> None:
    with database.read_scope() as session:
        for repository in (JobRepository, DatasetRepository, ModelRepository, CohortRepository):
            with pytest.raises(NotFoundError):
                repository(session).get("ada", trick)


def test_pages_cover_everything_once_in_order(database: Database) -> None:
    ids = [submitted(database) for _ in range(7)]
    seen, cursor = [], None
    while True:
        with database.read_scope() as session:
            page = JobRepository(session).page("ada", cursor, limit=3)
        seen += [job.id for job in page.rows]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert sorted(seen) == sorted(ids)
    with database.read_scope() as session, pytest.raises(RequestError):
        JobRepository(session).page("ada", "nonsense")


def test_keys_are_kept_as_hashes_and_can_be_revoked(database: Database) -> None:
    with database.session_scope() as session:
        keys = KeyRepository(session)
        assert not keys.any_active()
        row, secret = keys.create("ada", "laptop", ["train", "read"])
    assert secret not in (row.key_hash, row.prefix)
    with database.session_scope() as session:
        keys = KeyRepository(session)
        assert keys.authenticate(secret).owner == "ada"
        for wrong in (secret + "x", secret[:12], "", "ehr_"):
            with pytest.raises(AccessError):
                keys.authenticate(wrong)
        with pytest.raises(RequestError):
            keys.create("ada", "bad", ["everything"])
        keys.revoke(row.id)
        with pytest.raises(AccessError):
            keys.authenticate(secret)


def test_parts_are_taken_by_one_worker_each(database: Database) -> None:
    with database.session_scope() as session:
        job_id = JobRepository(session).submit("ada", "generate", *ROUTES["generate"], {}, 3).id
    assert claimed(database, job_id) is not None
    with database.session_scope() as session:
        CohortRepository(session).ensure_parts(job_id, 25, 10)
        CohortRepository(session).ensure_parts(job_id, 25, 10)  # a second attempt finds them
    taken = []
    for i in range(4):
        with database.session_scope() as session:
            taken.append(CohortRepository(session).claim_part(job_id, f"w{i}", 60))
    assert [(part.number, part.n_records) for part in taken if part is not None] == [(0, 10), (1, 10), (2, 5)]
    assert taken[3] is None
    with database.session_scope() as session:
        assert taken[0] is not None
        CohortRepository(session).finish_part(taken[0], "cohorts/x", "0" * 64, 1, more_attempts=3)
    with database.session_scope() as session, pytest.raises(LeaseLostError):
        CohortRepository(session).finish_part(taken[0], "cohorts/y", "0" * 64, 1, more_attempts=3)
    with database.session_scope() as session:
        assert CohortRepository(session).done_records(job_id) == 10
        JobRepository(session).request_cancel("ada", job_id)
    with database.session_scope() as session:
        assert CohortRepository(session).claim_part(job_id, "late", 60) is None


def test_every_error_has_its_own_reason() -> None:
    def tree(root: type[EhrError]) -> list[type[EhrError]]:
        return [root, *(leaf for child in root.__subclasses__() for leaf in tree(child))]

    ours = [error for error in tree(EhrError) if error.__module__ == "ehr.errors" and "reason" in vars(error)]
    assert len(ours) > 15 and len({error.reason for error in ours}) == len(ours)
