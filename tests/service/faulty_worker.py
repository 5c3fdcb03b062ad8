"""A worker whose jobs can be told to misbehave by their name, and whose disk and clock by files in DATA_DIR/faults;
everything else is as in production.

`faults/full`: a pattern of blobs for which there is no room. `faults/clock`: by how many seconds the clock is wrong.
"""

import json
import math
import os
import re
import resource
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import model_store.blobs.file as files
import worker.tasks
import worker.tasks.ingest as ingestion
from model_store.repositories import LeaseRepository
from worker.execution import JobRun, Outcome, Task

FAULTS = Path(os.environ.get("DATA_DIR", ".")) / "faults"
MIB = 1 << 20
_real_ingest, _real_task_of = ingestion.ingest, worker.tasks.task_of
_real_opened, _real_time = files._opened, time.time


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


def misbehaving_task_of(kind: str) -> Task:
    return on_fake_device(kind, with_little_memory(_real_task_of(kind)))


def on_fake_device(kind: str, task: Task) -> Task:
    """With DEVICE=meta, on a device that is not there: DATA_DIR/used-KIND.json says where products were computed."""
    if os.environ.get("DEVICE") != "meta":
        return task
    from tests.service.fake_device import FakeDevice

    def observed(run: JobRun) -> Outcome:
        with FakeDevice() as device:
            outcome = task(run)
        (FAULTS.parent / f"used-{kind}.json").write_text(json.dumps(device.products))
        return outcome

    return observed


def with_little_memory(task: Task) -> Task:
    """`memory:64` has 64 MiB more than the process has when the job begins."""

    def limited(run: JobRun) -> Outcome:
        name, _, mebibytes = str(run.claim.payload.get("name", "")).partition(":")
        if name != "memory":
            return task(run)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + int(mebibytes) * MIB
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
        try:
            return task(run)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    return limited


def fault(name: str) -> str:
    with suppress(OSError):
        return (FAULTS / name).read_text()
    return ""


def full_disk(opened: Callable[[Path], BinaryIO]) -> Callable[[Path], BinaryIO]:
    def perhaps_full(path: Path) -> BinaryIO:
        full = fault("full")
        return Path("/dev/full").open("wb") if full and re.search(full, path.as_posix()) else opened(path)

    return perhaps_full


def wrong_clock() -> float:
    return _real_time() + float(fault("clock") or 0)


if __name__ == "__main__":
    ingestion.ingest = misbehaving_ingest
    worker.tasks.task_of = misbehaving_task_of
    files._opened = full_disk(_real_opened)
    time.time, time.time_ns = wrong_clock, lambda: int(1e9 * wrong_clock())
    from worker.__main__ import main

    main()
