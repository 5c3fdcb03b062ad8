"""What a cohort would take: seconds and memory, from what was measured when its model was trained."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from ehr.generators import CHUNK
from ehr.generators.spec import DEALT, INDEPENDENTLY
from runtime.broker import WorkerFacts
from worker.contract import UNCONDITIONAL

GIB = 1 << 30
JOB_SECONDS = 0.5  # of every job: its message, its claim, its manifest
PART_SECONDS = 0.02  # of every part: its claim, its lease, its file


@dataclass(frozen=True)
class Expectation:
    """None where it is not known."""

    steps: int | None
    seconds: float | None
    memory_gib: float | None


def parts_of(n: int, part_records: int) -> tuple[int, int]:
    """(parts, records in a full part): parts are whole chunks."""
    size = max(part_records // CHUNK, 1) * CHUNK
    return ceil(n / size), min(size, n)


def parallel_parts(workers: Sequence[WorkerFacts], threads: int) -> float:
    """How many parts are made at a time at the measured pace, which was that of one process with `threads` threads:
    workers of a host share its cores."""
    hosts = {worker.host: worker.cores for worker in workers}
    slots = {host: sum(worker.slots for worker in workers if worker.host == host) for host in hosts}
    return max(sum(min(slots[host], max(cores / threads, 1)) for host, cores in hosts.items()), 1)


def expectation(
    costs: dict[str, Any] | None,
    method: str | None,
    steps: int | None,
    n: int,
    part_records: int,
    at_a_time: float,
    sampling: str = DEALT,
) -> Expectation:
    """`method` None is a request without conditions, `steps` None the model's own choice.

    A method that was not timed takes as much memory as none, and nobody knows how long: rejection is as slow as the
    condition is rare.
    """
    if costs is None:
        return Expectation(None, None, None)
    methods = costs["methods"]
    cost = methods.get(method or UNCONDITIONAL, methods[UNCONDITIONAL])
    calls = cost["steps"] if steps is None or cost["steps"] is None else steps
    for_record = cost["seconds_per_chunk"] / CHUNK + (calls or 0) * cost["seconds_per_record_call"]
    if sampling == INDEPENDENTLY:
        for_record *= costs.get("independent_factor") or 1.0
    parts, part = parts_of(n, part_records)
    rounds = ceil(parts / at_a_time)
    seconds = JOB_SECONDS + costs["load_seconds"] + min(rounds * part, n) * for_record + rounds * PART_SECONDS
    known = costs["base_bytes"] is not None and cost["bytes_per_chunk"] is not None
    memory = (costs["base_bytes"] + cost["bytes_per_chunk"]) / GIB if known else None
    timed = method is None or method in methods
    return Expectation(calls, round(seconds, 2) if timed else None, None if memory is None else round(memory, 3))
