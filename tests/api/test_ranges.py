"""Readers of Parquet and Arrow take what they need from a cohort's address."""

import hashlib
import io
from collections.abc import Iterator
from typing import Any

import duckdb
import fsspec
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from app.access import OPEN_OWNER
from app.recent_reads import RecentReads
from app.stored_forms import KEPT_SECONDS
from model_store.repositories import AuditRepository
from model_store.tables import Discard
from tests.api.conftest import settings_for
from tests.api.front import CODES, Caller, Front
from tests.api.test_problems import assert_problem

ROWS = [[0, 2], [1], [], [0, 1, 2]]
CODES_OF_ROWS = [CODES[code] for row in ROWS for code in row]


@pytest.fixture
def cohort(sqlite_caller: Caller) -> str:
    return sqlite_caller.cohort([ROWS[:3], ROWS[3:]])


def test_a_form_has_a_length_a_tag_and_ranges(sqlite_caller: Caller, cohort: str) -> None:
    http, address = sqlite_caller.http, f"/cohorts/{cohort}/records?format=parquet"
    whole = http.get(address)
    tag = whole.headers["etag"]
    assert tag == f'"{hashlib.sha256(whole.content).hexdigest()}"'
    assert (whole.status_code, whole.headers["accept-ranges"]) == (200, "bytes")
    assert int(whole.headers["content-length"]) == len(whole.content) and whole.content.startswith(b"PAR1")
    head = http.head(address)
    assert head.content == b"" and head.headers["content-length"] == whole.headers["content-length"]
    size = len(whole.content)
    for wanted, part in {"0-3": slice(0, 4), f"{size - 4}-": slice(-4, None), "-8": slice(-8, None)}.items():
        some = http.get(address, headers={"Range": f"bytes={wanted}"})
        assert (some.status_code, some.content) == (206, whole.content[part])
        assert some.headers["content-range"].endswith(f"/{size}")
    assert http.get(address, headers={"Range": "bytes=4-99999999"}).content == whole.content[4:]
    beyond = http.get(address, headers={"Range": f"bytes={size}-"})
    assert_problem(beyond, 416, "range-not-satisfiable")
    assert beyond.headers["content-range"] == f"bytes */{size}"
    for header in ("bytes=0-1,3-4", "bytes=-", "lines=1-2", "bytes=3-1x"):  # not understood: all of it
        assert http.get(address, headers={"Range": header}).content == whole.content
    assert http.get(address, headers={"If-None-Match": tag}).status_code == 304
    assert http.get(address, headers={"If-Range": '"other"', "Range": "bytes=0-3"}).status_code == 200


def test_arrow_as_file_and_as_stream_which_says_that_it_is_one(sqlite_caller: Caller, cohort: str) -> None:
    http = sqlite_caller.http
    streamed = http.head(f"/cohorts/{cohort}/records?format=long.csv")
    assert streamed.headers["accept-ranges"] == "none" and "content-length" not in streamed.headers
    arrow = http.get(f"/cohorts/{cohort}/records.arrow").content
    assert pa.ipc.open_stream(arrow).read_all()["code"].to_pylist() == CODES_OF_ROWS
    feather = http.get(f"/cohorts/{cohort}/records.feather").content
    assert pa.ipc.open_file(io.BytesIO(feather)).read_all()["code"].to_pylist() == CODES_OF_ROWS
    assert_problem(http.get(f"/cohorts/{cohort}/records.xlsx"), 422, "invalid-request")


def test_ranges_are_one_download_and_gated_like_one(sqlite_caller: Caller, cohort: str) -> None:
    caller, address = sqlite_caller, f"/cohorts/{cohort}/records.parquet"
    for first in range(3):
        assert caller.http.get(address, headers={"Range": f"bytes={first}-{first + 3}"}).status_code == 206
        caller.http.head(address)
    assert downloads(caller) == 1
    caller.http.get(address)
    assert downloads(caller) == 2
    caller.report({}, cohort, privacy="fail", withholds="It copies patients.")
    for header in ({}, {"Range": "bytes=0-3"}):
        assert_problem(caller.http.get(address, headers=header), 409, "withheld")
    assert caller.http.head(address).status_code == 409
    assert caller.http.delete(f"/cohorts/{cohort}").status_code == 204
    assert caller.http.head(address).status_code == 404


def downloads(caller: Caller) -> int:
    with caller.front.services.database.read_scope() as session:
        return sum(row.action == "download cohort" for row in AuditRepository(session).newest(caller.owner))


def test_reads_are_noted_again_after_a_while() -> None:
    reads = RecentReads(window_seconds=0)
    assert reads.is_new("a") and reads.is_new("a")


def test_a_form_is_made_once_verified_and_cleaned_up(sqlite_caller: Caller, cohort: str) -> None:
    services, address = sqlite_caller.front.services, f"/cohorts/{cohort}/records.parquet"
    whole = sqlite_caller.http.get(address).content
    sqlite_caller.http.get(address)
    blobs = [key for key in services.store.list(f"cohorts/{cohort}/forms") if not key.endswith("note.json")]
    assert len(blobs) == 1
    with services.database.read_scope() as session:
        due = session.query(Discard).filter(Discard.prefix.startswith(f"cohorts/{cohort}/forms")).one()
        assert due.due_at > KEPT_SECONDS / 2
    sqlite_caller.front.damage(blobs[0], whole[:-1] + b"X")
    services.forms._verified.cache_clear()  # as another process would
    assert_problem(sqlite_caller.http.get(address), 500, "corrupt")


@pytest.fixture(scope="module")
def anyones(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """Without keys: not every reader can send one."""
    folder = tmp_path_factory.mktemp("anyones")
    with Front(settings_for(folder, f"sqlite:///{folder / 'x.sqlite'}")) as front:
        yield front


def test_polars_pandas_and_pyarrow_read_the_address(anyones: Front) -> None:
    caller = Caller(anyones, OPEN_OWNER, "")
    cohort = caller.cohort([ROWS[:3], ROWS[3:]])
    caller.http.close()
    address = f"{anyones.url}/cohorts/{cohort}/records"
    scanned = pl.scan_parquet(f"{address}.parquet").filter(pl.col("record_id") == 3).select("code").collect()
    assert scanned["code"].to_list() == CODES_OF_ROWS[3:]
    assert pd.read_feather(f"{address}.feather")["code"].tolist() == CODES_OF_ROWS


def test_duckdb_reads_the_address_where_it_has_httpfs(anyones: Front) -> None:
    """It is an extension that DuckDB fetches; pip's duckdb-extension-httpfs has it for some versions."""
    try:
        duckdb.sql("load httpfs")
    except duckdb.Error:
        pytest.skip("there is no httpfs for this DuckDB")
    caller = Caller(anyones, OPEN_OWNER, "")
    cohort = caller.cohort([ROWS[:3], ROWS[3:]])
    caller.http.close()
    found = duckdb.sql(f"select code from read_parquet('{anyones.url}/cohorts/{cohort}/records.parquet')").fetchall()
    assert [code for (code,) in found] == CODES_OF_ROWS


def test_readers_with_a_key(sqlite_caller: Caller, cohort: str) -> None:
    client = sqlite_caller.client()
    address, headers = client.address(cohort), client.headers
    client.close()
    assert pd.read_parquet(address, storage_options=headers)["code"].tolist() == CODES_OF_ROWS
    table = client.address(cohort, "long.csv")
    assert len(pd.read_csv(table, storage_options=headers)) == len(CODES_OF_ROWS)
    files: Any = fsspec.filesystem("http", headers=headers)
    scanned = ds.dataset(address, filesystem=files, format="parquet").to_table(columns=["code"])
    assert scanned["code"].to_pylist() == CODES_OF_ROWS
