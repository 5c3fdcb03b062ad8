"""Uploads: text stays text, bad rows are counted and not quoted, bombs and fragments are refused."""

import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ehr.errors import DataError, RequestError, TooLargeError
from ehr.formats import Options, SourceFile, open_upload
from ehr.formats.read.rejects import Rejects
from tests.formats.reading import LIMITS, read_upload, sets_of
from worker.ingestion.encoded import Encoded


def read(data: bytes, tmp_path: Path, **options: Any) -> tuple[Encoded, dict[str, Any]]:
    result = read_upload({"upload": data}, tmp_path, **options)
    return result.encoded, result.rejected


def test_codes_are_text_and_records_are_sets(tmp_path: Path) -> None:
    csv = b"record_id,code\nb,0050\na,V10\nb,0050 \nb,50\n a ,E11.9\n"
    encoded, rejected = read(csv, tmp_path)
    assert sets_of(encoded) == [["0050", "50"], ["E11.9", "V10"]]
    assert rejected == {}
    assert (np.diff(encoded.records.indptr) >= 0).all()


def test_systems_keep_colliding_codes_apart(tmp_path: Path) -> None:
    csv = b"vocabulary;record_id;code\nICD9DX;1;0050\nICD9PX;1;0050\nICD9DX;2;0050\n"
    encoded, _ = read(csv, tmp_path)
    assert sets_of(encoded) == [["ICD9DX:0050", "ICD9PX:0050"], ["ICD9DX:0050"]]
    encoded, _ = read(b"record_id\tcode\n1\t0050\n", tmp_path, default_vocabulary="ICD9DX")
    assert sets_of(encoded) == [["ICD9DX:0050"]]


@pytest.mark.parametrize("form", ["csv", "gzip", "parquet", "parquet-int"])
def test_all_forms_give_the_same(tmp_path: Path, form: str) -> None:
    rng = np.random.default_rng(0)
    record, code = rng.integers(0, 50, 500), rng.integers(100, 120, 500)
    text = "record_id,code\n" + "".join(f"{r},{c}\n" for r, c in zip(record, code, strict=True))
    if form == "csv":
        data = text.encode()
    elif form == "gzip":
        data = gzip.compress(text.encode())
    else:
        columns = [record, code] if form == "parquet-int" else [record.astype(str), code.astype(str)]
        sink = io.BytesIO()
        pq.write_table(pa.table(columns, names=["record_id", "code"]), sink)
        data = sink.getvalue()
    encoded, _ = read(data, tmp_path)
    expected: dict[int, set[str]] = {}
    for r, c in zip(record.tolist(), code.tolist(), strict=True):
        expected.setdefault(r, set()).add(str(c))
    assert sets_of(encoded) == [sorted(codes) for codes in expected.values()]


def test_bad_rows_are_counted_with_their_lines(tmp_path: Path) -> None:
    long = "x" * 50
    rows = [
        "record_id,patient_id,code",
        "1,p,A",
        ",p,A",
        "1,p,",
        "1,p,A,extra",
        f"1,p,{long}",
        "1,,A",
        "1,q,B",
        "1,p,B",
    ]
    encoded, rejected = read(("\n".join(rows) + "\n").encode(), tmp_path)
    assert sets_of(encoded) == [["A", "B"]]
    assert {reason: found["rows"] for reason, found in rejected.items()} == {
        "wrong-number-of-columns": 1,
        "empty-record-id": 1,
        "empty-code": 1,
        "too-long-code": 1,
        "empty-patient-id": 1,
        "record-of-two-patients": 1,
    }
    assert rejected["empty-record-id"]["first_lines"] == [3]


def test_rare_codes_go_and_their_records_stay(tmp_path: Path) -> None:
    encoded, _ = read(b"record_id,code\n1,A\n2,A\n3,B\n", tmp_path, min_records=2)
    assert encoded.vocabulary.codes == ("A",) and encoded.counted.codes_dropped == 1
    assert sets_of(encoded) == [["A"], ["A"], []]
    with pytest.raises(DataError, match="at least 5"):
        read(b"record_id,code\n1,A\n", tmp_path, min_records=5)
    with pytest.raises(TooLargeError):
        read(b"record_id,code\n1,A\n1,B\n", tmp_path, max_codes=1)


def test_patients_are_numbered(tmp_path: Path) -> None:
    encoded, _ = read(b"record_id,patient_id,code\n1,x,A\n2,y,A\n3,x,A\n4,,A\n", tmp_path)
    assert encoded.patients.tolist() == [0, 1, 0] and encoded.n_patients == 2


SECRET = "Patient-Zero"


REFUSED: dict[str, tuple[bytes, type[Exception]]] = {
    "empty": (b"", DataError),
    "only a header": (b"record_id,code\n", DataError),
    "no header": (f"{SECRET},A\n".encode(), DataError),
    "a column twice": (b"record_id,code,code\n1,A,B\n", DataError),
    "not text": (b"record_id,code\n1,\xff\xfe\n", DataError),
    "cut short": (gzip.compress(b"record_id,code\n1,A\n" * 1000)[:-20], DataError),
    "too large unpacked": (gzip.compress(b"record_id,code\n" + b"1,A\n" * 2_000_000), TooLargeError),
    "says parquet": (b"PAR1" + SECRET.encode() * 10, DataError),
    "binary": (b"\x00\x01\x02" + SECRET.encode(), DataError),
    "too many rows": (b"record_id,code\n" + b"1,A\n" * 100_001, TooLargeError),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_read_is_refused_without_quoting_it(what: str, tmp_path: Path) -> None:
    data, error = REFUSED[what]
    with pytest.raises(error) as caught:
        read(data, tmp_path)
    assert SECRET not in str(caught.value)


def test_a_parquet_file_with_too_many_rows_is_refused_before_it_is_read(tmp_path: Path) -> None:
    sink = io.BytesIO()
    table = pa.table({"record_id": pa.array(["1"] * 200_000), "code": pa.array(["A"] * 200_000)})
    pq.write_table(table, sink)
    assert len(sink.getvalue()) < 10_000
    with pytest.raises(TooLargeError):
        read(sink.getvalue(), tmp_path)


def test_an_unknown_format_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="mimic-iii"):
        read(b"record_id,code\n1,A\n", tmp_path, name="xml")


def test_a_reader_can_be_stopped(tmp_path: Path) -> None:
    path = tmp_path / "upload"
    path.write_bytes(b"record_id,code\n" + b"1,A\n" * 1000)

    def stop(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(open_upload("long", [SourceFile.at(path, "upload", LIMITS, stop)], Options()).batches(Rejects()))
