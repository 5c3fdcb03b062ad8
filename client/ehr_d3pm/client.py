"""The clients: one that waits for its answers, and one whose answers are awaited."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

import httpx

from ehr_d3pm.calls import Calls
from ehr_d3pm.errors import ApiError, JobFailedError, Json
from ehr_d3pm.transport import AsyncTransport, Events, Transport

if TYPE_CHECKING:
    import pandas
    import polars

DEFAULT_URL = "http://127.0.0.1:8000"
TERMINAL_STATES = ("succeeded", "failed", "cancelled")
LOOK_SECONDS, LONGEST_LOOK_SECONDS = 0.3, 2.0
OF_EVENTS = httpx.Timeout(10, read=60)
OnChange = Callable[[Json], None] | None


def address_of(url: str | None) -> str:
    return (url or os.environ.get("EHR_D3PM_URL") or DEFAULT_URL).rstrip("/")


def key_of(api_key: str | None) -> str | None:
    return api_key or os.environ.get("EHR_D3PM_KEY")


class Client(Calls):
    """Connects to `url`, else to $EHR_D3PM_URL; sends `api_key`, else $EHR_D3PM_KEY."""

    def __init__(self, url: str | None = None, api_key: str | None = None, timeout: float = 60) -> None:
        super().__init__(Transport(address_of(url), key_of(api_key), timeout))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def wait(self, job: Json | str, on_change: OnChange = None) -> Json:
        """The job when it has succeeded; JobFailedError if it did not. `on_change` gets it whenever it has changed."""
        watch = watching(on_change)
        next(watch)
        while True:
            try:
                pause = watch.send(self.job(id_of(job)))
            except StopIteration as end:
                return dict(end.value)
            time.sleep(pause)

    def events(self, job_id: str, after: int = 0) -> Iterator[Json]:
        """What happens to a job, as it happens: {id, event, data}. Connects again where it was when cut off."""
        while True:
            ended, events = False, Events()
            stream = self._http.stream(f"/jobs/{job_id}/events", {"after": after}, timeout=OF_EVENTS)
            with contextlib.suppress(httpx.TransportError), stream as answer:
                if answer.status_code == 204:
                    return
                for line in answer.iter_lines():
                    if (event := events.line(line)) is not None:
                        after, ended = event["id"], is_end(event)
                        yield event
            if ended:
                return
            time.sleep(1)

    def download(self, job_id: str, path: str | Path, format: str = "long.csv", *, names: bool = False) -> int:
        """Save a cohort's records, if wanted with the names of their codes; returns the bytes. The file appears when it
        is whole.

        Waits for the evaluation that decides whether the cohort may leave; ApiError `withheld` if it may not.
        """
        while True:
            try:
                return self._http.save(f"/cohorts/{job_id}/records", Path(path), form_of(format, names))
            except ApiError as error:
                raise_unless_awaited(error)
            time.sleep(LONGEST_LOOK_SECONDS)

    def pandas(self, job_id: str, *, names: bool = False) -> "pandas.DataFrame":
        """A cohort's records as a frame with a row for each code."""
        return as_pandas(self._http.content(f"/cohorts/{job_id}/records", **form_of("parquet", names)))

    def polars(self, job_id: str, *, names: bool = False) -> "polars.DataFrame":
        """The same for polars."""
        return as_polars(self._http.content(f"/cohorts/{job_id}/records", **form_of("parquet", names)))


class AsyncClient:
    """The same methods as Client has, to be awaited; lists are gone through by `async for`."""

    def __init__(self, url: str | None = None, api_key: str | None = None, timeout: float = 60) -> None:
        self._http = AsyncTransport(address_of(url), key_of(api_key), timeout)
        self._calls = Calls(cast(Transport, self._http))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._calls, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(name for name in dir(Calls) if not name.startswith("_"))})

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.close()

    async def wait(self, job: Json | str, on_change: OnChange = None) -> Json:
        """The job when it has succeeded; JobFailedError if it did not."""
        watch = watching(on_change)
        next(watch)
        while True:
            try:
                pause = watch.send(await self.job(id_of(job)))
            except StopIteration as end:
                return dict(end.value)
            await asyncio.sleep(pause)

    async def events(self, job_id: str, after: int = 0) -> AsyncIterator[Json]:
        """What happens to a job, as it happens."""
        while True:
            ended, events = False, Events()
            stream = self._http.stream(f"/jobs/{job_id}/events", {"after": after}, timeout=OF_EVENTS)
            with contextlib.suppress(httpx.TransportError):
                async with stream as answer:
                    if answer.status_code == 204:
                        return
                    async for line in answer.aiter_lines():
                        if (event := events.line(line)) is not None:
                            after, ended = event["id"], is_end(event)
                            yield event
            if ended:
                return
            await asyncio.sleep(1)

    async def download(self, job_id: str, path: str | Path, format: str = "long.csv", *, names: bool = False) -> int:
        """Save a cohort's records, when its evaluation has ended; returns the bytes."""
        while True:
            try:
                return await self._http.save(f"/cohorts/{job_id}/records", Path(path), form_of(format, names))
            except ApiError as error:
                raise_unless_awaited(error)
            await asyncio.sleep(LONGEST_LOOK_SECONDS)

    async def pandas(self, job_id: str, *, names: bool = False) -> "pandas.DataFrame":
        """A cohort's records as a frame with a row for each code."""
        return as_pandas(await self._http.content(f"/cohorts/{job_id}/records", **form_of("parquet", names)))

    async def polars(self, job_id: str, *, names: bool = False) -> "polars.DataFrame":
        """The same for polars."""
        return as_polars(await self._http.content(f"/cohorts/{job_id}/records", **form_of("parquet", names)))


def watching(on_change: OnChange) -> Generator[float, Json, Json]:
    """Is sent a job again and again, gives how long to pause before the next look, and ends with the job."""
    look, last = LOOK_SECONDS, None
    current = yield 0.0
    while True:
        if on_change is not None and current != last:
            on_change(current)
        if current["state"] == "succeeded":
            return current
        if current["state"] in TERMINAL_STATES:
            raise JobFailedError(current)
        look = LOOK_SECONDS if current != last else min(1.3 * look, LONGEST_LOOK_SECONDS)
        last = current
        current = yield look


def id_of(job: Json | str) -> str:
    return job if isinstance(job, str) else str(job["id"])


def is_end(event: Json) -> bool:
    return event["data"].get("state") in TERMINAL_STATES


def form_of(format: str, names: bool) -> Json:
    return {"format": format} | ({"names": True} if names else {})


def raise_unless_awaited(error: ApiError) -> None:
    """A cohort whose evaluation runs can be had later; what else is refused stays refused."""
    if error.type != "not-evaluated":
        raise error


def as_pandas(parquet: bytes) -> "pandas.DataFrame":
    import pandas

    return pandas.read_parquet(BytesIO(parquet))


def as_polars(parquet: bytes) -> "polars.DataFrame":
    import polars

    return polars.read_parquet(BytesIO(parquet))
