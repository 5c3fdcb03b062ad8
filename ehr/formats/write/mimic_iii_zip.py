"""mimic-iii.zip: a cohort as tables of MIMIC-III. What has no table there (ICD-10, RxNorm) is left out and listed."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from ehr.codes.systems import AGE, SEX, split_code, split_decile
from ehr.formats.protocol import CodeConcepts, Writer
from ehr.formats.write import csv_tables as csv
from ehr.formats.write.cohort_rows import CohortRows, rows_of
from ehr.formats.write.dates import SYNTHETIC_DATES, birth_year, days_of
from ehr.formats.write.zips import ZipStream
from model_store.blobs import BlobStore
from model_store.files import to_json

PATIENTS = csv.names("ROW_ID SUBJECT_ID GENDER DOB DOD DOD_HOSP DOD_SSN EXPIRE_FLAG")
ADMISSIONS = csv.names(
    "ROW_ID SUBJECT_ID HADM_ID ADMITTIME DISCHTIME DEATHTIME ADMISSION_TYPE ADMISSION_LOCATION DISCHARGE_LOCATION"
    " INSURANCE LANGUAGE RELIGION MARITAL_STATUS ETHNICITY EDREGTIME EDOUTTIME DIAGNOSIS HOSPITAL_EXPIRE_FLAG"
    " HAS_CHARTEVENTS_DATA"
)
D_LABITEMS = csv.names("ROW_ID ITEMID LABEL FLUID CATEGORY LOINC_CODE")
ICD = csv.names("ROW_ID SUBJECT_ID HADM_ID SEQ_NUM ICD9_CODE")
CPT = csv.names(
    "ROW_ID SUBJECT_ID HADM_ID COSTCENTER CHARTDATE CPT_CD CPT_NUMBER CPT_SUFFIX TICKET_ID_SEQ SECTIONHEADER"
    " SUBSECTIONHEADER DESCRIPTION"
)
DRUGS = csv.names(
    "ROW_ID SUBJECT_ID HADM_ID ICUSTAY_ID STARTDATE ENDDATE DRUG_TYPE DRUG DRUG_NAME_POE DRUG_NAME_GENERIC"
    " FORMULARY_DRUG_CD GSN NDC PROD_STRENGTH DOSE_VAL_RX DOSE_UNIT_RX FORM_VAL_DISP FORM_UNIT_DISP ROUTE"
)
LABS = csv.names("ROW_ID SUBJECT_ID HADM_ID ITEMID CHARTTIME VALUE VALUENUM VALUEUOM FLAG")
# table, its systems, its columns, the column of the code, the column of the day, and what else may not be null
TABLES: tuple[tuple[str, tuple[str, ...], tuple[str, ...], str, str, dict[str, str]], ...] = (
    ("DIAGNOSES_ICD", ("ICD9DX",), ICD, "ICD9_CODE", "", {}),
    ("PROCEDURES_ICD", ("ICD9PX",), ICD, "ICD9_CODE", "", {}),
    ("CPTEVENTS", ("CPT",), CPT, "CPT_CD", "CHARTDATE", {"COSTCENTER": "ICU"}),
    ("PRESCRIPTIONS", ("NDC",), DRUGS, "NDC", "STARTDATE", {"DRUG_TYPE": "MAIN", "DRUG": "UNKNOWN"}),
    ("LABEVENTS", ("LOINC", "MIMICLAB"), LABS, "ITEMID", "CHARTTIME", {}),
)
CARRIED = {system for _, systems, *_ in TABLES for system in systems} | {SEX, AGE}
FIRST_LOINC_ITEM = 1_000_000
MIDNIGHT = " 00:00:00"


def write_mimic_iii(store: BlobStore, manifest: dict[str, Any], _: dict[str, CodeConcepts]) -> Iterator[bytes]:
    rows = CohortRows(store, manifest)
    left_out = sorted(code for code, system in zip(rows.vocabulary, rows.systems, strict=True) if system not in CARRIED)
    told = {name: value for name, value in manifest.items() if name != "parts"}
    stream = ZipStream()
    yield from stream.file("manifest.json", [to_json(told | {"dates": SYNTHETIC_DATES, "codes_left_out": left_out})])
    yield from stream.file("PATIENTS.csv", csv.table(PATIENTS, _patients(rows)))
    yield from stream.file("ADMISSIONS.csv", csv.table(ADMISSIONS, _admissions(rows)))
    yield from stream.file("D_LABITEMS.csv", csv.table(D_LABITEMS, _items(rows)))
    for table in TABLES:
        yield from stream.file(f"{table[0]}.csv", csv.table(table[2], _events(rows, table)))
    yield stream.end()


def _patients(rows: CohortRows) -> Iterator[bytes]:
    for record, people in rows.people():
        own = csv.numbers(record)
        at = np.arange(len(people))
        sexes = csv.by_code([split_code(person.sex)[1] if person.sex else "" for person in people], at)
        births = csv.by_code([f"{birth_year(person.band)}-01-01{MIDNIGHT}" for person in people], at)
        cells = {"ROW_ID": own, "SUBJECT_ID": own, "GENDER": sexes, "DOB": births, "EXPIRE_FLAG": "0"}
        yield csv.lines(PATIENTS, cells, len(record))


def _admissions(rows: CohortRows) -> Iterator[bytes]:
    unknown = ("ADMISSION_TYPE", "ADMISSION_LOCATION", "DISCHARGE_LOCATION", "INSURANCE", "ETHNICITY")
    for part in rows.manifest["parts"]:
        record = np.arange(part["first_record"], part["first_record"] + part["n_records"])
        own, day = csv.numbers(record), csv.days(days_of(record), MIDNIGHT)
        cells: dict[str, Any] = dict.fromkeys(unknown, "UNKNOWN") | {"HAS_CHARTEVENTS_DATA": "0"}
        cells |= {"ROW_ID": own, "SUBJECT_ID": own, "HADM_ID": own, "ADMITTIME": day, "DISCHTIME": day}
        yield csv.lines(ADMISSIONS, cells, len(record))


def _lab_items(rows: CohortRows) -> dict[tuple[str, str], str]:
    """(system, lab) -> ITEMID. MIMIC's own items keep their number; a LOINC code gets one above all of MIMIC's."""
    labs = [(system, split_decile(rest)[0]) for system, rest in map(split_code, rows.vocabulary)]
    loincs = sorted({lab for system, lab in labs if system == "LOINC"})
    items = {("LOINC", lab): str(FIRST_LOINC_ITEM + i) for i, lab in enumerate(loincs)}
    return items | {("MIMICLAB", lab): lab for system, lab in labs if system == "MIMICLAB"}


def _items(rows: CohortRows) -> Iterator[bytes]:
    for i, ((system, lab), item) in enumerate(sorted(_lab_items(rows).items())):
        loinc = lab if system == "LOINC" else ""
        yield csv.one_row(D_LABITEMS, {"ROW_ID": i, "ITEMID": item, "LABEL": lab, "LOINC_CODE": loinc})


def _events(
    rows: CohortRows, table: tuple[str, tuple[str, ...], tuple[str, ...], str, str, dict[str, str]]
) -> Iterator[bytes]:
    _, systems, columns, code_column, day_column, fixed = table
    belongs = np.array([system in systems for system in rows.systems], dtype=bool)
    if not belongs.any():
        return
    items = _lab_items(rows)
    parts = [(system, *split_decile(rest)) for system, rest in map(split_code, rows.vocabulary)]
    texts = [items.get((system, stem), stem) for system, stem, _ in parts]
    for block in rows.blocks():
        row, code = rows_of(block)
        mine = belongs[code]
        row, code = row[mine], code[mine]
        record = row + block.first_record
        own = csv.numbers(record)
        cells: dict[str, Any] = fixed | {
            "ROW_ID": csv.numbers(record * len(rows.vocabulary) + code),
            "SUBJECT_ID": own,
            "HADM_ID": own,
            "SEQ_NUM": csv.numbers(_rank(row)),
            code_column: csv.by_code(texts, code),
            "VALUE": csv.by_code([decile for *_, decile in parts], code),
        }
        if day_column:
            cells[day_column] = csv.days(days_of(record), MIDNIGHT)
        yield csv.lines(columns, cells, len(record))


def _rank(row: "np.ndarray[Any, np.dtype[np.int64]]") -> "np.ndarray[Any, np.dtype[np.int64]]":
    """The place of each row within its record, from 1; rows of a record stand together."""
    starts = np.flatnonzero(np.concatenate([[True], row[1:] != row[:-1]])) if len(row) else np.zeros(0, dtype=np.int64)
    sizes = np.diff(np.concatenate([starts, [len(row)]]))
    return np.arange(len(row)) - np.repeat(starts, sizes) + 1


MIMIC_III_ZIP = Writer(
    "mimic-iii.zip",
    "application/zip",
    "mimic-iii.zip",
    write_mimic_iii,
    "codes other than ICD9DX, ICD9PX, CPT, NDC, LOINC, MIMICLAB, SEX and AGE (manifest.json lists them); records"
    " without codes are admissions without rows; dates are synthesised",
)
