"""Files by HTTP: tried again while the server is busy, gone on with where the connection broke off."""

import http.client
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from time import time

from ehr.errors import OutsideError
from runtime.pinned_http import UnsentError, answered

BLOCK = 1 << 20
BUSY = (408, 429, 500, 502, 503, 504)
GONE = (404, 410)
TRIES = 5  # in a row that bring nothing
PAUSE_SECONDS = 1.0  # before the second; each is twice as long as the one before
TIMEOUT_SECONDS = 60.0
LONGEST_WAIT_SECONDS = 3600.0


class GoneError(OutsideError):
    """There is nothing at an address any more."""


@dataclass(frozen=True)
class Web:
    """Requests on somebody's behalf. `headers` are asked for at every request: a token may have to be a new one.
    `pause` waits."""

    private: bool
    pause: Callable[[float], None]
    headers: Callable[[], Mapping[str, str]] = dict

    @contextmanager
    def ask(
        self, method: str, url: str, more: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> Iterator[http.client.HTTPResponse]:
        """One request, without a second try."""
        headers = {"User-Agent": "ehr-d3pm", "Accept-Encoding": "identity", **self.headers(), **(more or {})}
        with answered(method, url, headers, self.private, body, TIMEOUT_SECONDS) as answer:
            yield answer

    def look(self, url: str) -> tuple[int, str]:
        """(size or 0, what tells this version from others), as far as the server says."""
        for attempt in range(TRIES):
            try:
                with self.ask("HEAD", url) as answer:
                    if answer.status == 200:
                        version = answer.headers.get("ETag") or answer.headers.get("Last-Modified") or ""
                        return int(answer.headers.get("Content-Length") or 0), version
                    if answer.status in (403, 405, 501):  # nothing but GET
                        return 0, ""
                    self.wait_or_give_up(attempt, answer.status, retry_after(answer))
            except UnsentError as error:
                self.wait_or_give_up(attempt, str(error))
        raise AssertionError("the last try returns or raises")

    def blocks(self, url: str, more: Mapping[str, str] | None = None) -> Iterator[bytes]:
        """The bytes of a file."""
        got, version, fruitless = 0, "", 0
        while True:
            before = got
            resume = {"Range": f"bytes={got}-", "If-Range": version} if got else {}
            try:
                with self.ask("GET", url, {**(more or {}), **resume}) as answer:
                    if answer.status in BUSY:
                        problem: int | str = answer.status
                        wait = retry_after(answer)
                    else:
                        self._refuse_others(answer, got)
                        version = version or strong_etag(answer)
                        for block in _body(answer):
                            got += len(block)
                            yield block
                        return
            except UnsentError as error:
                problem, wait = str(error), None
                if got and not version:
                    raise OutsideError(
                        "the source broke off in the middle of a file and cannot go on with it"
                    ) from None
            fruitless = 0 if got > before else fruitless + 1
            self.wait_or_give_up(max(fruitless - 1, 0), problem, wait)

    def wait_or_give_up(self, attempt: int, problem: int | str, wait: float | None = None) -> None:
        """Pause before the next try; OutsideError if there is none, or no use in one."""
        if (isinstance(problem, int) and problem not in BUSY) or attempt + 1 >= TRIES:
            said = f"answered with status {problem}" if isinstance(problem, int) else f"gave {problem}"
            raise OutsideError(f"the source {said}")
        self.pause(min(PAUSE_SECONDS * 2**attempt if wait is None else wait, LONGEST_WAIT_SECONDS))

    def _refuse_others(self, answer: http.client.HTTPResponse, got: int) -> None:
        if answer.status in GONE:
            raise GoneError(f"there is nothing at the source: status {answer.status}")
        if answer.status not in (200, 206):
            raise OutsideError(f"the source answered with status {answer.status}")
        if got and answer.status == 200:
            raise OutsideError("a file was replaced at the source while it was fetched")


def _body(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    expected, got = answer.headers.get("Content-Length"), 0
    while block := answer.read(BLOCK):
        got += len(block)
        yield block
    if expected is not None and got != int(expected):
        raise UnsentError("fewer bytes than it announced")


def strong_etag(answer: http.client.HTTPResponse) -> str:
    """By which the rest of a file can be asked for; empty if there is none."""
    etag = answer.headers.get("ETag") or ""
    return "" if etag.startswith("W/") else etag


def retry_after(answer: http.client.HTTPResponse) -> float | None:
    """Seconds, if the answer says when to ask again: a number or a date."""
    said = answer.headers.get("Retry-After")
    if said is None:
        return None
    if said.strip().isdecimal():
        return float(said)
    try:
        return max(parsedate_to_datetime(said).timestamp() - time(), 0.0)
    except ValueError:
        return None
