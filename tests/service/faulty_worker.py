"""A worker whose ingest jobs can be told to misbehave by the dataset's name; everything else is as in production."""

import math
import os
import resource
import signal
import time

import worker.tasks.ingest as ingestion
from model_store.repositories import LeaseRepository
from worker.execution import JobRun, Outcome

_real_ingest = ingestion.ingest


def misbehaving_ingest(run: JobRun) -> Outcome:
    name, _, seconds = str(run.claim.payload["name"]).partition(":")
    if name == "poison":
        os.kill(os.getpid(), signal.SIGKILL)
    elif name == "advance" and run.claim.attempt <= int(seconds):  # gets further, and is killed, so many times
        pointer = {"step": run.claim.attempt}
        with run.runtime.database.session_scope() as session:
            LeaseRepository(session).save_checkpoint(run.claim, pointer, run.runtime.settings.max_attempts)
        os.kill(os.getpid(), signal.SIGKILL)
    elif name == "slow":  # stops when it is asked to
        end = time.monotonic() + float(seconds)
        while time.monotonic() < end:
            run.check()
            time.sleep(0.02)
    elif name == "deaf" and run.claim.attempt == 1:  # like a long call into a library
        time.sleep(float(seconds))
    elif name == "zombie" and run.claim.attempt == 1:  # goes on to write although it has lost its lease
        time.sleep(float(seconds))
        run.stop.lost.clear()
        run.stop.lease_ends_at = math.inf
    elif (
        name == "full" and run.claim.attempt == 1
    ):  # as if the disk had room for this many bytes more and not for a file larger than that
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(seconds), resource.RLIM_INFINITY))
        try:
            return _real_ingest(run)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return _real_ingest(run)


if __name__ == "__main__":
    ingestion.ingest = misbehaving_ingest
    from worker.__main__ import main

    main()
