"""Uploads: streamed, bounded, and gone without a trace when they fail."""

import gzip
import io
import os
import resource
import socket
import time
import zlib
from pathlib import Path

import pytest

from app.uploads import GzipGuard, shown_label
from ehr.errors import DataError, TooLargeError
from model_store.blobs import S3Store
from model_store.repositories import JobRepository
from tests.api.front import Caller, Front
from tests.api.test_problems import assert_problem

TABLE = b"record_id,vocabulary,code\nr1,ICD10CM,E84\n"


def files_of(front: Front) -> list[Path]:
    """Of uploads, those that are not whole among them."""
    if isinstance(store := front.services.store, S3Store):
        return [Path(key) for key in (*store.list("uploads"), *(key for key, _ in store.unfinished("uploads")))]
    uploads = front.settings.resolved_data_dir / "store" / "uploads"
    return [Path(folder) / name for folder, _, names in os.walk(uploads) for name in names]


def wait_until_gone(front: Front, before: list[Path]) -> None:
    """The sweeper removes what an upload left."""
    deadline = time.monotonic() + 10
    while set(files_of(front)) - set(before):
        assert time.monotonic() < deadline, files_of(front)
        time.sleep(0.05)


def test_an_upload_becomes_a_job(front: Front, caller: Caller) -> None:
    files = [("file", ("a.csv", TABLE)), ("file", ("b.csv", TABLE * 2))]
    answer = caller.http.post("/datasets", files=files, data={"name": "two tables", "min_records": "20"})
    assert answer.status_code == 202
    job = answer.json()
    assert answer.headers["location"] == f"/jobs/{job['id']}"
    assert (job["kind"], job["state"]) == ("ingest", "queued")
    request = job["request"]
    assert (request["name"], request["min_records"], request["format"]) == ("two tables", 20, "auto")
    assert [(f["label"], f["size"]) for f in request["files"]] == [("a.csv", len(TABLE)), ("b.csv", 2 * len(TABLE))]
    stored = front.services.store.read(f"uploads/{request['files'][1]['upload_id']}/file")
    assert stored == TABLE * 2


def test_the_first_file_gives_the_name(caller: Caller) -> None:
    job = caller.http.post("/datasets", files={"file": ("cardiology.csv", TABLE)}).json()
    assert job["request"]["name"] == "cardiology.csv"


@pytest.mark.parametrize(
    "name", ["../../../etc/passwd", "..\\..\\boot.ini", "/etc/passwd", "a\x00b\x1b[31m.csv", "", "x" * 5000, "‮gpj.exe"]
)
def test_names_are_shown_and_never_used(front: Front, caller: Caller, name: str) -> None:
    boundary = "b"
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    body = head.encode("utf-8") + TABLE + f"\r\n--{boundary}--\r\n".encode()
    headers = {"content-type": f"multipart/form-data; boundary={boundary}"}
    answer = caller.http.post("/datasets", content=body, headers=headers)
    assert answer.status_code in (202, 422)
    if answer.status_code == 202:
        label = answer.json()["request"]["files"][0]["label"]
        assert "/" not in label and "\\" not in label and label.isprintable() and len(label) <= 200
    outside = [p for p in files_of(front) if p.name != "file"]
    assert outside == []


@pytest.mark.parametrize(
    ("form", "field"),
    [
        ({"min_records": "many"}, "min_records"),
        ({"holdout_share": "0.9"}, "holdout_share"),
        ({"test_share": "nan"}, "test_share"),
        ({"format": "xlsx"}, "format"),
        ({"nmae": "x"}, "nmae"),
        ({"name": ""}, "name"),
        ({"name": "a\u0000b"}, "name"),
    ],
)
def test_wrong_fields_are_named_and_leave_nothing(
    front: Front, caller: Caller, form: dict[str, str], field: str
) -> None:
    before = files_of(front)
    found = assert_problem(
        caller.http.post("/datasets", files={"file": ("a.csv", TABLE)}, data=form), 422, "invalid-request"
    )
    assert f"body.{field}" in str(found["errors"])
    wait_until_gone(front, before)


def test_no_file(caller: Caller) -> None:
    answer = caller.http.post("/datasets", files={"name": (None, "x")})
    assert "send one or more as 'file'" in str(assert_problem(answer, 422, "invalid-request")["detail"])
    assert_problem(caller.http.post("/datasets", json={"file": "x"}), 422, "invalid-request")
    assert_problem(caller.http.post("/datasets", files={"table": ("a.csv", TABLE)}), 422, "invalid-request")


@pytest.mark.parametrize("chunked", [False, True])
def test_oversized(front: Front, caller: Caller, chunked: bool) -> None:
    before = files_of(front)
    head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
    blocks = [head, *([b"x" * 100_000] * 60), b"\r\n--b--\r\n"]
    headers = {"content-type": "multipart/form-data; boundary=b"}
    content = iter(blocks) if chunked else b"".join(blocks)
    assert_problem(caller.http.post("/datasets", content=content, headers=headers), 413, "too-large")
    wait_until_gone(front, before)


@pytest.mark.parametrize("cut", [10, 70, 90])
def test_truncated_multipart(front: Front, caller: Caller, cut: int) -> None:
    before = files_of(front)
    whole = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n' + TABLE + b"\r\n--b--\r\n"
    headers = {"content-type": "multipart/form-data; boundary=b"}
    assert_problem(caller.http.post("/datasets", content=whole[:cut], headers=headers), 422, "invalid-request")
    wait_until_gone(front, before)


def test_a_client_that_goes_away_leaves_nothing(front: Front, caller: Caller) -> None:
    before = files_of(front)
    with socket.create_connection(("127.0.0.1", front.port)) as connection:
        head = (
            f"POST /datasets HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {caller.key}\r\n"
            "Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 2000000\r\n\r\n"
            '--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
        )
        connection.sendall(head.encode() + b"x" * 1_500_000)
        time.sleep(0.3)
    wait_until_gone(front, before)


def gzip_bomb(inflated: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = b"0" * 1_000_000
    return b"".join(packer.compress(block) for _ in range(inflated // len(block))) + packer.flush()


def test_a_gzip_bomb_is_refused_with_bounded_memory(front: Front, caller: Caller) -> None:
    before, bomb = files_of(front), gzip_bomb(300_000_000)
    assert len(bomb) < front.settings.max_upload_bytes
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert_problem(caller.http.post("/datasets", files={"file": ("a.csv.gz", bomb)}), 413, "too-large")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 64 * 1024  # KiB
    wait_until_gone(front, before)


def test_broken_gzip(caller: Caller) -> None:
    whole = gzip.compress(TABLE * 1000)
    damaged = bytearray(whole)
    damaged[len(damaged) // 2] ^= 0xFF
    for data in (whole[:-20], bytes(damaged), whole[:3]):
        answer = caller.http.post("/datasets", files={"file": ("a.csv.gz", data)})
        assert_problem(answer, 422, "bad-data")
    assert caller.http.post("/datasets", files={"file": ("a.csv.gz", whole)}).status_code == 202


def test_gzip_guard_takes_members_and_padding_in_any_division() -> None:
    data = gzip.compress(b"a" * 1000) + gzip.compress(b"b" * 1000) + b"\0" * 512
    for size in (1, 7, 4096):
        guard = GzipGuard(2000)
        for start in range(0, len(data), size):
            guard.feed(data[start : start + size])
        guard.finish()
        assert guard.inflated == 2000
    tight = GzipGuard(1999)
    with pytest.raises(TooLargeError):
        tight.feed(data)
    cut = GzipGuard(2000)
    cut.feed(data[:20])
    with pytest.raises(DataError):
        cut.finish()


def test_labels() -> None:
    assert shown_label("C:\\data\\x.csv") == "x.csv"
    assert shown_label("/a/b/../c.csv") == "c.csv"
    assert shown_label("a\r\nb") == "ab"


def test_a_replayed_upload_keeps_one_copy(front: Front, caller: Caller) -> None:
    before = files_of(front)
    headers = {"Idempotency-Key": "once"}
    first, second = (
        caller.http.post("/datasets", files={"file": ("a.csv", io.BytesIO(TABLE))}, headers=headers) for _ in range(2)
    )
    assert first.json()["id"] == second.json()["id"]
    assert second.headers["idempotent-replayed"] == "true"
    deadline = time.monotonic() + 10
    while len(set(files_of(front)) - set(before)) != 1:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    with front.services.database.read_scope() as session:
        assert len(JobRepository(session).page(caller.owner).rows) == 1
    other = caller.http.post("/datasets", files={"file": ("a.csv", TABLE + b"r2,ICD10CM,E11\n")}, headers=headers)
    assert_problem(other, 409, "idempotency-conflict")
