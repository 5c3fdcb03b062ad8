"""Many clients at once: polling jobs, and now and then submitting one.

Each client is one connection and as little Python as possible: on one machine, every millisecond that a client needs is
taken from the service.
"""

import asyncio
import json
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

SUBMIT_SHARE = 0.02  # of requests, until MOST_JOBS: the worker must be able to finish them
LIST_SHARE = 0.05
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


class Connection:
    """HTTP/1.1 on one connection, for answers with a Content-Length."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def request(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self.host, self.port)
        reader, writer = self._streams
        head = f"{method} {path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nContent-Length: {len(body)}\r\n"
        writer.write(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
        answer = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(answer.partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0])
        return int(answer[9:12]), await reader.readexactly(length)

    async def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


class Client:
    """One of many."""

    def __init__(self, load: Load, host: str, port: int, model_id: str) -> None:
        self.load, self.connection = load, Connection(host, port)
        self.submission = json.dumps({"model_id": model_id, "n": 5, "evaluate": False}).encode()

    async def run(self, until: float, rng: random.Random) -> None:
        while time.perf_counter() < until:
            dice = rng.random()
            if dice < SUBMIT_SHARE and len(self.load.jobs) < MOST_JOBS:
                await self.submit()
            elif dice > 1 - LIST_SHARE:
                await self.request("GET", "/jobs?limit=20")
            else:
                await self.request("GET", f"/jobs/{rng.choice(self.load.jobs)}")
            await asyncio.sleep(0.05 * rng.random())
        await self.connection.close()

    async def submit(self) -> None:
        answer = await self.request("POST", "/generate", self.submission)
        if answer is not None:
            self.load.jobs.append(json.loads(answer)["id"])

    async def request(self, method: str, path: str, body: bytes = b"") -> bytes | None:
        """The answer's body, or None for an error, which is counted."""
        self.load.requests += 1
        start = time.perf_counter()
        try:
            status, answer = await asyncio.wait_for(self.connection.request(method, path, body), 60)
        except (OSError, EOFError, ValueError, TimeoutError) as error:
            self.load.errors[type(error).__name__] += 1
            await self.connection.close()
            return None
        self.load.seconds.append(time.perf_counter() - start)
        if status >= 400:
            self.load.errors[str(status)] += 1
            return None
        return answer


async def run_load(
    address: tuple[str, int],
    model_id: str,
    clients: int,
    seconds: float,
    drain: float,
    progress: Callable[[int, int], None],
) -> Load:
    """Have `clients` at it for `seconds`, then wait until every job they submitted has ended."""
    load = Load()
    first = Client(load, *address, model_id)
    await first.submit()  # so that there is something to poll
    await first.connection.close()  # it would be idle for longer than the server keeps it
    start = time.perf_counter()
    work: list[Any] = [_tell(start, seconds, progress)]
    for i in range(clients):
        work.append(Client(load, *address, model_id).run(start + seconds, random.Random(i)))
    await asyncio.gather(*work)
    load.elapsed = time.perf_counter() - start
    load.lost = await _unfinished(first, drain)
    return load


async def _unfinished(client: Client, drain: float) -> int:
    """How many submitted jobs have not succeeded when the queue has had time to empty."""
    waiting, deadline = set(client.load.jobs), time.perf_counter() + drain
    while waiting and time.perf_counter() < deadline:
        for job_id in list(waiting):
            _, body = await client.connection.request("GET", f"/jobs/{job_id}")
            if json.loads(body)["state"] == "succeeded":
                waiting.discard(job_id)
        await asyncio.sleep(0.5)
    await client.connection.close()
    return len(waiting)


async def _tell(start: float, seconds: float, progress: Callable[[int, int], None]) -> None:
    while (passed := time.perf_counter() - start) < seconds:
        progress(round(passed), round(seconds))
        await asyncio.sleep(0.5)
