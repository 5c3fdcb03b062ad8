"""HTTP as the clients need it: answers or errors of the client, tries again, pages, event streams and files.

What is asked, how often and what an answer means stands once, in functions; the two transports only wait differently.
"""

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx

from ehr_d3pm.errors import ApiError, Json, UnreachableError
from ehr_d3pm.requests import given

TRIES = 4
PAGE = 100
BLOCK = 1 << 20


def key_header(api_key: str | None) -> dict[str, str]:
    return {} if api_key is None or api_key == "" else {"Authorization": f"Bearer {api_key}"}


def submission(key: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """With an Idempotency-Key: a lost answer can be asked for again, and nothing is done twice."""
    return {"tries": TRIES, "headers": {"Idempotency-Key": key or uuid.uuid4().hex}, **options}


def page_query(query: Json, cursor: str | None, left: int | None) -> Json:
    return given(query | {"cursor": cursor, "limit": PAGE if left is None else min(left, PAGE)})


def pause_before(tries: int, left: int) -> float:
    return 0.5 * (tries - left)


def with_files(paths: Sequence[Path], options: Mapping[str, Any], opened: ExitStack) -> dict[str, Any]:
    """Options of a request that sends these files, opened until the stack ends."""
    parts = [("file", (path.name, opened.enter_context(path.open("rb")))) for path in paths]
    return {**options, "files": parts} if parts else dict(options)


def accepted(answer: httpx.Response, is_last: bool) -> bool:
    """Whether it is an answer; False if the service asks to be asked again. ApiError if it refuses."""
    if answer.status_code < 400:
        return True
    if answer.status_code != 503 or is_last:
        raise api_error(answer)
    return False


def unreachable(url: str, error: Exception) -> UnreachableError:
    return UnreachableError(f"the service does not answer at {url}: {error}")


class Transport:
    """A connection to the service at `url`."""

    def __init__(self, url: str, api_key: str | None, timeout: float) -> None:
        self.url, self.headers = url, key_header(api_key)
        self._http = httpx.Client(base_url=url, headers=self.headers, timeout=timeout)

    def close(self) -> None:
        self._http.close()

    def get(self, path: str, tries: int = TRIES, **params: Any) -> Json:
        return dict(self._send("GET", path, tries, params=given(params)).json())

    def items(self, path: str, **params: Any) -> list[Json]:
        return list(self._send("GET", path, TRIES, params=given(params)).json())

    def text(self, path: str, **params: Any) -> str:
        return self._send("GET", path, TRIES, params=given(params)).text

    def content(self, path: str, **params: Any) -> bytes:
        return self._send("GET", path, TRIES, params=given(params)).content

    def ask(self, method: str, path: str, body: Json | None = None, **options: Any) -> Json:
        return dict(self._send(method, path, json=body, **options).json())

    def submit(self, path: str, body: Json | None = None, key: str | None = None, **options: Any) -> Json:
        return self.ask("POST", path, body, **submission(key, options))

    def remove(self, path: str) -> None:
        self._send("DELETE", path)

    def pages(self, path: str, query: Json, limit: int | None) -> Iterator[Json]:
        """The items of all pages, or the first `limit`."""
        cursor, left = None, limit
        while True:
            page = self.get(path, **page_query(query, cursor, left))
            yield from page["items"]
            cursor = page["next_cursor"]
            left = None if left is None else left - len(page["items"])
            if cursor is None or left == 0:
                return

    def _send(
        self, method: str, path: str, tries: int = 1, paths: Sequence[Path] = (), **options: Any
    ) -> httpx.Response:
        for left in reversed(range(tries)):
            try:
                with ExitStack() as opened:
                    answer = self._http.request(method, path, **with_files(paths, options, opened))
                if accepted(answer, left == 0):
                    return answer
            except httpx.TransportError as error:
                if left == 0:
                    raise unreachable(self.url, error) from None
            time.sleep(pause_before(tries, left))
        raise AssertionError("unreachable: the last try returns or raises")

    @contextmanager
    def stream(self, path: str, params: Json, **options: Any) -> Iterator[httpx.Response]:
        with self._http.stream("GET", path, params=params, **options) as answer:
            if answer.status_code >= 400:
                answer.read()
                raise api_error(answer)
            yield answer

    def save(self, path: str, target: Path, params: Json) -> int:
        """Write what lies at `path` to a file, which appears when it is whole; returns the bytes."""
        with appearing(target, self.url) as partial, self.stream(path, params) as answer, partial.open("wb") as file:
            for block in answer.iter_bytes(BLOCK):
                file.write(block)
        return target.stat().st_size


class AsyncTransport:
    """The same, awaited."""

    def __init__(self, url: str, api_key: str | None, timeout: float) -> None:
        self.url, self.headers = url, key_header(api_key)
        self._http = httpx.AsyncClient(base_url=url, headers=self.headers, timeout=timeout)

    async def close(self) -> None:
        await self._http.aclose()

    async def get(self, path: str, tries: int = TRIES, **params: Any) -> Json:
        return dict((await self._send("GET", path, tries, params=given(params))).json())

    async def items(self, path: str, **params: Any) -> list[Json]:
        return list((await self._send("GET", path, TRIES, params=given(params))).json())

    async def text(self, path: str, **params: Any) -> str:
        return (await self._send("GET", path, TRIES, params=given(params))).text

    async def content(self, path: str, **params: Any) -> bytes:
        return (await self._send("GET", path, TRIES, params=given(params))).content

    async def ask(self, method: str, path: str, body: Json | None = None, **options: Any) -> Json:
        return dict((await self._send(method, path, json=body, **options)).json())

    async def submit(self, path: str, body: Json | None = None, key: str | None = None, **options: Any) -> Json:
        return await self.ask("POST", path, body, **submission(key, options))

    async def remove(self, path: str) -> None:
        await self._send("DELETE", path)

    async def pages(self, path: str, query: Json, limit: int | None) -> AsyncIterator[Json]:
        cursor, left = None, limit
        while True:
            page = await self.get(path, **page_query(query, cursor, left))
            for item in page["items"]:
                yield item
            cursor = page["next_cursor"]
            left = None if left is None else left - len(page["items"])
            if cursor is None or left == 0:
                return

    async def _send(
        self, method: str, path: str, tries: int = 1, paths: Sequence[Path] = (), **options: Any
    ) -> httpx.Response:
        for left in reversed(range(tries)):
            try:
                with ExitStack() as opened:
                    answer = await self._http.request(method, path, **with_files(paths, options, opened))
                if accepted(answer, left == 0):
                    return answer
            except httpx.TransportError as error:
                if left == 0:
                    raise unreachable(self.url, error) from None
            await asyncio.sleep(pause_before(tries, left))
        raise AssertionError("unreachable: the last try returns or raises")

    @asynccontextmanager
    async def stream(self, path: str, params: Json, **options: Any) -> AsyncIterator[httpx.Response]:
        async with self._http.stream("GET", path, params=params, **options) as answer:
            if answer.status_code >= 400:
                await answer.aread()
                raise api_error(answer)
            yield answer

    async def save(self, path: str, target: Path, params: Json) -> int:
        with appearing(target, self.url) as partial:
            async with self.stream(path, params) as answer:
                with partial.open("wb") as file:
                    async for block in answer.aiter_bytes(BLOCK):
                        file.write(block)
        return target.stat().st_size


@contextmanager
def appearing(target: Path, url: str) -> Iterator[Path]:
    """A file to write to, which becomes the target at the end."""
    partial = target.with_name(f"{target.name}.part")
    try:
        yield partial
        partial.replace(target)
    except httpx.TransportError as error:
        raise UnreachableError(f"the download from {url} broke off: {error}") from None
    finally:
        partial.unlink(missing_ok=True)


class Events:
    """Puts the lines of server-sent events together: {id, event, data}."""

    def __init__(self) -> None:
        self._event: Json = {}

    def line(self, line: str) -> Json | None:
        """The event that ends with this line, if one does."""
        name, _, value = line.partition(":")
        if line == "" and "data" in self._event:
            event, self._event = self._event, {}
            return event
        if name == "id":
            self._event["id"] = int(value)
        elif name == "event":
            self._event["event"] = value.strip()
        elif name == "data":
            self._event["data"] = json.loads(value)
        return None


def api_error(answer: httpx.Response) -> ApiError:
    try:
        problem = answer.json()
    except ValueError:
        problem = {"title": f"HTTP status {answer.status_code}"}
    return ApiError(answer.status_code, problem if isinstance(problem, dict) else {})
