"""What real files do wrong. Text stays text, bad rows are counted and not quoted, fragments and tricks are refused."""

import gzip
import io
import json
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.sparse import csr_array, save_npz

from ehr.errors import DataError, RequestError, TooLargeError
from ehr.formats.read.sources import Limits
from tests.formats.reading import LIMITS, ROOMY, read_upload

CONDITIONS = "condition_occurrence_id,person_id,condition_concept_id,visit_occurrence_id,condition_source_value\n"
SECRET = "Patient-Zero"


def parquet(**columns: pa.Array) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


def zipped(**files: bytes) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name.replace("_csv", ".csv"), data)
    return sink.getvalue()


# --- values ---


@pytest.mark.parametrize("system", ["ICD9DX", "NDC", "CPT", "HCPCS", "ICD10CM"])
def test_codes_that_came_as_numbers_have_lost_their_zeros(system: str, tmp_path: Path) -> None:
    data = parquet(
        record_id=pa.array([1, 2]), vocabulary=pa.array([system] * 2), code=pa.array([389, 41401], pa.int64())
    )
    with pytest.raises(DataError, match="leading zeros are lost"):
        read_upload({"x.parquet": data}, tmp_path)
    snomed = parquet(record_id=pa.array([1]), vocabulary=pa.array(["SNOMED"]), code=pa.array([195662009]))
    assert read_upload({"x.parquet": snomed}, tmp_path).records == {"1": {"SNOMED:195662009"}}
    text = b"record_id,vocabulary,code\n1,ICD9DX,0389\n1,ICD9DX,389\n"
    assert read_upload({"x.csv": text}, tmp_path).records == {"1": {"ICD9DX:0389", "ICD9DX:389"}}


def test_decimal_ids_have_lost_their_last_digits(tmp_path: Path) -> None:
    """What pandas makes of a 64-bit id as soon as one is missing."""
    ids = pa.array([4783904755296699562.0, None])
    with pytest.raises(DataError, match="not decimal numbers"):
        read_upload({"x.parquet": parquet(record_id=ids, code=pa.array(["A", "B"]))}, tmp_path)


def test_padded_source_values(tmp_path: Path) -> None:
    rows = "1,10,0,7,78791  \n2,10,0,7,78791\n3,11,0,8,  4019\t\n"
    result = read_upload({"condition_occurrence.csv": (CONDITIONS + rows).encode()}, tmp_path)
    assert result.records == {"7": {"ICD9DX:78791"}, "8": {"ICD9DX:4019"}}


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_negative_64_bit_ids(form: str, tmp_path: Path) -> None:
    low, high = -(2**63), 2**63 - 1
    near = low + 1  # a double cannot tell the two apart
    if form == "csv":
        rows = f"1,{high},0,{low},A\n2,{high},0,{near},B\n"
        files = {"condition_occurrence.csv": (CONDITIONS + rows).encode()}
    else:
        columns = {"person_id": [high] * 2, "visit_occurrence_id": [low, near]}
        data = {name: pa.array(values, pa.int64()) for name, values in columns.items()}
        files = {"c.parquet": parquet(**data, condition_source_value=pa.array(["A", "B"]))}
    result = read_upload(files, tmp_path)
    assert result.records == {str(low): {"CONDITION:A"}, str(near): {"CONDITION:B"}}
    assert result.encoded.n_patients == 1


ICD9 = b"ROW_ID,SUBJECT_ID,HADM_ID,SEQ_NUM,ICD9_CODE\n1,1,10,1,%b\n"


def test_icd9_e_and_v_codes(tmp_path: Path) -> None:
    """E codes are four characters before the dot, and neither is an ICD-10 code."""
    for code, cut, group, chapter in (
        (b"E8791", "E879", "CCS:2616", "19"),
        (b"V3000", "V30", "CCS:218", "18"),
        (b"25000", "250", "CCS:49", "3"),
    ):
        for rollup, wanted in (
            ("none", f"ICD9DX:{code.decode()}"),
            ("icd3", f"ICD9DX:{cut}"),
            ("ccs", group),
            ("chapter", f"ICD9CHAPTER:{chapter}"),
        ):
            result = read_upload({"DIAGNOSES_ICD.csv": ICD9 % code}, tmp_path, rollup=rollup)
            assert result.records == {"10": {wanted}}


def test_diagnoses_and_procedures_do_not_collide(tmp_path: Path) -> None:
    files = {"DIAGNOSES_ICD.csv": ICD9 % b"0389", "PROCEDURES_ICD.csv": ICD9 % b"0389"}
    for rollup, wanted in (("none", {"ICD9DX:0389", "ICD9PX:0389"}), ("icd3", {"ICD9DX:038", "ICD9PX:03"})):
        assert read_upload(files, tmp_path, rollup=rollup).records == {"10": wanted}


def test_duplicate_rows_are_one_code(tmp_path: Path) -> None:
    result = read_upload({"x.csv": b"record_id,code\n" + b"1,A\n" * 5 + b"2,A\n"}, tmp_path)
    assert result.records == {"1": {"A"}, "2": {"A"}}
    assert (result.encoded.counted.usable, result.encoded.counted.repeated) == (6, 4)


# --- text ---


@pytest.mark.parametrize("wrap", [lambda d: d, gzip.compress, lambda d: pa.compress(d, codec="zstd", asbytes=True)])
@pytest.mark.parametrize("delimiter", [b",", b";", b"\t", b"|"])
def test_bom_crlf_and_quoted_newlines(wrap: Callable[[bytes], bytes], delimiter: bytes, tmp_path: Path) -> None:
    lines = [b'"RECORD_ID","note","Code"', b'1,"two\r\nlines, and ""quotes""",A', b"", b"2,x,B"]
    data = b"\xef\xbb\xbf" + b"\r\n".join(line.replace(b",", delimiter) for line in lines) + b"\r\n"
    result = read_upload({"x.csv": wrap(data)}, tmp_path)
    assert result.records == {"1": {"A"}, "2": {"B"}} and result.rejected == {}


def test_a_wrong_header_is_named_and_data_is_not(tmp_path: Path) -> None:
    bad = CONDITIONS.replace("person_id", "persn_id") + f"1,{SECRET},0,7,A\n"
    for name in ("auto", "omop"):
        with pytest.raises(DataError, match="condition_occurrence has no column person_id") as caught:
            read_upload({"condition_occurrence.csv": bad.encode()}, tmp_path, name=name)
        assert SECRET not in str(caught.value)
    with pytest.raises(DataError, match="not recognised") as caught:
        read_upload({"x.csv": f"{SECRET},A\n".encode()}, tmp_path)
    assert SECRET not in str(caught.value)
    with pytest.raises(DataError, match="visit_occurrence_id; read it with unit=patient"):
        read_upload({"c.csv": b"person_id,condition_source_value\n1,A\n"}, tmp_path)
    by_person = read_upload({"c.csv": b"person_id,condition_source_value\n1,A\n"}, tmp_path, unit="patient")
    assert by_person.records == {"1": {"CONDITION:A"}}


@pytest.mark.parametrize("cut", [1, 8, 40])
@pytest.mark.parametrize("form", ["gzip", "zstd", "zip", "parquet"])
def test_truncated(form: str, cut: int, tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 10**9, (5_000, 2))
    text = b"record_id,code\n" + b"".join(b"%d,%d\n" % (a, b) for a, b in noise)
    make: dict[str, Callable[[], bytes]] = {
        "gzip": lambda: gzip.compress(text),
        "zstd": lambda: pa.compress(text, codec="zstd", asbytes=True),
        "zip": lambda: zipped(x_csv=text),
        "parquet": lambda: parquet(record_id=pa.array(["1"] * 99), code=pa.array(["A"] * 99)),
    }
    data = make[form]()
    assert len(read_upload({"x": data}, tmp_path, limits=ROOMY).records) > 0
    with pytest.raises(DataError, match=r"cut off|not a readable Parquet|forged"):
        read_upload({"x": data[:-cut]}, tmp_path, limits=ROOMY)


def test_mixed_encodings(tmp_path: Path) -> None:
    """A row in Latin-1 is left out if it matters, and read if only a column we do not need is wrong."""
    data = "record_id,code,note\n1,A,x\n2,Bö,x\n3,C,ü\n".encode()
    data += "4,Dö,x\n5,E,ü\n".encode("latin-1")
    result = read_upload({"x.csv": data}, tmp_path)
    assert result.records == {"1": {"A"}, "2": {"Bö"}, "3": {"C"}, "5": {"E"}}
    assert result.rejected == {"not-utf-8": {"rows": 1, "file": "x.csv", "first_lines": [5]}}
    with pytest.raises(DataError, match="UTF-16"):
        read_upload({"x.csv": "record_id,code\n1,A\n".encode("utf-16")}, tmp_path)


@pytest.mark.parametrize("data", [b"", b"record_id,code\n", gzip.compress(b"", mtime=0), b"\n", b"\xef\xbb\xbf"])
def test_an_empty_file(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(DataError):
        read_upload({"x.csv": data}, tmp_path)


def test_one_record_with_5000_codes(tmp_path: Path) -> None:
    rows = "".join(f"r,C{i:04d}\n" for i in range(5_000)) + "s,C0001\n"
    result = read_upload({"x.csv": f"record_id,code\n{rows}".encode()}, tmp_path, max_codes=5_000)
    assert {record: len(codes) for record, codes in result.records.items()} == {"r": 5_000, "s": 1}
    line = json.dumps({"record_id": "r", "codes": [f"ICD10CM:C{i:04d}" for i in range(5_000)]})
    whole = read_upload({"x.ndjson": line.encode()}, tmp_path, max_codes=5_000)
    assert {record: len(codes) for record, codes in whole.records.items()} == {"r": 5_000}
    header = "record_id," + ",".join(f"X:{i}" for i in range(5_000))
    wide = read_upload({"x.csv": f"{header}\nr{',1' * 5_000}\ns{',0' * 5_000}\n".encode()}, tmp_path, max_codes=5_000)
    assert {record: len(codes) for record, codes in wide.records.items()} == {"r": 5_000, "s": 0}


def test_lines_of_bad_rows_are_right_after_others_were_left_out(tmp_path: Path) -> None:
    data = b"record_id,code\n1,A\n1,A,too,many\n,B\n2\n3,\n4,D\x07\n5,E\n"
    rejected = read_upload({"x.csv": data}, tmp_path).rejected
    assert {reason: told["first_lines"] for reason, told in rejected.items()} == {
        "wrong-number-of-columns": [3, 5],
        "empty-record-id": [4],
        "empty-code": [6],
        "control-character-in-code": [7],
    }


def test_a_parquet_file_that_repeats_a_long_text_is_refused(tmp_path: Path) -> None:
    """A few kilobytes that would be gigabytes once written out."""
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 9_000, pa.int32()), pa.array(["x" * 900_000]))
    data = parquet(record_id=pa.array(["1"] * 9_000), code=texts.cast(pa.dictionary(pa.int32(), pa.string())))
    assert len(data) < 100_000
    with pytest.raises(TooLargeError, match="in 9,000 rows"):
        read_upload({"x.parquet": data}, tmp_path, limits=ROOMY)


# --- tables of numbers ---


def test_wide_counts_and_cells_that_are_none(tmp_path: Path) -> None:
    data = b"record_id,ICD9DX:0389,NDC:00002\n1,2,\n2,0,0\n3,x,1\n4,-1,1\n5,0.0,1e0\n"
    result = read_upload({"x.csv": data}, tmp_path)
    assert result.format["name"] == "wide"
    assert result.records == {"1": {"ICD9DX:0389"}, "2": set(), "5": {"NDC:00002"}}
    assert result.rejected["not-a-count"] == {"rows": 2, "file": "x.csv", "first_lines": [4, 5]}
    flags = {"A:1": pa.array([True, False]), "B:2": pa.array([0.0, 3.0]), "C:3": pa.array([1, 0], pa.int8())}
    table = read_upload({"x.parquet": parquet(record_id=pa.array(["r", "s"]), **flags)}, tmp_path)
    assert table.records == {"r": {"A:1", "C:3"}, "s": {"B:2"}}


def npz(**changes: np.ndarray) -> bytes:
    sink = io.BytesIO()
    arrays = {
        "indices": np.array([0, 2, 1]),
        "indptr": np.array([0, 2, 2, 3]),
        "format": np.array(b"csr"),
        "shape": np.array([3, 3]),
        "data": np.array([1, 4, 0]),
    }
    np.savez(sink, **(arrays | changes))
    return sink.getvalue()


def test_npz_with_a_vocabulary_beside_it(tmp_path: Path) -> None:
    sink = io.BytesIO()
    save_npz(sink, csr_array(np.array([[1, 0, 4], [0, 0, 0], [0, 1, 0]])))
    for vocabulary in (b"X:a\nX:b\nX:c\n", b'["X:a", "X:b", "X:c"]'):
        result = read_upload({"m.npz": sink.getvalue(), "codes.txt": vocabulary}, tmp_path)
        assert result.records == {"0": {"X:a", "X:c"}, "1": set(), "2": {"X:b"}}
    assert read_upload({"m.npz": npz(), "v": b"a\nb\nc"}, tmp_path, default_vocabulary="Z").records == {
        "0": {"Z:a", "Z:c"}, "1": set(), "2": set()
    }  # fmt: skip
    with pytest.raises(DataError, match="vocabulary has 2 codes"):
        read_upload({"m.npz": npz(), "v": b"a\nb"}, tmp_path)
    with pytest.raises(DataError, match="no vocabulary"):
        read_upload({"m.npz": npz()}, tmp_path)
    with pytest.raises(RequestError, match="no patients"):
        read_upload({"m.npz": npz(), "v": b"a\nb\nc"}, tmp_path, unit="patient")


@pytest.mark.parametrize(
    "changes",
    [
        {"indices": np.array([0, 2, 9])},
        {"indptr": np.array([0, 9, 2, 3])},
        {"format": np.array(b"csc")},
        {"data": np.array([1, -1, 1])},
        {"data": np.array([{}, 1, 1], dtype=object)},
        {"shape": np.array([10**12, 3])},
    ],
    ids=["index", "indptr", "csc", "negative", "pickle", "shape"],
)
def test_a_matrix_that_contradicts_itself_is_refused(changes: dict[str, np.ndarray], tmp_path: Path) -> None:
    with pytest.raises(DataError):
        read_upload({"m.npz": npz(**changes), "v": b"a\nb\nc"}, tmp_path)


def test_an_array_that_promises_more_than_it_holds_is_not_believed(tmp_path: Path) -> None:
    """A header of a few bytes must not allocate terabytes."""
    header = b"{'descr': '<i8', 'fortran_order': False, 'shape': (1000000000000,), }"
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    forged = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header
    sink = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(npz())) as whole, zipfile.ZipFile(sink, "w") as archive:
        for name in whole.namelist():
            archive.writestr(name, forged if name == "indices.npy" else whole.read(name))
    with pytest.raises(DataError, match="not a CSR matrix"):
        read_upload({"m.npz": sink.getvalue(), "v": b"a\nb\nc"}, tmp_path)


# --- zips ---

TABLE = b"record_id,code\n1,A\n"


def test_a_zip_may_hold_folders_and_compressed_files(tmp_path: Path) -> None:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr("data/", b"")
        archive.writestr("data/a.csv.gz", gzip.compress(TABLE))
        archive.writestr("data/b.parquet", parquet(record_id=pa.array(["2"]), code=pa.array(["B"])))
        archive.writestr("__MACOSX/data/._a.csv.gz", b"rubbish")
        archive.writestr("data/.DS_Store", b"rubbish")
    assert read_upload({"x.zip": sink.getvalue()}, tmp_path).records == {"1": {"A"}, "2": {"B"}}


@pytest.mark.parametrize("name", ["../a.csv", "/etc/a.csv", "x/../../a.csv", "..\\a.csv", "C:\\a.csv", "\\a.csv"])
def test_zip_slip(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="outside itself"):
        read_upload({"x.zip": zipped(**{name: TABLE})}, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["upload0"]


def test_links_encryption_nested_zips_and_empty_ones(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("a.csv")
    link.external_attr = 0o120777 << 16
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr(link, b"/etc/passwd")
    encrypted = bytearray(zipped(a_csv=TABLE))
    for signature, offset in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        encrypted[encrypted.index(signature) + offset] |= 1
    for data, message in (
        (sink.getvalue(), "a link"),
        (bytes(encrypted), "encrypted"),
        (zipped(inner=zipped(a_csv=TABLE)), "another zip"),
        (zipped(), "no file"),
    ):
        with pytest.raises(DataError, match=message):
            read_upload({"x.zip": data}, tmp_path)


def test_zip_bombs(tmp_path: Path) -> None:
    limits = Limits(inflated_bytes=1_000_000, rows=10**9, field_bytes=40)
    bomb = zipped(a_csv=TABLE + b"1,A\n" * 1_000_000)
    with pytest.raises(TooLargeError):
        read_upload({"x.zip": bomb}, tmp_path, limits=limits)
    # one that says it is small: only as much as it says is read, and its checksum gives it away
    forged = bytearray(bomb)
    for signature, offset in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):
        at = forged.rindex(signature) if signature == b"PK\x01\x02" else forged.index(signature)
        forged[at + offset : at + offset + 4] = struct.pack("<I", 100)
    with pytest.raises(DataError, match="damaged or its entry is forged"):
        read_upload({"x.zip": bytes(forged)}, tmp_path, limits=limits)
    # a gzip inside a zip counts by what comes out of it, and all files count together
    half = gzip.compress(TABLE + b"1,A\n" * 150_000)
    assert len(read_upload({"x.zip": zipped(a=half)}, tmp_path, limits=limits).records) == 1
    with pytest.raises(TooLargeError):
        read_upload({"x.zip": zipped(a=half, b=half)}, tmp_path, limits=limits)
    with pytest.raises(TooLargeError):
        read_upload({"x.zip": zipped(**{f"f{i}": b"x" for i in range(1_001)})}, tmp_path)


def test_a_name_that_is_there_twice(tmp_path: Path) -> None:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr("a.csv", TABLE)
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("a.csv", TABLE)
    with pytest.raises(DataError, match="twice"):
        read_upload({"x.zip": sink.getvalue()}, tmp_path)


def test_a_flipped_byte_in_a_zip(tmp_path: Path) -> None:
    data = bytearray(zipped(a_csv=TABLE + b"2,B\n" * 1000))
    data[45] ^= 0xFF
    with pytest.raises(DataError):
        read_upload({"x.zip": bytes(data)}, tmp_path)


def test_units_a_format_does_not_have(tmp_path: Path) -> None:
    data = parquet(
        subject_id=pa.array([1]), time=pa.array([None], pa.timestamp("us")), code=pa.array(["ICD10CM//E119"])
    )
    with pytest.raises(RequestError, match="by patient or history only"):
        read_upload({"0.parquet": data}, tmp_path, unit="visit", limits=LIMITS)
