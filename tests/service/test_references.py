"""Records that lie elsewhere become the dataset that an upload of them would be; nothing is allowed by default."""

import io
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from ehr.errors import RequestError
from model_store.blobs.s3_objects import S3Objects
from runtime.places import object_place, source_places
from tests.service.doors import Asked, Outside, Said, door
from tests.service.s3_server import BUCKET, CREDENTIALS, S3Server
from tests.service.stand import long_csv

PATH = "/datasets/by-reference"
CSV = long_csv(60)
HALVES = [CSV[: (cut := CSV.index(b"\nr30,") + 1)], CSV.split(b"\n", 1)[0] + b"\n" + CSV[cut:]]


def as_parquet(csv: bytes) -> bytes:
    options = pa.csv.ConvertOptions(column_types={"code": pa.string()})
    sink = io.BytesIO()
    pq.write_table(pa.csv.read_csv(io.BytesIO(csv), convert_options=options), sink)
    return sink.getvalue()


@pytest.fixture
def bucket(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder of a bucket outside, with this process's credentials."""
    for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": s3_server.url}.items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{secrets.token_hex(4)}/"


def put(url: str, data: bytes) -> None:
    with S3Objects(BUCKET).create(url.removeprefix(f"s3://{BUCKET}/")) as file:
        file.write(data)


def objects(*urls: str) -> dict[str, Any]:
    return {"kind": "objects", "urls": list(urls)}


# --- what is allowed ---


def test_nothing_is_allowed_by_default(tmp_path: Path) -> None:
    with door(tmp_path) as closed:
        assert closed.http.get("/places").json() == {"sources": [], "sinks": []}
        detail = closed.refused(PATH, source=objects("s3://bucket/x.csv"))
        assert detail == "source.urls.0: this address is not allowed here; allowed: none"
        database = {"kind": "omop", "connection": "warehouse", "cdm_schema": "cdm"}
        assert "connection is not allowed here; allowed: none" in closed.refused(PATH, source=database)
        server = {"kind": "fhir", "server": "hospital"}
        assert "server is not allowed here; allowed: none" in closed.refused(PATH, source=server)
        for path in ("/etc/passwd", "file:///etc/passwd", "postgresql://x/y"):
            assert closed.http.post(PATH, json={"source": objects(path)}).status_code == 422
        analyst = closed.front.as_owner("ada", "read", "generate", "train")
        assert analyst.http.post(PATH, json={"source": objects("s3://bucket/x.csv")}).status_code == 403


PLACES = source_places(
    '[{"kind": "objects", "url": "s3://lake/ours/"}, {"kind": "objects", "url": "https://files.example/a/"},'
    ' {"kind": "objects", "url": "s3://theirs/", "owners": ["bob"]}]'
)


@pytest.mark.parametrize(
    "url",
    [
        "s3://lake/ours",  # not in it
        "s3://lake/oursother/x.csv",
        "s3://lake.evil/ours/x.csv",
        "s3://theirs/x.csv",  # somebody else's place
        "https://files.example/a/../b/x.csv",
        "https://files.example/a/%2e%2e/b/x.csv",
        "https://files.example/a/..\\b",
        "https://files.example.evil/a/x.csv",
        "https://files.example/a/x.csv?token=1",
        "https://me:secret@files.example/a/x.csv",
        "http://files.example/a/x.csv",
        "https://files.example:8443/a/x.csv",
        "https://[files.example/a/x.csv",
    ],
)
def test_an_address_is_within_a_place_or_refused(url: str) -> None:
    with pytest.raises(RequestError, match=r"source\.urls\.0: "):
        object_place(PLACES, "ada", url, "source.urls.0")


def test_owners_see_their_own_places() -> None:
    assert object_place(PLACES, "ada", "s3://lake/ours/x.csv", "url").url == "s3://lake/ours/"
    assert object_place(PLACES, "bob", "s3://theirs/x.csv", "url").url == "s3://theirs/"


def test_places_tell_no_secrets(tmp_path: Path) -> None:
    secret = {"kind": "postgres", "name": "warehouse", "url": "postgresql://me:hunter2@db/x", "schemas": ["cdm_*"]}
    theirs = {"kind": "objects", "url": "s3://theirs/", "owners": ["bob"]}
    with door(tmp_path, sources=[secret, theirs], sinks=[secret]) as opened:
        said = opened.http.get("/places")
        assert said.json()["sources"] == [{"kind": "postgres", "name": "warehouse", "url": None, "schemas": ["cdm_*"]}]
        assert "hunter2" not in said.text + repr(opened.front.settings)
        assert opened.front.as_owner("ada", "read").http.get("/places").json()["sources"] == []
        wrong = {"kind": "omop", "connection": "warehouse", "cdm_schema": "public"}
        assert opened.refused(PATH, source=wrong) == "cdm_schema: this schema is not allowed here; allowed: cdm_*"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[{]", "not JSON: line 1"),
        ("/nowhere/sources.json", "cannot be read: FileNotFoundError"),
        ('[{"kind": "objects", "url": "file:///etc/"}]', "must begin with s3:// or https://"),
        ('[{"kind": "postgres", "name": "x", "url": "postgresql://me:hunter2@h/d"}]', "schemas: Field required"),
    ],
)
def test_settings_that_cannot_be_read_are_refused_at_the_start(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told) as refused:
        source_places(text)
    assert "hunter2" not in str(refused.value)


# --- objects of S3 ---


def test_a_folder_of_s3_is_what_an_upload_of_it_is(tmp_path: Path, bucket: str) -> None:
    put(f"{bucket}2024/part-0.parquet", as_parquet(HALVES[0]))
    put(f"{bucket}2024/q/part-1.parquet", as_parquet(HALVES[1]))
    put(f"{bucket}2024/_SUCCESS", b"x")
    put(f"{bucket}2024/notes.pdf", b"x")
    with door(tmp_path, sources=[{"kind": "objects", "url": bucket}]) as opened:
        files = {"a.parquet": as_parquet(HALVES[0]), "b.parquet": as_parquet(HALVES[1])}
        uploaded = opened.uploaded(files, min_records=1)
        job = opened.do(PATH, source=objects(f"{bucket}2024/"), min_records=1)
        fetched = opened.dataset(job)
        assert [step["name"] for step in job["progress"]["steps"]] == ["fetch", "read", "encode", "store"]
        assert fetched["name"] == "2024"
        assert fetched["data_hash"] == uploaded["data_hash"]
        single = opened.do(PATH, source=objects(*(f"{bucket}2024/{each}" for each in ("part-0.parquet",))))
        assert opened.dataset(single)["summary"]["records"] < uploaded["summary"]["records"]
        assert not list(opened.runtime.store.list("uploads"))  # what was fetched is gone with the job


def test_what_is_not_there_ends_in_a_clear_error(tmp_path: Path, bucket: str) -> None:
    with door(tmp_path, sources=[{"kind": "objects", "url": bucket}]) as opened:
        job = opened.do(PATH, source=objects(f"{bucket}missing.csv"))
        assert (job["state"], job["error"]["type"]) == ("failed", "outside")
        assert job["error"]["detail"] == "missing.csv: the bucket answers 404"
        empty = opened.do(PATH, source=objects(f"{bucket}nothing/"))
        assert empty["error"] == {"type": "bad-data", "detail": "there are no files to read at the source"}


def test_a_source_is_bounded_like_an_upload(tmp_path: Path, bucket: str) -> None:
    put(f"{bucket}large.csv", CSV)
    with door(tmp_path, sources=[{"kind": "objects", "url": bucket}], max_upload_bytes=1000) as opened:
        job = opened.do(PATH, source=objects(f"{bucket}large.csv"))
        assert (job["state"], job["error"]["type"]) == ("failed", "too-large")
    with door(tmp_path, sources=[{"kind": "objects", "url": bucket}], limit_stored_bytes=1000) as opened:
        assert opened.do(PATH, source=objects(f"{bucket}large.csv"))["error"]["type"] == "quota"


# --- objects of the web ---


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries follow each other at once, unless somebody says when."""
    monkeypatch.setattr("worker.fetching.web.PAUSE_SECONDS", 0.01)


@pytest.fixture
def files() -> dict[str, bytes]:
    index = b'<a href="../">up</a><a href="a.csv">a</a><a href="http://evil.example/b.csv">b</a><a href="/c.csv">c</a>'
    return {"/d/": index + b'<a href="b%2Ecsv">b</a>', "/d/a.csv": HALVES[0], "/d/b%2Ecsv": HALVES[1]}


@pytest.fixture
def web(files: dict[str, bytes]) -> Iterator[Outside]:
    def answer(asked: Asked) -> Said:
        body = files.get(asked.path)
        return Said(404) if body is None else Said(200, body, {"ETag": f'"{len(body)}"'})

    with Outside(answer) as server:
        yield server


def place_of(server: Outside, private: bool = True) -> dict[str, Any]:
    return {"kind": "objects", "url": f"{server.url}/d/", "private": private}


def test_a_folder_of_the_web_is_what_its_index_links_to(tmp_path: Path, web: Outside) -> None:
    with door(tmp_path, sources=[place_of(web)]) as opened:
        uploaded = opened.uploaded({"a.csv": HALVES[0], "b.csv": HALVES[1]}, min_records=1)
        fetched = opened.dataset(opened.do(PATH, source=objects(f"{web.url}/d/"), min_records=1))
        assert fetched["data_hash"] == uploaded["data_hash"]
        assert {each.path for each in web.asked} == {"/d/", "/d/a.csv", "/d/b%2Ecsv"}


def test_addresses_of_this_network_need_to_be_allowed(tmp_path: Path, web: Outside) -> None:
    with door(tmp_path, sources=[place_of(web, private=False)]) as opened:
        assert opened.refused(PATH, source=objects(f"{web.url}/d/a.csv")) == "url: must begin with https://"
    # a name that leads into this network is found out when it is looked up
    secure = {"kind": "objects", "url": "https://localhost:9/d/"}
    with door(tmp_path, sources=[secure]) as opened, pytest.MonkeyPatch.context() as patch:
        patch.setattr("worker.fetching.web.TRIES", 1)
        job = opened.do(PATH, source=objects("https://localhost:9/d/a.csv"))
        assert job["error"] == {"type": "outside", "detail": "the source gave the address is not public"}
        assert not web.asked


@pytest.mark.usefixtures("hurried")
def test_a_file_that_breaks_off_is_gone_on_with(tmp_path: Path, web: Outside) -> None:
    half = len(CSV) // 2
    left = [Said(503), Said(200, CSV, {"ETag": '"1"'}, breaks_after=half)]

    def answer(asked: Asked) -> Said:
        if asked.method == "HEAD":
            return Said(200, CSV, {"ETag": '"1"'})
        if left:
            return left.pop(0)
        assert (asked.headers["range"], asked.headers["if-range"]) == (f"bytes={half}-", '"1"')
        return Said(206, CSV[half:])

    web.answer = answer
    with door(tmp_path, sources=[place_of(web)]) as opened:
        uploaded = opened.uploaded({"a.csv": CSV}, min_records=1)
        fetched = opened.dataset(opened.do(PATH, source=objects(f"{web.url}/d/a.csv"), min_records=1))
        assert fetched["data_hash"] == uploaded["data_hash"]


@pytest.mark.usefixtures("hurried")
def test_a_file_that_is_replaced_meanwhile_is_no_file(tmp_path: Path, web: Outside) -> None:
    left = [Said(200, CSV, {"ETag": '"1"'}, breaks_after=100), Said(200, CSV[::-1], {"ETag": '"2"'})]
    web.answer = lambda asked: Said(200, CSV) if asked.method == "HEAD" else left.pop(0)
    with door(tmp_path, sources=[place_of(web)]) as opened:
        job = opened.do(PATH, source=objects(f"{web.url}/d/a.csv"))
        assert job["error"]["detail"] == "a file was replaced at the source while it was fetched"


@pytest.mark.usefixtures("hurried")
def test_a_retry_fetches_only_what_is_missing(tmp_path: Path, web: Outside, files: dict[str, bytes]) -> None:
    broken = [True]
    answer = web.answer

    def sometimes(asked: Asked) -> Said:
        return Said(500) if broken[0] and asked.method == "GET" and asked.path == "/d/b%2Ecsv" else answer(asked)

    web.answer = sometimes
    with door(tmp_path, sources=[place_of(web)]) as opened:
        job = opened.do(PATH, source=objects(f"{web.url}/d/"))
        assert job["error"] == {"type": "outside", "detail": "the source answered with status 500"}
        broken[0] = False
        again = opened.http.post(f"/jobs/{job['id']}/retry").raise_for_status().json()
        assert opened.run(again["id"])["state"] == "succeeded"
        assert web.count("GET", "/d/a.csv") == 1
        assert not list(opened.runtime.store.list("uploads"))


@pytest.mark.usefixtures("hurried")
def test_fetching_can_be_cancelled(tmp_path: Path, web: Outside) -> None:
    with door(tmp_path, sources=[place_of(web)], heartbeat_seconds=0.05) as opened:
        answer = web.answer

        def cancelled_meanwhile(asked: Asked) -> Said:
            if asked.method == "GET":
                (job,) = opened.http.get("/jobs", params={"state": "running"}).json()["items"]
                opened.http.post(f"/jobs/{job['id']}/cancel").raise_for_status()
                return Said(503, headers={"Retry-After": "15"})  # for so long nobody would wait in vain
            return answer(asked)

        web.answer = cancelled_meanwhile
        job = opened.do(PATH, source=objects(f"{web.url}/d/a.csv"))
        assert job["state"] == "cancelled"
        assert not list(opened.runtime.store.list("uploads"))


def test_the_same_key_is_the_same_job(tmp_path: Path, web: Outside) -> None:
    with door(tmp_path, sources=[place_of(web)]) as opened:
        body = {"source": objects(f"{web.url}/d/a.csv")}
        first, second = (opened.http.post(PATH, json=body, headers={"Idempotency-Key": "k"}) for _ in range(2))
        assert first.json()["id"] == second.json()["id"]
        assert second.headers["Idempotent-Replayed"] == "true"

