"""A message is only a hint: lost, doubled or late, every job runs once."""

import threading

from tests.service.fixtures import ON_POSTGRES, ON_SQLITE
from tests.service.servers import wait_until
from tests.service.stand import Stand, long_csv
from worker import health
from worker.contract import ROUTES


def test_the_same_message_three_times_runs_once(stand: Stand) -> None:
    job_id = stand.ingest(long_csv(), "slow:0.5", publish=False)
    for _ in range(3):
        stand.broker.send(*ROUTES["ingest"], job_id)
    stand.worker(WORKER_CONCURRENCY="2")
    stand.succeed(job_id)
    stand.broker.send(*ROUTES["ingest"], job_id)
    stand.succeed(stand.ingest(long_csv()))  # by now the late message has been seen, too
    assert stand.job(job_id).attempt == 1
    assert stand.states(job_id) == ["queued", "running", "succeeded"]


def test_a_message_that_was_never_sent_is_sent_by_the_sweeper(shared_stand: Stand) -> None:
    job_id = shared_stand.ingest(long_csv(), publish=False)  # as if the API died between commit and publish
    shared_stand.succeed(job_id)


@ON_POSTGRES
def test_broker_down_at_submit_and_killed_in_mid_job(stand: Stand) -> None:
    own = stand.folder / "tmp"
    own.mkdir()
    worker = stand.worker(TMPDIR=str(own))
    running = stand.ingest(long_csv(), "slow:3")
    stand.wait(running, state="running")
    stand.valkey.kill()
    submitted = stand.ingest(long_csv())  # returns: nobody waits for a broker
    assert stand.job(submitted).state == "queued"
    stand.succeed(running)  # the job never needed the broker
    wait_until(lambda: "Cannot connect" in worker.log.read_text(), "a worker that waits for the broker")
    (own / f"{health.PREFIX}{worker.process.pid}").unlink()
    wait_until(lambda: health.living(own) == [worker.process.pid], "a worker that lives all the same")
    stand.valkey.start()
    stand.succeed(submitted)
    assert stand.job(running).attempt == 1
    stand.succeed(stand.ingest(long_csv()))


@ON_SQLITE
def test_all_50_queued_jobs_run_after_flushall(stand: Stand) -> None:
    jobs = [stand.ingest(long_csv(40), min_records=1) for _ in range(50)]
    assert stand.valkey.client().llen("ingest") >= 50  # more if this took so long that some were announced again
    stand.valkey.client().flushall()
    stand.worker()
    for job_id in jobs:
        stand.succeed(job_id)
    assert {stand.job(job_id).attempt for job_id in jobs} == {1}


def test_two_sweepers_send_a_message_once(stand: Stand) -> None:
    stand.sweeper.settings = stand.settings.model_copy(update={"republish_seconds": 600.0})
    for _ in range(10):
        stand.ingest(long_csv(40), publish=False)
    threads = [threading.Thread(target=stand.sweeper.publish) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stand.valkey.client().llen("ingest") == 10


def test_a_queued_job_is_announced_again_but_ever_more_slowly(stand: Stand) -> None:
    stand.ingest(long_csv(40))
    wait_until(lambda: stand.sweeper.publish() or stand.valkey.client().llen("ingest") == 2, "a second message")
    assert stand.valkey.client().llen("ingest") == 2
