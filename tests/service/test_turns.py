"""Whose job is next: laws of fair dispatch, on both databases and without workers."""

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import delete, select, update

from ehr.errors import LeaseLostError, QuotaError
from model_store import migrate
from model_store.clock import now
from model_store.database import Database
from model_store.ids import MODEL, new_id
from model_store.limits import Limits
from model_store.repositories import JobRepository, LeaseRepository, OutboxRepository, OwnerRepository, TurnRepository
from model_store.repositories.leases import Claim
from model_store.tables import Job, Outbox, Owner
from tests.service.fixtures import DATABASES, NewUrl
from tests.service.servers import wait_until
from tests.service.stand import Stand, long_csv
from worker.contract import QUEUES, ROUTES

ALL = list(QUEUES.values())
MANY = 1_000


@pytest.fixture(params=DATABASES, scope="module")
def migrated(request: pytest.FixtureRequest, new_url: NewUrl) -> Iterator[Database]:
    url = new_url(request.param)
    migrate.upgrade(url)
    database = Database(url)
    yield database
    database.close()


@pytest.fixture
def database(migrated: Database) -> Database:
    """With nobody in it."""
    with migrated.session_scope() as session:
        for table in (Outbox, Job, Owner):
            session.execute(delete(table))
    return migrated


def submitted(database: Database, owner: str, kind: str = "generate", priority: int = 0, n: int = 10) -> str:
    with database.session_scope() as session:
        payload = {"n": n, "model_id": new_id(MODEL)}
        return JobRepository(session).submit(owner, kind, *ROUTES[kind], payload, 3, priority=priority).id


def claimed(database: Database, queues: list[str] = ALL, most: int = MANY) -> Claim | None:
    with database.session_scope() as session:
        return TurnRepository(session).claim_next(queues, "w", 60, most)


def ran(database: Database, claim: Claim | None, seconds: float | dict[str, float]) -> str:
    """The job has taken so long, and ends; whose it was."""
    assert claim is not None
    seconds = seconds if isinstance(seconds, float | int) else seconds[claim.owner]
    with database.session_scope() as session:
        session.execute(update(Job).where(Job.id == claim.job_id).values(started_at=now() - seconds))
        LeaseRepository(session).succeed(claim, {})
    return claim.owner


def makes_way(database: Database, claim: Claim | None, patience: float = 0) -> bool:
    assert claim is not None
    with database.session_scope() as session:
        return TurnRepository(session).makes_way(claim, ALL, MANY, patience)


def weigh(database: Database, owner: str, weight: float = 1, **limits: int) -> None:
    with database.session_scope() as session:
        OwnerRepository(session).change(owner, weight, limits)


def test_a_small_job_waits_for_none_of_those_before_it(database: Database) -> None:
    for _ in range(20):
        submitted(database, "huge")
    ran(database, claimed(database), 5)
    small = submitted(database, "small")
    claim = claimed(database)
    assert claim is not None and claim.job_id == small


def test_time_is_shared_and_not_the_number_of_jobs(database: Database) -> None:
    """Jobs of ada take ten seconds, those of bob one: bob has ten for each of hers."""
    for _ in range(4):
        submitted(database, "ada")
    for _ in range(24):
        submitted(database, "bob")
    served = Counter(ran(database, claimed(database), {"ada": 10.0, "bob": 1.0}) for _ in range(24))
    assert served["ada"] in (2, 3)


def test_weights_are_shares(database: Database) -> None:
    weigh(database, "ada", 3)
    for _ in range(20):
        submitted(database, "ada")
        submitted(database, "bob")
    served = Counter(ran(database, claimed(database), 1) for _ in range(16))
    assert served == {"ada": 12, "bob": 4}


def test_small_jobs_one_after_the_other_wait_for_nobodys_round(database: Database) -> None:
    """Five owners with full queues of twenty-second jobs have all had one: whoever comes with a job of a second, then
    with the next, is served before their second round goes on."""
    for number in range(20):
        submitted(database, f"busy {number % 5}")
    for _ in range(5):
        ran(database, claimed(database), 20)
    for _ in range(4):
        submitted(database, "small")
        assert ran(database, claimed(database), {"small": 1.0}) == "small"
        ran(database, claimed(database), 20)


def test_short_jobs_go_first_and_have_no_more_for_it(database: Database) -> None:
    for _ in range(8):
        submitted(database, "long")
    for _ in range(200):
        submitted(database, "short")
    served: Counter[str] = Counter()
    seconds = {"long": 20.0, "short": 1.0}
    for _ in range(120):
        owner = ran(database, claimed(database), seconds)
        served[owner] += int(seconds[owner])
    assert abs(served["long"] - served["short"]) <= 40


def test_who_was_away_saves_nothing_up(database: Database) -> None:
    for _ in range(12):
        submitted(database, "busy")
    for _ in range(8):
        ran(database, claimed(database), 100)
    for _ in range(4):
        submitted(database, "late")
    served = [ran(database, claimed(database), 100) for _ in range(4)]
    assert served[0] == "late" and "busy" in served


def test_priorities_are_among_ones_own(database: Database) -> None:
    plain, urgent, other = (
        submitted(database, "ada"),
        submitted(database, "ada", priority=1),
        submitted(database, "bob"),
    )
    order = [claim.job_id for claim in (claimed(database), claimed(database), claimed(database)) if claim]
    assert order == [urgent, other, plain]


def test_workers_take_what_their_queues_have(database: Database) -> None:
    training = submitted(database, "ada", "train")
    assert claimed(database, ["ingest", "generate"]) is None
    claim = claimed(database, ["train"])
    assert claim is not None and claim.job_id == training


def test_an_owner_runs_as_many_as_they_may(database: Database) -> None:
    weigh(database, "ada", running_jobs=2)
    for _ in range(4):
        submitted(database, "ada")
    won: list[Claim | None] = []
    threads = [threading.Thread(target=lambda: won.append(claimed(database))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    running = [claim for claim in won if claim is not None]
    assert len(running) == 2
    with database.session_scope() as session:
        session.execute(update(Outbox).values(due_at=now() + 600, published=1))
    ran(database, running[0], 1)
    with database.session_scope() as session:
        TurnRepository(session).next_of("ada", MANY)  # the messages of the other two were in vain
        assert len(OutboxRepository(session).take_due()) == 1
    assert claimed(database) is not None and claimed(database) is None


def test_who_makes_way_for_whom(database: Database) -> None:
    submitted(database, "ada")
    adas = claimed(database)
    assert not makes_way(database, adas)
    submitted(database, "ada")
    assert not makes_way(database, adas)  # of her own, and no more urgent
    submitted(database, "bob")
    assert not makes_way(database, adas, patience=60)  # a free worker may still take it
    assert makes_way(database, adas)
    assert not makes_way(database, adas)  # one is enough for one
    bobs = claimed(database)
    assert bobs is not None and bobs.owner == "bob"
    assert not makes_way(database, bobs)  # ada runs as much as he does
    submitted(database, "bob", priority=1)
    assert makes_way(database, bobs)  # his own, and more urgent


def test_nobody_makes_way_for_who_has_had_more(database: Database) -> None:
    submitted(database, "bob")
    ran(database, claimed(database), 1000)
    submitted(database, "ada")
    adas = claimed(database)
    submitted(database, "bob")
    with database.session_scope() as session:  # both have been here all the time
        session.execute(update(Owner).where(Owner.owner == "ada").values(used=0.0))
    assert not makes_way(database, adas)
    with database.session_scope() as session:
        session.execute(update(Owner).where(Owner.owner == "ada").values(used=2000.0))
    assert makes_way(database, adas)


def test_of_ten_submissions_with_three_places_three_are_admitted(database: Database) -> None:
    limits = Limits(queued_jobs=3, running_jobs=1, queued_records=1_000, stored_bytes=1_000)
    refused: list[QuotaError] = []

    def submit() -> None:
        try:
            with database.session_scope() as session:
                OwnerRepository(session).admit("ada", limits)
                JobRepository(session).submit("ada", "train", *ROUTES["train"], {"model_id": new_id(MODEL)}, 3)
        except QuotaError as error:
            refused.append(error)

    threads = [threading.Thread(target=submit) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 7 and {(error.counted, error.cap, error.used) for error in refused} == {
        ("queued_jobs", 3, 3)
    }


def test_what_is_under_way_counts_and_what_has_ended_does_not(database: Database) -> None:
    submitted(database, "ada", n=70)
    claim = claimed(database)
    submitted(database, "ada", n=20)
    with database.session_scope() as session:
        owners = OwnerRepository(session)
        usage = owners.usage("ada")
        assert (usage["queued_jobs"], usage["running_jobs"], usage["queued_records"]) == (1, 1, 90)
        owners.admit("ada", Limits(9, 9, 100, 9), records=10)
        with pytest.raises(QuotaError, match="queued_records: 90 of 100"):
            owners.admit("ada", Limits(9, 9, 100, 9), records=11)
        assert owners.usage("bob") == dict.fromkeys(usage, 0)
    ran(database, claim, 1)
    with database.session_scope() as session:
        assert OwnerRepository(session).usage("ada")["queued_records"] == 20


def test_how_long_a_job_has_run_counts_all_its_attempts(database: Database) -> None:
    submitted(database, "ada")
    claim = claimed(database)
    assert claim is not None
    with database.session_scope() as session:
        session.execute(update(Job).values(started_at=now() - 50))
        LeaseRepository(session).give_back(claim, *ROUTES["generate"], counts=False)
    again = claimed(database)
    assert again is not None
    with database.session_scope() as session:
        session.execute(update(Job).values(started_at=now() - 7))
        assert LeaseRepository(session).heartbeat(again, 60).ran_seconds == pytest.approx(57, abs=5)
        assert session.scalars(select(Owner.used)).one() == pytest.approx(50, abs=5)


@pytest.mark.parametrize("hours", [-1, 1])
def test_the_clock_of_the_database_jumps_by_an_hour(database: Database, hours: int) -> None:
    """What is stored is an hour off then. Forth: whoever is first has the job, the worker or the sweeper, never both.
    Back: the worker's next beat puts it right."""
    job_id = submitted(database, "ada")
    claim = claimed(database)
    assert claim is not None
    with database.session_scope() as session:
        session.execute(update(Job).values(lease_until=Job.lease_until + hours * 3600))
        LeaseRepository(session).heartbeat(claim, 60)
        assert LeaseRepository(session).expire(ROUTES) == []
        left = session.scalars(select(Job.lease_until - now()).where(Job.id == job_id)).one()
        assert left == pytest.approx(60, abs=5)
        session.execute(update(Job).values(lease_until=Job.lease_until + hours * 3600))
        expired = LeaseRepository(session).expire(ROUTES)
    assert [each.state for each in expired] == (["queued"] if hours < 0 else [])
    if hours < 0:  # what was stored lies an hour in the past: the clock went forth
        with database.session_scope() as session, pytest.raises(LeaseLostError):
            LeaseRepository(session).heartbeat(claim, 60)


def test_no_lease_is_reckoned_by_a_clock_that_can_be_set() -> None:
    """Hosts' clocks differ and jump: leases are the database's, waits are monotonic."""
    for name in ("worker/heartbeat", "worker/execution", "model_store/repositories/leases", "runtime/sweeper"):
        source = (Path(__file__).parents[2] / f"{name}.py").read_text()
        assert "time.time(" not in source and "datetime" not in source, name


def test_a_huge_cohort_makes_way_between_its_parts(sqlite_stand: Stand) -> None:
    """One worker: a small job of somebody else is done before it goes on, and nothing of it is made twice."""
    stand = sqlite_stand
    dataset_id = stand.succeed(stand.ingest(long_csv()))["dataset_id"]
    model_id = stand.succeed(stand.train(dataset_id, generator="independent", settings={}))["model_id"]
    huge = stand.generate(model_id, n=1_000_000, evaluate=False)
    stand.wait(huge, state="running")
    wait_until(lambda: len(stand.blobs(f"cohorts/{huge}")) > 0, "a part")
    stand.succeed(stand.ingest(long_csv(), owner="somebody else"))
    made = set(stand.blobs(f"cohorts/{huge}"))
    wait_until(lambda: stand.job(huge).attempt == 2, "its next turn")
    wait_until(lambda: len(stand.blobs(f"cohorts/{huge}")) > len(made), "more parts")
    assert made <= set(stand.blobs(f"cohorts/{huge}")) and stand.job(huge).max_attempts >= 4
    assert stand.states(huge)[:4] == ["queued", "running", "queued", "running"]
    stand.cancel(huge)
    stand.wait(huge)


def test_a_job_that_runs_too_long_fails_and_says_so(sqlite_stand: Stand) -> None:
    job_id = sqlite_stand.ingest(long_csv(), "slow:60")
    sqlite_stand.wait(job_id, state="running")
    with sqlite_stand.database.session_scope() as session:
        session.execute(update(Job).where(Job.id == job_id).values(ran_seconds=sqlite_stand.settings.job_seconds))
    job = sqlite_stand.wait(job_id)
    assert job.state == "failed" and job.error is not None and job.error["type"] == "time-limit"
