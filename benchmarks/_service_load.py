"""Many clients at once: polling jobs, and now and then submitting one."""

import asyncio
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx

TERMINAL = ("succeeded", "failed", "cancelled")
SUBMIT_SHARE = 0.02  # of requests, until MOST_JOBS: the worker must be able to finish them
MOST_JOBS = 300


@dataclass
class Load:
    """What the clients saw."""

    requests: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    jobs: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    elapsed: float = 0.0
    lost: int = 0

    def quantile(self, share: float) -> float:
        return statistics.quantiles(self.seconds, n=100)[round(100 * share) - 1]


async def run_load(
    url: str, model_id: str, clients: int, seconds: float, drain: float, progress: Callable[[int, int], None]
) -> Load:
    """Have `clients` at it for `seconds`, then wait until every job they submitted has ended."""
    load = Load()
    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=60) as http:
        await _submit(http, load, model_id)  # so that there is something to poll
        start = time.perf_counter()
        await asyncio.gather(
            *(_client(http, load, model_id, start + seconds, random.Random(i)) for i in range(clients)),
            _tell(start, seconds, progress),
        )
        load.elapsed = time.perf_counter() - start
        load.lost = await _unfinished(http, load, drain)
    return load


async def _client(http: httpx.AsyncClient, load: Load, model_id: str, until: float, rng: random.Random) -> None:
    while time.perf_counter() < until:
        if rng.random() < SUBMIT_SHARE and len(load.jobs) < MOST_JOBS:
            await _submit(http, load, model_id)
        elif rng.random() < 0.05:
            await _request(http, load, "GET", "/jobs?limit=20")
        elif load.jobs:
            await _request(http, load, "GET", f"/jobs/{rng.choice(load.jobs)}")
        await asyncio.sleep(0.05 * rng.random())


async def _submit(http: httpx.AsyncClient, load: Load, model_id: str) -> None:
    answer = await _request(http, load, "POST", "/generate", {"model_id": model_id, "n": 5, "evaluate": False})
    if answer is not None:
        load.jobs.append(answer.json()["id"])


async def _request(
    http: httpx.AsyncClient, load: Load, method: str, path: str, body: dict[str, object] | None = None
) -> httpx.Response | None:
    start = time.perf_counter()
    load.requests += 1
    try:
        answer = await http.request(method, path, json=body)
    except httpx.TransportError as error:
        load.errors[type(error).__name__] += 1
        return None
    load.seconds.append(time.perf_counter() - start)
    if answer.status_code >= 400:
        load.errors[str(answer.status_code)] += 1
        return None
    return answer


async def _unfinished(http: httpx.AsyncClient, load: Load, drain: float) -> int:
    """How many submitted jobs have not succeeded when the queue has had time to empty."""
    waiting, deadline = set(load.jobs), time.perf_counter() + drain
    while waiting and time.perf_counter() < deadline:
        for job_id in list(waiting):
            if (await http.get(f"/jobs/{job_id}")).json()["state"] == "succeeded":
                waiting.discard(job_id)
        await asyncio.sleep(0.5)
    return len(waiting)


async def _tell(start: float, seconds: float, progress: Callable[[int, int], None]) -> None:
    while (passed := time.perf_counter() - start) < seconds:
        progress(round(passed), round(seconds))
        await asyncio.sleep(0.5)
