"""Records that lie elsewhere become the dataset that an upload of them would be; nothing is allowed by default."""

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from ehr.errors import RequestError
from runtime.places import object_place, source_places
from tests.api.conftest import settings_for
from tests.api.front import Front
from tests.service.doors import Asked, Door, Said
from tests.service.stand import long_csv

PATH = "/datasets/by-reference"
CSV = long_csv(60)
CUT = CSV.index(b"\nr30,") + 1
HALVES = [CSV[:CUT], CSV.split(b"\n", 1)[0] + b"\n" + CSV[CUT:]]
INDEX = (
    b'<a href="../">up</a><a href="a.csv">a</a><a href="http://evil.example/b.csv">b</a><a href="/c.csv">c</a>'
    b'<a href="b%2Ecsv">b</a>'
)
FILES = {"/d/": INDEX, "/d/a.csv": HALVES[0], "/d/b%2Ecsv": HALVES[1]}


def as_parquet(csv: bytes) -> bytes:
    options = pa.csv.ConvertOptions(column_types={"code": pa.string()})
    sink = io.BytesIO()
    pq.write_table(pa.csv.read_csv(io.BytesIO(csv), convert_options=options), sink)
    return sink.getvalue()


def objects(*urls: str) -> dict[str, Any]:
    return {"kind": "objects", "urls": list(urls)}


def served(asked: Asked) -> Said:
    body = FILES.get(asked.path)
    return Said(404) if body is None else Said(200, body, {"ETag": f'"{len(body)}"'})


# --- what is allowed ---


def test_nothing_is_allowed_by_default(tmp_path: Path) -> None:
    with Front(settings_for(tmp_path, f"sqlite:///{tmp_path / 'db.sqlite'}")) as front:
        caller = front.as_owner("ada")
        assert caller.http.get("/places").json() == {"sources": [], "sinks": []}
        database = {"kind": "omop", "connection": "warehouse", "cdm_schema": "cdm"}
        sources = [objects("s3://bucket/x.csv"), database, {"kind": "fhir", "server": "hospital"}]
        for source in [*sources, *map(objects, ("/etc/passwd", "file:///etc/passwd", "postgresql://x/y"))]:
            answer = caller.http.post(PATH, json={"source": source})
            assert answer.status_code == 422
            assert answer.json()["detail"].endswith("is not allowed here; allowed: none")
        analyst = front.as_owner("ada", "read", "generate", "train")
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


def test_owners_have_their_own_places() -> None:
    assert object_place(PLACES, "ada", "s3://lake/ours/x.csv", "url").url == "s3://lake/ours/"
    assert object_place(PLACES, "bob", "s3://theirs/x.csv", "url").url == "s3://theirs/"


def test_places_tell_no_secrets(door: Door) -> None:
    said = door.http.get("/places")
    warehouse = {
        "kind": "postgres",
        "name": "warehouse",
        "url": None,
        "schemas": ["cdm", "results", "synthetic_*"],
    }
    assert warehouse in said.json()["sources"] and warehouse in said.json()["sinks"]
    for secret in (door.database, "smart.pem"):
        assert secret not in said.text + repr(door.front.settings)
    analyst = door.front.as_owner(door.caller.owner, "read")
    assert analyst.http.get("/places").json()["sources"] == []
    wrong = {"kind": "omop", "connection": "warehouse", "cdm_schema": "public"}
    assert door.refused(PATH, source=wrong).startswith("cdm_schema: this schema is not allowed here; allowed: cdm, ")


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


def test_a_folder_of_s3_is_what_an_upload_of_it_is(door: Door) -> None:
    files = {"part-0.parquet": as_parquet(HALVES[0]), "q/part-1.parquet": as_parquet(HALVES[1])}
    for name, data in {**files, "_SUCCESS": b"x", "notes.pdf": b"x"}.items():
        door.put(f"2024/{name}", data)
    uploaded = door.uploaded(files, min_records=1)
    job = door.do(PATH, source=objects(f"{door.bucket}2024/"), min_records=1)
    fetched = door.dataset(job)
    assert [step["name"] for step in job["progress"]["steps"]] == ["fetch", "read", "encode", "store"]
    assert fetched["name"] == "2024"
    assert fetched["data_hash"] == uploaded["data_hash"]
    single = door.dataset(door.do(PATH, source=objects(f"{door.bucket}2024/part-0.parquet"), min_records=1))
    assert single["summary"]["records"] < uploaded["summary"]["records"]
    assert not door.left(job)  # what was fetched is gone with the job


def test_what_is_not_there_ends_in_a_clear_error(door: Door) -> None:
    job = door.do(PATH, source=objects(f"{door.bucket}missing.csv"))
    assert job["state"] == "failed"
    assert job["error"] == {"type": "outside", "detail": "missing.csv: the bucket answers 404"}
    empty = door.do(PATH, source=objects(f"{door.bucket}nothing/"))
    assert empty["error"] == {"type": "bad-data", "detail": "there are no files to read at the source"}


def test_a_source_is_bounded_like_an_upload(door: Door) -> None:
    large = objects(door.put("large.csv", CSV))
    assert door.limited(max_upload_bytes=1000).do(PATH, source=large)["error"]["type"] == "too-large"
    assert door.limited(limit_stored_bytes=1000).do(PATH, source=large)["error"]["type"] == "quota"


# --- objects of the web ---


def test_a_folder_of_the_web_is_what_its_index_links_to(door: Door) -> None:
    door.web.answer = served
    uploaded = door.uploaded({"a.csv": HALVES[0], "b.csv": HALVES[1]}, min_records=1)
    fetched = door.dataset(door.do(PATH, source=objects(f"{door.web.url}/d/"), min_records=1))
    assert fetched["data_hash"] == uploaded["data_hash"]
    assert {each.path for each in door.web.asked} == set(FILES)


def test_a_name_that_leads_into_this_network_is_found_out(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.fetching.web.TRIES", 1)
    job = door.do(PATH, source=objects("https://localhost:9/d/a.csv"))
    assert job["error"] == {"type": "outside", "detail": "the source gave the address is not public"}


def test_a_file_that_breaks_off_is_gone_on_with(door: Door) -> None:
    half = len(CSV) // 2
    left = [Said(503), Said(200, CSV, {"ETag": '"1"'}, breaks_after=half)]

    def answer(asked: Asked) -> Said:
        if asked.method == "HEAD":
            return Said(200, CSV, {"ETag": '"1"'})
        if left:
            return left.pop(0)
        assert (asked.headers["range"], asked.headers["if-range"]) == (f"bytes={half}-", '"1"')
        return Said(206, CSV[half:])

    door.web.answer = answer
    uploaded = door.uploaded({"a.csv": CSV}, min_records=1)
    fetched = door.dataset(door.do(PATH, source=objects(f"{door.web.url}/d/a.csv"), min_records=1))
    assert fetched["data_hash"] == uploaded["data_hash"]
    assert not left


def test_a_file_that_is_replaced_meanwhile_is_no_file(door: Door) -> None:
    left = [Said(200, CSV, {"ETag": '"1"'}, breaks_after=100), Said(200, CSV[::-1], {"ETag": '"2"'})]
    door.web.answer = lambda asked: Said(200, CSV) if asked.method == "HEAD" else left.pop(0)
    job = door.do(PATH, source=objects(f"{door.web.url}/d/a.csv"))
    assert job["error"]["detail"] == "a file was replaced at the source while it was fetched"


def test_a_retry_fetches_only_what_is_missing(door: Door) -> None:
    def one_fails(asked: Asked) -> Said:
        return Said(500) if asked.method == "GET" and asked.path == "/d/b%2Ecsv" else served(asked)

    door.web.answer = one_fails
    job = door.do(PATH, source=objects(f"{door.web.url}/d/"))
    assert job["error"] == {"type": "outside", "detail": "the source answered with status 500"}
    door.web.answer = served
    again = door.http.post(f"/jobs/{job['id']}/retry").raise_for_status().json()
    assert len(door.left(job)) == 1
    assert door.run(again["id"])["state"] == "succeeded"
    assert door.web.count("GET", "/d/a.csv") == 1
    assert not door.left(job)


def test_fetching_can_be_cancelled(door: Door) -> None:
    def cancelled_meanwhile(asked: Asked) -> Said:
        if asked.method == "HEAD":
            return served(asked)
        (job,) = door.http.get("/jobs", params={"state": "running"}).json()["items"]
        door.http.post(f"/jobs/{job['id']}/cancel").raise_for_status()
        return Said(503, headers={"Retry-After": "15"})  # for so long nobody would wait in vain

    door.web.answer = cancelled_meanwhile
    job = door.do(PATH, source=objects(f"{door.web.url}/d/a.csv"))
    assert job["state"] == "cancelled"
    assert not door.left(job)


def test_the_same_key_is_the_same_job(door: Door) -> None:
    body = {"source": objects(f"{door.web.url}/d/a.csv")}
    first, second = (door.http.post(PATH, json=body, headers={"Idempotency-Key": "k"}) for _ in range(2))
    assert first.json()["id"] == second.json()["id"]
    assert second.headers["Idempotent-Replayed"] == "true"
