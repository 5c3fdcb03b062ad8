"""The object store against a real server, with what networks, busy servers and killed writers do to it."""

import hashlib
import os
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from copy import copy
from itertools import count
from typing import Any, cast

import pytest

from ehr.errors import CorruptError, StoreError, StoreFullError
from model_store.blobs import S3Store, s3
from model_store.blobs.s3_files import PART, Upload
from model_store.blobs.s3_requests import Patience, Requests
from tests.service.conftest import s3_at, s3_beside
from tests.service.s3_server import (
    BUCKET,
    CREDENTIALS,
    KILLED,
    SLOW_DOWN,
    Answer,
    BrokenOffError,
    Proxy,
    S3Server,
    Seen,
    flipped,
    small_page,
    together,
)

WRITERS = 32
KEY = "models/a/x.bin"
LARGE = bytes(range(256)) * (PART // 256) + b"the second part"


@pytest.fixture(scope="module")
def proxied(s3_proxy: Proxy) -> S3Store:
    return s3_at(s3_proxy.url, patience=Patience(seconds=20, first_pause=0.02, longest_pause=0.2))


@pytest.fixture
def store(proxied: S3Store) -> S3Store:
    return s3_beside(proxied)


def write_while(store: S3Store, event: Callable[[], object]) -> None:
    """By a writer who gives up soon; something happens when the first part has been sent."""
    hasty = copy(store)
    hasty.requests = Requests(store.requests.client, BUCKET, Patience(seconds=0.3, first_pause=0.05))
    with hasty.create(KEY) as file:
        file.write(LARGE)
        event()


# --- many writers ---


def test_no_write_of_many_writers_is_lost(s3_store: S3Store) -> None:
    data = {f"models/m/a{i}/{j}.bin": bytes([i, j]) * 1000 for i in range(WRITERS) for j in range(3)}
    data |= {f"models/m/a{i}/large.bin": LARGE + bytes([i]) for i in range(2)}

    def writer(i: int) -> Callable[[], None]:
        return lambda: [s3_store.write(key, data[key]) for key in data if key.startswith(f"models/m/a{i}/")] and None

    assert together([writer(i) for i in range(WRITERS)]) == [None] * WRITERS
    assert set(s3_store.list("models/m")) == set(data)
    assert all(s3_store.read(key) == value for key, value in data.items())


def test_of_writers_of_one_name_one_wins(s3_store: S3Store) -> None:
    results = together([lambda i=i: s3_store.write(KEY, bytes([i])) for i in range(8)])  # type: ignore[misc]
    (winner,) = [i for i, result in enumerate(results) if result is None]
    assert s3_store.read(KEY) == bytes([winner])


def test_a_writer_holds_two_parts_and_no_more() -> None:
    class Server:
        def __call__(self, operation: str, *_: Any, **details: Any) -> dict[str, Any]:
            body = details.get("Body", b"")
            etag = hashlib.md5(body, usedforsecurity=False).hexdigest()
            return {"UploadId": "u", "ETag": etag, "ContentLength": 10 * PART}

    upload, block = Upload(cast(Requests, Server()), KEY, "x.bin"), bytes(1 << 20)
    tracemalloc.start()
    for _ in range(10 * PART // len(block)):
        upload.write(block)
    upload.finish()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2.3 * PART  # the buffer, which grows by an eighth at a time, and the part that is sent


# --- servers that are busy or away ---


def test_writers_that_are_told_to_slow_down_get_through(store: S3Store, s3_proxy: Proxy) -> None:
    turn = count()

    def busy(seen: Seen) -> Answer:
        return seen.pass_on(seen) if next(turn) % 3 == 2 else SLOW_DOWN

    with s3_proxy.ruled(busy):
        results = together([lambda i=i: store.write(f"models/{i}/x.bin", bytes([i])) for i in range(8)])  # type: ignore[misc]
        store.write(KEY, LARGE)
        assert results == [None] * 8 and store.read(KEY) == LARGE
        assert len(list(store.list("models"))) == 9


def test_a_server_that_goes_away_in_mid_upload_has_nothing_to_show(store: S3Store, s3_proxy: Proxy) -> None:
    def gone(seen: Seen) -> Answer:
        raise BrokenOffError

    with pytest.raises(StoreError, match="does not answer"):
        write_while(store, lambda: setattr(s3_proxy, "rule", gone))
    s3_proxy.rule = None
    assert not store.exists(KEY) and list(store.list("models")) == []
    assert [key for key, _ in store.unfinished("models")] == [KEY]  # the server could not be told
    store.write(KEY, LARGE)
    assert store.read(KEY) == LARGE
    store.delete_folder("models/a")
    assert list(store.unfinished("models")) == [] and not store.exists(KEY)


def test_a_connection_that_breaks_once_is_not_noticed(store: S3Store, s3_proxy: Proxy) -> None:
    broken: set[tuple[str, str]] = set()

    def breaks_once(seen: Seen) -> Answer:
        if (seen.method, seen.path) in broken:
            return seen.pass_on(seen)
        broken.add((seen.method, seen.path))
        raise BrokenOffError

    with s3_proxy.ruled(breaks_once):
        store.write(KEY, LARGE)
        assert store.read(KEY) == LARGE
    assert len(broken) >= 4


@pytest.mark.parametrize("size", [10, PART + 10])
def test_an_answer_that_is_lost_is_no_second_write(store: S3Store, s3_proxy: Proxy, size: int) -> None:
    lost: list[str] = []

    def loses_the_last(seen: Seen) -> Answer:
        answer = seen.pass_on(seen)
        if seen.is_conditional() and answer.status == 200 and not lost:
            lost.append(seen.path)
            raise BrokenOffError
        return answer

    with s3_proxy.ruled(loses_the_last):
        store.write(KEY, bytes(size))
    assert lost and store.read(KEY) == bytes(size) and list(store.unfinished("models")) == []


def test_a_killed_server_is_an_error_and_a_restarted_one_is_used(s3_store: S3Store, s3_server: S3Server) -> None:
    with pytest.raises(StoreError, match="does not answer"):
        write_while(s3_store, s3_server.kill)
    with pytest.raises(StoreError):
        s3_store.check()
    s3_server.start()
    s3_store.check()
    assert not s3_store.exists(KEY)
    s3_store.write(KEY, b"again")
    assert s3_store.read(KEY) == b"again"


def test_a_server_without_conditions_is_asked_without(store: S3Store, s3_proxy: Proxy) -> None:
    def simple(seen: Seen) -> Answer:
        conditional = seen.is_conditional()
        error = b"<Error><Code>NotImplemented</Code></Error>"
        return Answer(501, [], error) if conditional else seen.pass_on(seen)

    with s3_proxy.ruled(simple):
        store.write(KEY, b"small")
        store.write("models/a/y.bin", LARGE)
    assert store.read(KEY) == b"small" and store.read("models/a/y.bin") == LARGE


@pytest.mark.parametrize(
    ("status", "code", "error", "words"),
    [
        (403, "AccessDenied", StoreError, "refuses access"),
        (404, "NoSuchBucket", StoreError, "bucket does not exist"),
        (507, "XMinioStorageFull", StoreFullError, "no room"),
        (400, "InvalidArgument", StoreError, "InvalidArgument"),
    ],
)
def test_errors_are_named_at_once(
    store: S3Store, s3_proxy: Proxy, status: int, code: str, error: type[StoreError], words: str
) -> None:
    before, answer = len(s3_proxy.requests), Answer(status, [], f"<Error><Code>{code}</Code></Error>".encode())
    with s3_proxy.ruled(lambda _: answer), pytest.raises(error, match=words):
        store.write(KEY, b"data")
    assert len(s3_proxy.requests) == before + 1


# --- bytes that change ---


@pytest.mark.parametrize("data", [b"small", LARGE], ids=["small", "large"])
def test_what_arrives_changed_is_no_blob(store: S3Store, s3_proxy: Proxy, data: bytes) -> None:
    def changes(seen: Seen) -> Answer:
        if seen.method == "PUT":
            seen.body = flipped(seen.body)
        return seen.pass_on(seen)

    with s3_proxy.ruled(changes), pytest.raises(CorruptError, match="did not arrive"):
        store.write(KEY, data)
    assert list(store.list("models")) == [] and list(store.unfinished("models")) == []


def test_what_comes_back_changed_is_refused(store: S3Store, s3_proxy: Proxy) -> None:
    store.write(KEY, b"data")

    def changes(seen: Seen) -> Answer:
        answer = seen.pass_on(seen)
        return Answer(answer.status, answer.headers, flipped(answer.body)) if answer.body else answer

    with s3_proxy.ruled(changes), pytest.raises(CorruptError, match="changed"):
        store.read(KEY, hashlib.sha256(b"data").hexdigest())


def test_an_object_replaced_while_it_is_read_is_refused(s3_store: S3Store) -> None:
    s3_store.write(KEY, LARGE)
    with s3_store.open(KEY) as file:
        file.read(10)
        s3_store.delete(KEY)
        s3_store.write(KEY, LARGE[::-1])
        with pytest.raises(CorruptError, match="replaced"):
            file.read()


# --- listings ---


@pytest.fixture
def small_pages(s3_proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pages of 10 instead of 1,000."""
    monkeypatch.setattr(s3, "AT_ONCE", 7)

    with s3_proxy.ruled(small_page):
        yield


@pytest.mark.usefixtures("small_pages")
def test_a_folder_of_many_pages_is_listed_and_removed(store: S3Store, s3_proxy: Proxy) -> None:
    keys = {f"models/m/{i}.bin" for i in range(35)}
    assert together([lambda key=key: store.write(key, b"") for key in keys]) == [None] * 35  # type: ignore[misc]
    store.write("models/kept.bin", b"")
    before = sum("list-type=2" in path for _, path in s3_proxy.requests)
    assert set(store.list("models/m")) == keys
    assert sum("list-type=2" in path for _, path in s3_proxy.requests) == before + 4
    store.delete_folder("models/m", keep=["models/m/3.bin"])
    assert list(store.list("models/m")) == ["models/m/3.bin"] and store.exists("models/kept.bin")


def test_a_listing_that_lags_hides_nothing_from_removal(store: S3Store, s3_proxy: Proxy) -> None:
    old: list[Answer] = []

    def remembers(seen: Seen) -> Answer:
        old.append(seen.pass_on(seen))
        return old[-1]

    store.write("models/a/old.bin", b"old")
    with s3_proxy.ruled(remembers):
        assert list(store.list("models/a")) == ["models/a/old.bin"]
    store.write("models/a/new.bin", b"new")
    listings = count()

    def lags(seen: Seen) -> Answer:
        # the new blob is not there yet, then it is, then the removed one is there still
        return old[0] if seen.is_listing() and next(listings) != 1 else seen.pass_on(seen)

    with s3_proxy.ruled(lags):
        store.delete_folder("models/a")
    assert list(store.list("models")) == []


# --- writers that die ---


def test_what_a_killed_writer_left_is_invisible_and_goes_with_its_folder(
    s3_store: S3Store, s3_server: S3Server
) -> None:
    s3_store.write("models/m/a2/y.bin", b"y")
    place = {"AWS_ENDPOINT_URL": s3_server.url, "STORE_URL": f"s3://{BUCKET}/{s3_store.prefix}"}
    ended = subprocess.run([sys.executable, "-c", KILLED], env={**os.environ, **CREDENTIALS, **place}, timeout=60)
    assert ended.returncode == -signal.SIGKILL
    assert list(s3_store.list("models")) == ["models/m/a2/y.bin"]
    with s3_store.create("models/m/a2/x.bin") as alive:
        alive.write(LARGE)
        assert sorted(key for key, _ in s3_store.unfinished("models")) == ["models/m/a1/x.bin", "models/m/a2/x.bin"]
        s3_store.delete_folder("models/m", keep=["models/m/a2"])
    assert list(s3_store.unfinished("models")) == []
    assert s3_store.read("models/m/a2/x.bin") == LARGE  # one that is alive and stays was left alone
