"""Cohorts that are written outside: gated like downloads, and the same records."""

import io
from collections.abc import Callable
from typing import Any

import pyarrow.parquet as pq
import pytest

from model_store.repositories import AuditRepository
from tests.service.doors import Door
from tests.service.s3_server import BUCKET

RECORDS = [[0, *([1] if i % 2 else []), *([2] if i % 5 == 0 else [])] for i in range(40_000)]


@pytest.fixture
def cohort(door: Door) -> str:
    """Of one part, and released."""
    made = door.caller.cohort([RECORDS[:20_000], RECORDS[20_000:]], evaluate=False)
    door.http.post(f"/cohorts/{made}/release", json={"reason": "for a test"})
    return made


def parquet(door: Door, **more: Any) -> dict[str, Any]:
    return {"kind": "parquet", "url": f"{door.bucket}out/", **more}


def read(door: Door, address: str) -> dict[str, bytes]:
    prefix = address.removeprefix(f"s3://{BUCKET}/")
    found = [each.key for each in door.objects.list(prefix)]
    return {key.removeprefix(prefix): b"".join(door.objects.blocks(key)) for key in found}


def test_parquet_files_hold_what_a_download_holds(door: Door, cohort: str) -> None:
    job = door.do(f"/cohorts/{cohort}/exports", sink=parquet(door, records_per_file=16_384))
    assert job["state"] == "succeeded", job["error"]
    assert job["result"]["written"] == f"{door.bucket}out/{cohort}/"
    assert [step["name"] for step in job["progress"]["steps"]] == ["load", "write"]
    files = read(door, job["result"]["written"])
    parts = sorted(name for name in files if name.endswith(".parquet"))
    assert parts == ["part-00000.parquet", "part-00001.parquet", "part-00002.parquet"]
    assert set(files) == {*parts, "_manifest.json", "_SUCCESS"}
    rows = [pq.read_table(io.BytesIO(files[name])).to_pylist() for name in parts]
    whole = door.http.get(f"/cohorts/{cohort}/records", params={"format": "parquet"})
    assert [row for part in rows for row in part] == pq.read_table(io.BytesIO(whole.content)).to_pylist()
    assert max(row["record_id"] for row in rows[0]) == 16_383
    assert b"data_hash" not in files["_manifest.json"]
    again = door.do(f"/cohorts/{cohort}/exports", sink=parquet(door, records_per_file=16_384))
    assert again["state"] == "succeeded"  # the same bytes under the same names
    other = door.do(f"/cohorts/{cohort}/exports", sink=parquet(door))
    assert (other["state"], other["error"]["type"]) == ("failed", "outside")
    assert "there is one of that name with other contents" in other["error"]["detail"]


def test_an_export_is_gated_and_noted_like_a_download(door: Door, cohort: str) -> None:
    withheld = door.caller.cohort([RECORDS[:10]], evaluate=False)
    door.caller.report({}, withheld, privacy="fail", withholds="It betrays patients.")
    path = f"/cohorts/{withheld}/exports"
    answer = door.http.post(path, json={"sink": parquet(door)})
    assert answer.status_code == 409
    assert answer.json()["type"] == door.http.get(f"/cohorts/{withheld}/records").json()["type"]
    submitted = door.http.post(f"/cohorts/{cohort}/exports", json={"sink": parquet(door)}).json()
    with door.runtime.database.read_scope() as session:
        row = next(each for each in AuditRepository(session).newest(door.caller.owner) if each.target == cohort)
    assert (row.action, row.detail) == ("export cohort", {"sink": "parquet", "job": submitted["id"]})
    assert door.front.as_owner("someone else").http.post(f"/cohorts/{cohort}/exports", json={"sink": parquet(door)})
    reader = door.front.as_owner(door.caller.owner, "read")
    assert reader.http.post(f"/cohorts/{cohort}/exports", json={"sink": parquet(door)}).status_code == 403
    analyst = door.front.as_owner(door.caller.owner, "generate")
    done = door.run(submitted["id"])
    seen = analyst.http.get(f"/jobs/{submitted['id']}").json()
    assert seen["result"] == done["result"]


def test_what_is_withheld_meanwhile_is_not_written(door: Door) -> None:
    made = door.caller.cohort([RECORDS[:10]], evaluate=False)
    door.http.post(f"/cohorts/{made}/release", json={"reason": "for a test"})
    job = door.http.post(f"/cohorts/{made}/exports", json={"sink": parquet(door)}).json()
    door.caller.report({}, made, privacy="fail", withholds="It betrays patient 17.")
    failed = door.run(job["id"])
    assert (failed["state"], failed["error"]["type"]) == ("failed", "conflict")
    assert "17" not in failed["error"]["detail"]
    assert read(door, f"{door.bucket}out/") == {}


@pytest.mark.parametrize(
    ("sink", "told"),
    [
        (lambda door: {"kind": "parquet", "url": "s3://elsewhere/x/"}, "this address is not allowed here"),
        (lambda door: {"kind": "parquet", "url": f"{door.bucket}file"}, "must begin with s3:// and end in /"),
        (lambda door: {"kind": "parquet", "url": f"{door.web.url}/d/"}, "must begin with s3:// and end in /"),
        (lambda door: {"kind": "delta", "url": f"{door.bucket}../x/"}, "must have no '.' or '..'"),
        (lambda door: {"kind": "omop", "connection": "nowhere", "cdm_schema": "cdm"}, "connection is not allowed"),
        (lambda door: {"kind": "csv", "url": "/etc/passwd"}, "sink"),
    ],
)
def test_only_what_is_allowed_is_written_to(
    door: Door, cohort: str, sink: Callable[[Door], dict[str, Any]], told: str
) -> None:
    assert told in door.refused(f"/cohorts/{cohort}/exports", sink=sink(door))


def test_a_delta_table_says_what_it_needs_or_is_one(door: Door, cohort: str) -> None:
    job = door.do(f"/cohorts/{cohort}/exports", sink={"kind": "delta", "url": f"{door.bucket}tables/"})
    try:
        from deltalake import DeltaTable
    except ImportError:
        assert job["error"]["type"] == "outside"
        assert "pip install 'ehr-d3pm[delta]'" in job["error"]["detail"]
        return
    from model_store.blobs.s3_objects import storage_options

    assert job["state"] == "succeeded", job["error"]
    table = DeltaTable(job["result"]["written"], storage_options=storage_options()).to_pyarrow_table()
    assert table.num_rows == sum(map(len, RECORDS))
    assert set(table.column_names) == {"record_id", "code"}
