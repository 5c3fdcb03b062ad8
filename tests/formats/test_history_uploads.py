"""Uploads as histories: nine formats say the same of the same patients, and rules for bad dates are counted."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ehr.errors import DataError, RequestError
from tests.formats.reading import Result, read_upload
from tests.formats.test_readers import table

# the same two patients in every format: p has two visits 30 days apart and is seen again after 10 more, q has one
VISITS = (("p", "v1", "2020-01-05"), ("p", "v3", "2020-02-14"), ("p", "v2", "2020-02-04"), ("q", "v4", "2020-03-01"))
CODES = {"v1": "E119", "v2": "N183", "v3": "N183", "v4": "I10"}
EXPECTED = [[(0, {"E119"}), (30, {"N183"}), (10, {"N183"})], [(0, {"I10"})]]


def shown_histories(result: Result) -> list[list[tuple[int, set[str]]]]:
    """(gap, bare codes) of each visit of each patient."""
    histories = result.encoded.histories
    assert histories is not None
    names = [code.split(":")[-1] for code in result.encoded.vocabulary.codes]
    visits = [{names[i] for i in codes} for codes in np.split(histories.visits.indices, histories.visits.indptr[1:-1])]
    told = list(zip(histories.gaps.tolist(), visits, strict=True))
    return [told[a:b] for a, b in zip(histories.offsets[:-1], histories.offsets[1:], strict=True)]


def long() -> dict[str, bytes]:
    rows = [{"patient_id": p, "date": day, "vocabulary": "ICD10CM", "code": CODES[v]} for p, v, day in VISITS]
    return {"long.csv": table(rows)}


def ndjson() -> dict[str, bytes]:
    lines = [{"patient_id": p, "date": day, "codes": [f"ICD10CM:{CODES[v]}"]} for p, v, day in VISITS]
    return {"x.ndjson": "\n".join(map(json.dumps, lines)).encode()}


def wide() -> dict[str, bytes]:
    names = sorted(set(CODES.values()))
    rows = [
        {"patient_id": p, "date": day} | {f"ICD10CM:{name}": int(CODES[v] == name) for name in names}
        for p, v, day in VISITS
    ]
    return {"wide.csv": table(rows)}


def mimic_iii() -> dict[str, bytes]:
    who: list[dict[str, Any]] = [{"row_id": i, "subject_id": p, "hadm_id": v} for i, (p, v, _) in enumerate(VISITS)]
    days = [day for _, _, day in VISITS]
    return {
        "DIAGNOSES_ICD.csv": table([each | {"icd9_code": CODES[each["hadm_id"]]} for each in who]),
        "ADMISSIONS.csv": table([each | {"admittime": f"{d} 10:00:00"} for each, d in zip(who, days, strict=True)]),
    }


def mimic_iv() -> dict[str, bytes]:
    who = [{"subject_id": p, "hadm_id": v} for p, v, _ in VISITS]
    days = [day for _, _, day in VISITS]
    dx = [each | {"seq_num": 1, "icd_code": CODES[each["hadm_id"]], "icd_version": "10"} for each in who]
    admissions = [each | {"admittime": f"{day} 10:00:00"} for each, day in zip(who, days, strict=True)]
    return {"diagnoses_icd.csv": table(dx), "admissions.csv": table(admissions)}


def omop() -> dict[str, bytes]:
    visits = [
        {"visit_occurrence_id": i, "person_id": p, "visit_concept_id": 9202, "visit_start_date": day}
        for i, (p, _, day) in enumerate(VISITS)
    ]
    # the last condition is in no visit: its day is its visit
    conditions = [
        {"person_id": p, "visit_occurrence_id": i if v != "v4" else "", "condition_start_date": day}
        | {"condition_source_value": CODES[v], "condition_concept_id": 0}
        for i, (p, v, day) in enumerate(VISITS)
    ]
    return {"visit_occurrence.csv": table(visits[:-1]), "condition_occurrence.csv": table(conditions)}


def cms_claims() -> dict[str, bytes]:
    rows = [
        {"DESYNPUF_ID": p, "CLM_ID": v, "CLM_FROM_DT": day.replace("-", ""), "ICD_DGNS_CD1": CODES[v]}
        for p, v, day in VISITS
    ]
    return {"claims.csv": table(rows)}


def synthea() -> dict[str, bytes]:
    return {
        "conditions.csv": table(
            [{"START": day, "PATIENT": p, "ENCOUNTER": v, "CODE": CODES[v], "DESCRIPTION": ""} for p, v, day in VISITS]
        )
    }


def fhir() -> dict[str, bytes]:
    icd = "http://hl7.org/fhir/sid/icd-10-cm"
    lines: list[dict[str, Any]] = []
    for p, v, day in VISITS:
        subject = {"subject": {"reference": f"Patient/{p}"}}
        lines.append({"resourceType": "Encounter", "id": v, "period": {"start": day}} | subject)
        coded = {"code": {"coding": [{"system": icd, "code": CODES[v]}]}, "encounter": {"reference": f"Encounter/{v}"}}
        # an onset lies before the visit at which it is written down
        lines.append({"resourceType": "Condition", "onsetDateTime": "2011-01-01"} | coded | subject)
    return {"x.ndjson": "\n".join(map(json.dumps, lines)).encode()}


def meds() -> dict[str, bytes]:
    times = pa.array([f"{day}T10:00:00" for _, _, day in VISITS]).cast(pa.timestamp("us"))
    codes = [f"ICD10CM//{CODES[v]}" for _, v, _ in VISITS]
    sink = io.BytesIO()
    people = pa.array([{"p": 1, "q": 2}[p] for p, _, _ in VISITS], pa.int64())
    pq.write_table(pa.table({"subject_id": people, "time": times, "code": codes}), sink)
    return {"data.parquet": sink.getvalue()}


UPLOADS = (long, ndjson, wide, mimic_iii, mimic_iv, omop, cms_claims, synthea, fhir, meds)


@pytest.mark.parametrize("upload", UPLOADS)
def test_every_format_has_histories(tmp_path: Path, upload: Callable[[], dict[str, bytes]]) -> None:
    result = read_upload(upload(), tmp_path, unit="history", demographics=False)
    assert shown_histories(result) == EXPECTED
    assert result.format["unit"] == "history" and result.encoded.n_patients == 2


# --- what is true of patients ---


def dated(*rows: str, header: str = "patient_id,date,code") -> dict[str, bytes]:
    return {"x.csv": "\n".join([header, *rows, ""]).encode()}


def test_sex_and_age_at_the_first_visit_belong_to_the_patient(tmp_path: Path) -> None:
    rows = "p,2021-06-01,A,F,1950", "p,2009-03-01,B,F,1950", "q,2009-03-01,A,,"
    upload = dated(*rows, header="patient_id,date,code,sex,birth_year")
    result = read_upload(upload, tmp_path, unit="history")
    histories, codes = result.encoded.histories, result.encoded.vocabulary.codes
    assert histories is not None
    assert [codes[i] for i in histories.static.indices] == ["AGE:50-59", "SEX:F"]
    assert {codes[i] for i in histories.visits.indices} == {"A", "B"}
    # the same as codes of the rows
    own = "p,2021-06-01,AGE:70-79", "p,2009-03-01,AGE:50-59", "p,2009-03-01,SEX:F", "p,2009-03-02,A"
    result = read_upload(dated(*own), tmp_path, unit="history")
    histories = result.encoded.histories
    assert histories is not None and len(histories.visits) == 3
    assert [result.encoded.vocabulary.codes[i] for i in histories.static.indices] == ["AGE:50-59", "SEX:F"]


def test_years_of_birth_are_codes_of_patients_if_asked_for(tmp_path: Path) -> None:
    rows = "p,2009-03-01,A,1950", "p,2021-06-01,A,1950", "q,2009-03-01,A,1961", "r,2009-03-01,A,", "s,2009-03-01,A,1700"
    upload = dated(*rows, header="patient_id,date,code,birth_year")
    for asked, wanted in ((False, []), (True, ["BIRTH:1950-1959", "BIRTH:1960-1969"])):
        encoded = read_upload(upload, tmp_path, unit="history", birth_years=asked).encoded
        assert encoded.histories is not None
        found = [encoded.vocabulary.codes[i] for i in encoded.histories.static.indices]
        assert [code for code in found if code.startswith("BIRTH:")] == wanted
    assert encoded.vocabulary.name_of("BIRTH:1950-1959") == "Born 1950 to 1959"
    # as codes of rows they are the patient's too, whatever is asked for
    encoded = read_upload(dated("p,2020-01-01,BIRTH:1950-1959", "p,2020-01-02,A"), tmp_path, unit="history").encoded
    assert encoded.histories is not None and len(encoded.histories.static.indices) == 1
    assert len(encoded.histories.visits.indices) == 1


def test_a_visit_has_one_kind_and_a_stay_is_the_strongest(tmp_path: Path) -> None:
    kinds = ["p,2020-01-01,VISIT:9202", "p,2020-01-01,VISIT:9201", "p,2020-02-01,VISIT:9203", "p,2020-02-01,A"]
    assert shown_histories(read_upload(dated(*kinds), tmp_path, unit="history")) == [
        [(0, {"9201"}), (31, {"9203", "A"})]
    ]


# --- bad dates ---


def rules(result: Result) -> dict[str, int | None]:
    counted: dict[str, int | None] = result.encoded.summary["history_rules"]
    return {rule: count for rule, count in counted.items() if count != 0 and rule != "most_visits"}


def test_visits_out_of_order_are_put_in_order_and_counted(tmp_path: Path) -> None:
    rows = [f"p{i},2020-0{month}-01,A" for i in range(12) for month in (2, 1, 3)]
    result = read_upload(dated(*rows), tmp_path, unit="history")
    assert shown_histories(result) == [[(0, {"A"}), (31, {"A"}), (29, {"A"})]] * 12
    assert rules(result) == {"visits_out_of_order": 12}


def test_visits_of_one_day_are_one(tmp_path: Path) -> None:
    rows = [f"p{i},{visit}{i},2020-01-01,{code}" for i in range(12) for visit, code in (("a", "A"), ("b", "B"))]
    result = read_upload(dated(*rows, header="patient_id,record_id,date,code"), tmp_path, unit="history")
    assert shown_histories(result) == [[(0, {"A", "B"})]] * 12
    assert rules(result) == {"visits_on_one_day": 12}


def test_visits_without_a_date_are_left_out(tmp_path: Path) -> None:
    header, own = "patient_id,record_id,date,code", [f"p{i},v{i},2020-01-01,A" for i in range(12)]
    rows = [*own, *(f"p{i},w{i},10/23/64,B" for i in range(11)), "q,x,,B"]
    result = read_upload(dated(*rows, header=header), tmp_path, unit="history")
    assert shown_histories(result) == [[(0, {"A"})]] * 12
    assert rules(result) == {"visits_without_date": 12, "patients_left_out": None}  # one patient is not counted aloud
    # without visits of their own such rows are in none
    result = read_upload(dated("p,2020-01-01,A", "p,,B"), tmp_path, unit="history")
    assert result.rejected["empty-visit-id-or-date"]["first_lines"] == [3]
    with pytest.raises(DataError, match="none has a patient and a date"):
        read_upload(dated("p,v,yesterday,A", header=header), tmp_path, unit="history")
    with pytest.raises(DataError, match="no column date; its first line must name the columns patient_id, date, code"):
        read_upload({"x.csv": b"patient_id,record_id,code\np,1,A\n"}, tmp_path, unit="history")
    with pytest.raises(DataError, match=r"empty-visit-id-or-date .2 rows"):
        read_upload(dated("p,32/13/2020,A", "p,,A"), tmp_path, unit="history")


def test_dates_that_stand_for_none_are_none(tmp_path: Path) -> None:
    days = ("1900-01-01", "2299-12-31", "1899-12-31", "2300-01-01", "9999-12-31")
    rows = [f"p{i},p{i}{day},{day},A" for i in range(12) for day in days]
    result = read_upload(dated(*rows, header="patient_id,record_id,date,code"), tmp_path, unit="history")
    assert shown_histories(result) == [[(0, {"A"}), (146_096, {"A"})]] * 12
    assert rules(result) == {"visits_without_date": 36}


def test_a_matrix_has_no_histories(tmp_path: Path) -> None:
    matrix = io.BytesIO()
    np.savez(matrix, data=np.ones(1), indices=np.zeros(1, int), indptr=np.array([0, 1]), shape=(1, 1), format="csr")
    with pytest.raises(RequestError, match="a matrix names no patients"):
        read_upload({"x.npz": matrix.getvalue(), "codes.txt": b"A\n"}, tmp_path, unit="history")


def test_visits_after_death_are_left_out(tmp_path: Path) -> None:
    rows = [f"p{i},{day},A,2020-06-01" for i in range(12) for day in ("2020-05-01", "2020-06-01", "2020-06-02")]
    result = read_upload(dated(*rows, header="patient_id,date,code,death_date"), tmp_path, unit="history")
    assert shown_histories(result) == [[(0, {"A"}), (31, {"A"})]] * 12
    assert rules(result) == {"visits_after_death": 12}


def test_a_history_has_a_longest_length(tmp_path: Path) -> None:
    start = np.datetime64("2000-01-01")
    rows = [f"p,{start + i},A" for i in range(5000)] + ["q,2020-01-01,A"]
    result = read_upload(dated(*rows), tmp_path, unit="history", max_visits=300)
    histories = result.encoded.histories
    assert histories is not None and histories.visit_counts().tolist() == [300, 1]
    assert rules(result) == {"visits_beyond_the_most": 4700, "patients_with_more": None}


def test_codes_are_counted_by_patients(tmp_path: Path) -> None:
    """One patient's code at many visits is one patient's."""
    rows = [*(f"p,2020-01-{day:02d},RARE" for day in range(1, 29)), *(f"p{i},2020-01-01,A" for i in range(11))]
    result = read_upload(dated(*rows), tmp_path, unit="history", min_records=11)
    assert result.encoded.vocabulary.codes == ("A",)
    assert result.encoded.histories is not None and len(result.encoded.histories.visits) == 39


def test_no_patient_is_on_two_sides(tmp_path: Path) -> None:
    rows = [f"p{i},2020-01-{day:02d},A" for i in range(40) for day in (1, 2, 3)]
    encoded = read_upload(dated(*rows), tmp_path, unit="history").encoded
    assert [len(set(encoded.position[encoded.patients == p].tolist())) for p in range(40)] == [1] * 40
