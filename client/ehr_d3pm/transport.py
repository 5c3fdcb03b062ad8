"""HTTP as the client needs it: answers or errors of the client, tries again, pages, event streams and files."""

import json
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from ehr_d3pm.errors import ApiError, Json, UnreachableError
from ehr_d3pm.requests import given

TRIES = 4


class Transport:
    """A connection to the service at `url`."""

    def __init__(self, url: str, api_key: str | None, timeout: float) -> None:
        self.url = url
        self.headers = {} if api_key is None or api_key == "" else {"Authorization": f"Bearer {api_key}"}
        self._http = httpx.Client(base_url=url, headers=self.headers, timeout=timeout)

    def close(self) -> None:
        self._http.close()

    def get(self, path: str, tries: int = TRIES) -> Json:
        return dict(self.send("GET", path, tries=tries).json())

    def post(self, path: str, body: Json | None, **options: Any) -> Json:
        return dict(self.send("POST", path, json=body, **options).json())

    def submit(self, path: str, body: Json | None = None, key: str | None = None, **options: Any) -> Json:
        """POST with an Idempotency-Key: a lost answer can be asked for again, and nothing is done twice."""
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}
        return self.post(path, body, headers=headers, **{"tries": TRIES} | options)

    def pages(self, path: str, query: Json, limit: int | None) -> Iterator[Json]:
        """The items of all pages, or the first `limit`."""
        cursor, left = None, limit
        while True:
            size = 100 if left is None else min(left, 100)
            page = self.send("GET", path, params=given(query | {"cursor": cursor, "limit": size}), tries=TRIES).json()
            yield from page["items"]
            cursor = page["next_cursor"]
            left = None if left is None else left - len(page["items"])
            if cursor is None or left == 0:
                return

    def send(self, method: str, path: str, tries: int = 1, **options: Any) -> httpx.Response:
        for left in reversed(range(tries)):
            try:
                answer = self._http.request(method, path, **options)
            except httpx.TransportError as error:
                if left == 0:
                    raise UnreachableError(f"the service does not answer at {self.url}: {error}") from None
            else:
                if answer.status_code < 400:
                    return answer
                if answer.status_code != 503 or left == 0:
                    raise _api_error(answer)
            time.sleep(0.5 * (tries - left))
        raise AssertionError("unreachable: the last try returns or raises")

    @contextmanager
    def stream(self, path: str, params: Json, **options: Any) -> Iterator[httpx.Response]:
        with self._http.stream("GET", path, params=params, **options) as answer:
            if answer.status_code >= 400:
                answer.read()
                raise _api_error(answer)
            yield answer

    def save(self, path: str, target: Path, params: Json) -> int:
        """Write what lies at `path` to a file, which appears when it is whole; returns the bytes."""
        partial = target.with_name(f"{target.name}.part")
        try:
            with self.stream(path, params) as answer, partial.open("wb") as file:
                for block in answer.iter_bytes(1 << 20):
                    file.write(block)
            partial.replace(target)
        except httpx.TransportError as error:
            raise UnreachableError(f"the download from {self.url} broke off: {error}") from None
        finally:
            partial.unlink(missing_ok=True)
        return target.stat().st_size


def parsed_events(lines: Iterator[str]) -> Iterator[Json]:
    """Server-sent events as {id, event, data}."""
    event: Json = {}
    for line in lines:
        name, _, value = line.partition(":")
        if line == "" and "data" in event:
            yield event
            event = {}
        elif name == "id":
            event["id"] = int(value)
        elif name == "event":
            event["event"] = value.strip()
        elif name == "data":
            event["data"] = json.loads(value)


def _api_error(answer: httpx.Response) -> ApiError:
    try:
        problem = answer.json()
    except ValueError:
        problem = {"title": f"HTTP status {answer.status_code}"}
    return ApiError(answer.status_code, problem if isinstance(problem, dict) else {})
