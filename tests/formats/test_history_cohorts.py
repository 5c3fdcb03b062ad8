"""Histories at rest and in every form that can carry them: what is written is read back as the same histories."""

import csv
import hashlib
import io
import json
import sqlite3
import zipfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from ehr.formats import WRITERS, writer_named
from ehr.formats.write.protocol import CohortSource
from ehr.histories import Histories
from ehr.records import Records, indptr_of
from ehr.vocabulary import Vocabulary
from model_store.blobs import FileStore
from model_store.cohorts import cohort_manifest, cohort_source, load_history_part, pack_history_part
from model_store.manifests import CohortPart, SourceModel
from tests.formats.reading import Result, read_upload

CODES = (
    *("AGE:0-9", "AGE:60-69", "SEX:F", "SEX:M", "VISIT:9201", "VISIT:9202"),
    *("ICD10CM:E119", "ICD10CM:N183", "ICD9DX:25000", "LOINC:2345-7#D3", "NDC:00006494300", "RXNORM:6809"),
)
STATIC, KINDS, CLINICAL = slice(0, 4), slice(4, 6), slice(6, 12)
MIMIC = (8, 9, 10)  # codes that MIMIC-III has tables for
ORIGIN = "1999-07-01"
# how each form is read back: file name, reader
READ_BACK = {
    "long.csv": ("cohort.csv", "long"),
    "wide.csv": ("cohort.csv", "wide"),
    "ndjson": ("cohort.ndjson", "long"),
    "parquet": ("cohort.parquet", "long"),
    "omop.zip": ("cohort.omop.zip", "omop"),
    "fhir.ndjson": ("cohort.fhir.ndjson", "fhir"),
    "meds.parquet": ("cohort.meds.parquet", "meds"),
    "mimic-iii.zip": ("cohort.mimic-iii.zip", "mimic-iii"),
}


def drawn(n: int, seed: int = 0, clinical: tuple[int, ...] = tuple(range(6, 12)), kinds: bool = True) -> Histories:
    """Patients with a sex and an age, of one to six visits with a kind and some codes, most of them."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 7, n)
    offsets = indptr_of(counts)
    visits = [
        {
            *((int(rng.choice([4, 5])),) if kinds else ()),
            *rng.choice(clinical, rng.integers(0 if kinds else 1, 4)).tolist(),
        }
        for _ in range(offsets[-1])
    ]
    gaps = rng.integers(1, 400, offsets[-1])
    gaps[offsets[:-1]] = 0
    static = [{int(rng.choice([0, 1])), int(rng.choice([2, 3]))} for _ in range(n)]
    records = Records.from_sets(visits, len(CODES)), Records.from_sets(static, len(CODES))
    return Histories(records[0], offsets, gaps.astype(np.int32), records[1])


def stored(folder: Path, parts: list[Histories], seed: int = 0) -> CohortSource:
    store = FileStore(f"file://{folder}")
    told, first = [], 0
    for number, histories in enumerate(parts):
        data = pack_history_part(first, histories, Vocabulary(CODES))
        blob = f"cohorts/p{number}.parquet"
        store.write(blob, data)
        sha256, n = hashlib.sha256(data).hexdigest(), len(histories)
        told.append(CohortPart(number=number, blob=blob, sha256=sha256, first_record=first, n_records=n))
        first += len(histories)
    manifest = cohort_manifest(SourceModel(id="m"), {"seed": seed}, Vocabulary(CODES), told, origin=ORIGIN)
    return cohort_source(store, manifest)


def told(histories: Histories, codes: tuple[str, ...]) -> list[tuple[set[str], list[tuple[int, set[str]]]]]:
    """(static codes, (gap, codes) of each visit) of each patient."""

    def sets(records: Records) -> list[set[str]]:
        return [{codes[i] for i in own} for own in np.split(records.indices, records.indptr[1:-1])]

    visits = list(zip(histories.gaps.tolist(), sets(histories.visits), strict=True))
    of_patients = [visits[a:b] for a, b in zip(histories.offsets[:-1], histories.offsets[1:], strict=True)]
    return list(zip(sets(histories.static), of_patients, strict=True))


def read_back(name: str, data: bytes, folder: Path) -> Result:
    label, reader = READ_BACK[name]
    return read_upload({label: data}, folder, name=reader, unit="history")


def test_every_form_that_has_time_is_read_back() -> None:
    assert {writer.name for writer in WRITERS if writer.has_time} == READ_BACK.keys() | {"arrow", "feather"}


@pytest.mark.parametrize("name", READ_BACK)
def test_histories_come_back_as_they_were(tmp_path: Path, name: str) -> None:
    mimic = name == "mimic-iii.zip"
    histories = drawn(30, clinical=MIMIC if mimic else tuple(range(6, 12)), kinds=not mimic)
    parts = [histories.take(np.arange(a, b)) for a, b in ((0, 7), (7, 29), (29, 30))]
    data = b"".join(writer_named(name).write(stored(tmp_path, parts)))
    result = read_back(name, data, tmp_path)
    assert result.encoded.histories is not None
    # patients are numbered as they come: in the order of their ids
    assert told(result.encoded.histories, result.encoded.vocabulary.codes) == told(histories, CODES)
    assert {rule: n for rule, n in result.encoded.summary["history_rules"].items() if n} == {"most_visits": 500}


def test_a_part_is_what_was_packed_whatever_it_holds(tmp_path: Path) -> None:
    """Visits without codes and patients without static codes are there; parts do not change what a file is."""
    nobody = Records.from_sets([[], [0]], len(CODES))
    sparse = Histories(
        Records.from_sets([[], [6], []], len(CODES)), np.array([0, 2, 3]), np.array([0, 9, 0], np.int32), nobody
    )
    source = stored(tmp_path / "one", [sparse])
    block = next(source.blocks())
    assert block.people().tolist() == [0, 0, 1] and block.dates().astype(str).tolist()[1] == "1999-07-10"
    store = FileStore(f"file://{tmp_path / 'one'}")
    data = store.read("cohorts/p0.parquet")
    part = CohortPart(
        number=0, blob="cohorts/p0.parquet", sha256=hashlib.sha256(data).hexdigest(), first_record=0, n_records=2
    )
    loaded = load_history_part(store, part, CODES)
    assert told(loaded, CODES) == told(sparse, CODES) and np.array_equal(loaded.offsets, sparse.offsets)
    whole = drawn(2500, seed=1)
    cut = [whole.take(np.arange(a, b)) for a, b in ((0, 900), (900, 2500))]
    for name in ("ndjson", "meds.parquet"):
        one, two = (b"".join(writer_named(name).write(stored(tmp_path / f"{name}{len(p)}", p))) for p in ([whole], cut))
        assert one == two, name


def test_an_omop_cohort_is_asked_for_kidney_disease_after_diabetes(tmp_path: Path) -> None:
    histories = drawn(60, seed=2)
    data = b"".join(writer_named("omop.zip").write(stored(tmp_path, [histories])))
    database = sqlite3.connect(":memory:")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for table in ("person", "visit_occurrence", "condition_occurrence", "observation_period"):
            rows = list(csv.reader(io.StringIO(archive.read(f"{table}.csv").decode())))
            database.execute(f"create table {table} ({', '.join(rows[0])})")
            database.executemany(f"insert into {table} values ({', '.join('?' * len(rows[0]))})", rows[1:])
        assert ORIGIN in json.loads(archive.read("manifest.json"))["dates"]
    first = "select min(condition_start_date) from condition_occurrence c where c.person_id = p.person_id"
    query = f"""select count(*) from person p where ({first} and c.condition_source_value = 'E119')
        < (select max(condition_start_date) from condition_occurrence c
           where c.person_id = p.person_id and c.condition_source_value = 'N183')"""
    a, b = CODES.index("ICD10CM:E119"), CODES.index("ICD10CM:N183")
    wanted = 0
    for i in range(len(histories)):
        visits = histories.take([i]).visits
        if len(had := visits.having(a)) and len(later := visits.having(b)):
            wanted += int(had.min() < later.max())
    assert 0 < wanted < 60
    assert database.execute(query).fetchone() == (wanted,)
    spans = "select count(*) from visit_occurrence v join observation_period o on o.person_id = v.person_id"
    inside = f"{spans} where visit_start_date between observation_period_start_date and observation_period_end_date"
    assert database.execute(inside).fetchone() == (len(histories.visits),)


def test_a_meds_shard_is_sorted_by_subject_and_time(tmp_path: Path) -> None:
    data = b"".join(writer_named("meds.parquet").write(stored(tmp_path, [drawn(40)])))
    rows = pq.read_table(io.BytesIO(data)).to_pylist()
    keys = [(row["subject_id"], row["time"] is not None, str(row["time"] or "")) for row in rows]
    assert keys == sorted(keys)
    assert {row["code"] for row in rows if row["time"] is None} == {"GENDER//F", "GENDER//M"}
