"""mimic-iii.zip: a cohort as tables of MIMIC-III. What has no table there (ICD-10, RxNorm) is left out and listed."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ehr.canonical_json import to_json
from ehr.codes.systems import AGE, SEX, split_code, split_lab
from ehr.formats.write import csv_tables as csv
from ehr.formats.write.dates import SYNTHETIC_DATES, birth_year, days_of
from ehr.formats.write.people import People
from ehr.formats.write.protocol import CohortSource, Ints, Writer
from ehr.formats.write.zips import ZipStream

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


class Table(NamedTuple):
    """A table of events: the systems it carries, the columns of the code and the day, and what else may not be null."""

    name: str
    systems: tuple[str, ...]
    columns: tuple[str, ...]
    code: str
    day: str
    fixed: dict[str, str]


TABLES = (
    Table("DIAGNOSES_ICD", ("ICD9DX",), ICD, "ICD9_CODE", "", {}),
    Table("PROCEDURES_ICD", ("ICD9PX",), ICD, "ICD9_CODE", "", {}),
    Table("CPTEVENTS", ("CPT",), CPT, "CPT_CD", "CHARTDATE", {"COSTCENTER": "ICU"}),
    Table("PRESCRIPTIONS", ("NDC",), DRUGS, "NDC", "STARTDATE", {"DRUG_TYPE": "MAIN", "DRUG": "UNKNOWN"}),
    Table("LABEVENTS", ("LOINC", "MIMICLAB"), LABS, "ITEMID", "CHARTTIME", {}),
)
CARRIED = {system for table in TABLES for system in table.systems} | {SEX, AGE}
FIRST_LOINC_ITEM = 1_000_000
MIDNIGHT = " 00:00:00"


def write_mimic_iii(cohort: CohortSource) -> Iterator[bytes]:
    left_out = sorted(code for code in cohort.vocabulary if split_code(code)[0] not in CARRIED)
    stream = ZipStream()
    manifest = {**cohort.manifest, "dates": SYNTHETIC_DATES, "codes_left_out": left_out}
    yield from stream.file("manifest.json", [to_json(manifest)])
    yield from stream.file("PATIENTS.csv", csv.table(PATIENTS, _patients(cohort)))
    yield from stream.file("ADMISSIONS.csv", csv.table(ADMISSIONS, _admissions(cohort)))
    yield from stream.file("D_LABITEMS.csv", csv.table(D_LABITEMS, _items(cohort)))
    for table in TABLES:
        yield from stream.file(f"{table.name}.csv", csv.table(table.columns, _events(cohort, table)))
    yield stream.end()


def _patients(cohort: CohortSource) -> Iterator[bytes]:
    for record, people in People(cohort).all():
        own = csv.numbers(record)
        at = np.arange(len(people))
        sexes = csv.by_code([split_code(person.sex)[1] if person.sex else "" for person in people], at)
        births = csv.by_code([f"{birth_year(person.band)}-01-01{MIDNIGHT}" for person in people], at)
        cells = {"ROW_ID": own, "SUBJECT_ID": own, "GENDER": sexes, "DOB": births, "EXPIRE_FLAG": "0"}
        yield csv.lines(PATIENTS, cells, len(record))


def _admissions(cohort: CohortSource) -> Iterator[bytes]:
    unknown = ("ADMISSION_TYPE", "ADMISSION_LOCATION", "DISCHARGE_LOCATION", "INSURANCE", "ETHNICITY")
    for record in cohort.numbers():
        own, day = csv.numbers(record), csv.days(days_of(record), MIDNIGHT)
        cells: dict[str, Any] = dict.fromkeys(unknown, "UNKNOWN") | {"HAS_CHARTEVENTS_DATA": "0"}
        cells |= {"ROW_ID": own, "SUBJECT_ID": own, "HADM_ID": own, "ADMITTIME": day, "DISCHTIME": day}
        yield csv.lines(ADMISSIONS, cells, len(record))


def _lab_items(cohort: CohortSource) -> dict[tuple[str, str], str]:
    """(system, lab) -> ITEMID. MIMIC's own items keep their number; a LOINC code gets one above all of MIMIC's."""
    labs = [split_lab(code) for code in cohort.vocabulary]
    loincs = sorted({lab for system, lab, _ in labs if system == "LOINC"})
    items = {("LOINC", lab): str(FIRST_LOINC_ITEM + i) for i, lab in enumerate(loincs)}
    return items | {("MIMICLAB", lab): lab for system, lab, _ in labs if system == "MIMICLAB"}


def _items(cohort: CohortSource) -> Iterator[bytes]:
    for i, ((system, lab), item) in enumerate(sorted(_lab_items(cohort).items())):
        loinc = lab if system == "LOINC" else ""
        yield csv.one_row(D_LABITEMS, {"ROW_ID": i, "ITEMID": item, "LABEL": lab, "LOINC_CODE": loinc})


def _events(cohort: CohortSource, table: Table) -> Iterator[bytes]:
    items = _lab_items(cohort)
    parts = [split_lab(code) for code in cohort.vocabulary]
    texts = [items.get((system, stem), stem) for system, stem, _ in parts]
    belongs = np.array([system in table.systems for system, *_ in parts], dtype=bool)
    for block in cohort.blocks() if belongs.any() else ():
        row, code = block.rows()
        mine = belongs[code]
        row, code = row[mine], code[mine]
        record = row + block.first_record
        own = csv.numbers(record)
        cells: dict[str, Any] = table.fixed | {
            "ROW_ID": csv.numbers(record * len(cohort.vocabulary) + code),
            "SUBJECT_ID": own,
            "HADM_ID": own,
            "SEQ_NUM": csv.numbers(_rank(row)),
            table.code: csv.by_code(texts, code),
            "VALUE": csv.by_code([decile for *_, decile in parts], code),
        }
        if table.day:
            cells[table.day] = csv.days(days_of(record), MIDNIGHT)
        yield csv.lines(table.columns, cells, len(record))


def _rank(row: Ints) -> Ints:
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
