"""mimic-iii.zip: a cohort as tables of MIMIC-III. What has no table there (ICD-10, RxNorm) is left out and listed.

A concept (of SNOMED, say) that an OMOP upload had coded in ICD-9, CPT or NDC is written as that. Names, if wanted,
stand where MIMIC-III has them: in its dictionaries of ICD codes and labs, and beside drugs and CPT codes.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ehr.canonical_json import to_json
from ehr.codes.systems import BANDS, SEXES, split_code, split_lab
from ehr.formats.cdm import SourceCdm
from ehr.formats.write import csv_tables as csv
from ehr.formats.write.dates import birth_year
from ehr.formats.write.lab_values import LabValues, as_texts
from ehr.formats.write.omop_rows import CodeRow, CodeRows, numbered_blocks
from ehr.formats.write.people import People
from ehr.formats.write.protocol import Block, CohortSource, Ints, Writer
from ehr.formats.write.zips import ZipStream

PATIENTS = csv.names("ROW_ID SUBJECT_ID GENDER DOB DOD DOD_HOSP DOD_SSN EXPIRE_FLAG")
ADMISSIONS = csv.names(
    "ROW_ID SUBJECT_ID HADM_ID ADMITTIME DISCHTIME DEATHTIME ADMISSION_TYPE ADMISSION_LOCATION DISCHARGE_LOCATION"
    " INSURANCE LANGUAGE RELIGION MARITAL_STATUS ETHNICITY EDREGTIME EDOUTTIME DIAGNOSIS HOSPITAL_EXPIRE_FLAG"
    " HAS_CHARTEVENTS_DATA"
)
D_LABITEMS = csv.names("ROW_ID ITEMID LABEL FLUID CATEGORY LOINC_CODE")
D_ICD = csv.names("ROW_ID ICD9_CODE SHORT_TITLE LONG_TITLE")
DICTIONARIES = {"D_ICD_DIAGNOSES": "ICD9DX", "D_ICD_PROCEDURES": "ICD9PX"}
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
CARRIED = {system for table in TABLES for system in table.systems}
FIRST_LOINC_ITEM = 1_000_000
MIDNIGHT = " 00:00:00"
SHORT_TITLE = 24  # characters, as CMS cuts them


def write_mimic_iii(cohort: CohortSource) -> Iterator[bytes]:
    codes = CodeRows(cohort, cohort.cdm() or SourceCdm())
    carried = {cohort.vocabulary[row.code] for row in codes.all if _event(cohort, row) is not None}
    left_out = sorted(set(cohort.vocabulary) - carried - {*SEXES, *BANDS})
    stream = ZipStream()
    manifest = {**cohort.manifest, "dates": cohort.about_dates, "codes_left_out": left_out}
    yield from stream.file("manifest.json", [to_json(manifest)])
    yield from stream.file("PATIENTS.csv", csv.table(PATIENTS, _patients(cohort)))
    yield from stream.file("ADMISSIONS.csv", csv.table(ADMISSIONS, _admissions(cohort)))
    yield from stream.file("D_LABITEMS.csv", csv.table(D_LABITEMS, _items(codes)))
    for name, system in DICTIONARIES.items() if cohort.with_names else ():
        yield from stream.file(f"{name}.csv", csv.table(D_ICD, _dictionary(codes, system)))
    for table in TABLES:
        yield from stream.file(f"{table.name}.csv", csv.table(table.columns, _events(codes, table)))
    yield stream.end()


def _event(cohort: CohortSource, row: CodeRow) -> tuple[str, str] | None:
    """(system, code) that a row of a CDM is here; None if MIMIC-III has no table for it. A code that has one is itself,
    once; any other is what it was coded as."""
    own = split_lab(cohort.vocabulary[row.code])[:2]
    if own[0] in CARRIED:
        return own if row.nth == 0 else None
    source = split_lab(row.source_code)[:2]
    return source if source[0] in CARRIED else None


def _patients(cohort: CohortSource) -> Iterator[bytes]:
    for block, record, people in People(cohort).all():
        own = csv.numbers(record)
        at = np.arange(len(people))
        sexes = csv.by_code([split_code(person.sex)[1] if person.sex else "" for person in people], at)
        days = block.dates()[block.firsts()].astype(str).tolist()
        dates = [
            day if person.is_newborn else f"{birth_year(person.age, cohort.first_year)}-01-01"
            for person, day in zip(people, days, strict=True)
        ]
        births = csv.by_code([f"{date}{MIDNIGHT}" for date in dates], at)
        cells = {"ROW_ID": own, "SUBJECT_ID": own, "GENDER": sexes, "DOB": births, "EXPIRE_FLAG": "0"}
        yield csv.lines(PATIENTS, cells, len(record))


def _admissions(cohort: CohortSource) -> Iterator[bytes]:
    unknown = ("ADMISSION_TYPE", "ADMISSION_LOCATION", "DISCHARGE_LOCATION", "INSURANCE", "ETHNICITY")
    for block in cohort.blocks():
        own, whose, day = csv.numbers(block.numbers()), csv.numbers(block.people()), csv.days(block.dates(), MIDNIGHT)
        cells: dict[str, Any] = dict.fromkeys(unknown, "UNKNOWN") | {"HAS_CHARTEVENTS_DATA": "0"}
        cells |= {"ROW_ID": own, "SUBJECT_ID": whose, "HADM_ID": own, "ADMITTIME": day, "DISCHTIME": day}
        yield csv.lines(ADMISSIONS, cells, len(block.records))


def _lab_items(codes: CodeRows) -> dict[tuple[str, str], str]:
    """(system, lab) -> ITEMID. MIMIC's own items keep their number; a LOINC code gets one above all of MIMIC's."""
    events = {event for row in codes.all if (event := _event(codes.cohort, row)) is not None}
    loincs = sorted(lab for system, lab in events if system == "LOINC")
    items = {("LOINC", lab): str(FIRST_LOINC_ITEM + i) for i, lab in enumerate(loincs)}
    return items | {("MIMICLAB", lab): lab for system, lab in events if system == "MIMICLAB"}


def _items(codes: CodeRows) -> Iterator[bytes]:
    for i, ((system, lab), item) in enumerate(sorted(_lab_items(codes).items())):
        loinc = lab if system == "LOINC" else ""
        label = _name(codes.cohort, system, lab) or lab
        yield csv.one_row(D_LABITEMS, {"ROW_ID": i, "ITEMID": item, "LABEL": label, "LOINC_CODE": loinc})


def _dictionary(codes: CodeRows, system: str) -> Iterator[bytes]:
    """Every code of a system that the tables have, with its name."""
    found = dict.fromkeys(event for row in codes.all if (event := _event(codes.cohort, row)) is not None)
    for i, (_, code) in enumerate(event for event in found if event[0] == system):
        name = _name(codes.cohort, system, code) or ""
        titles = {"SHORT_TITLE": name[:SHORT_TITLE].rstrip(), "LONG_TITLE": name}
        yield csv.one_row(D_ICD, {"ROW_ID": i, "ICD9_CODE": code, **titles})


def _name(cohort: CohortSource, system: str, code: str) -> str | None:
    return cohort.name_of(f"{system}:{code}") if cohort.with_names else None


def _events(codes: CodeRows, table: Table) -> Iterator[bytes]:
    items, cohort = _lab_items(codes), codes.cohort
    events = [_event(cohort, row) or ("", "") for row in codes.all]
    texts = [items.get(event, event[1]) for event in events]
    belongs = np.array([system in table.systems for system, _ in events], dtype=bool)
    named: dict[str, list[str]] = {
        column: [_name(cohort, *event) or table.fixed.get(column, "") for event in events]
        for column in ("DRUG", "DESCRIPTION")
        if cohort.with_names and column in table.columns
    }
    nth = np.array([row.nth for row in codes.all], dtype=np.int64)
    labs = LabValues(cohort)
    n_events = cohort.count_codes() if belongs.any() else 0
    for first, block in numbered_blocks(cohort) if belongs.any() else ():
        row, _ = block.rows()
        event, which = codes.of(block)
        mine = belongs[which]
        event, which = event[mine], which[mine]
        record = row[event]
        cells: dict[str, Any] = table.fixed | {
            "ROW_ID": csv.numbers(first + event + nth[which] * n_events),
            "SUBJECT_ID": csv.numbers(block.people()[record]),
            "HADM_ID": csv.numbers(record + block.first_record),
            "SEQ_NUM": csv.numbers(_rank(row[event])),
            table.code: csv.by_code(texts, which),
            **(_measured(labs, block, event) if table.columns is LABS else {}),
            **{column: csv.by_code(names, which) for column, names in named.items()},
        }
        if table.day:
            cells[table.day] = csv.days(block.dates()[record], MIDNIGHT)
        yield csv.lines(table.columns, cells, len(record))


def _measured(labs: LabValues, block: Block, event: Ints) -> dict[str, pa.StringArray]:
    numbers, code = as_texts(labs.of(block)[event]), block.rows()[1][event]
    return {
        "VALUENUM": pc.fill_null(numbers, ""),
        "VALUE": pc.coalesce(numbers, csv.by_code(labs.deciles, code)),
        "VALUEUOM": csv.by_code([unit.text for unit in labs.units], code),
    }


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
    "codes other than ICD9DX, ICD9PX, CPT, NDC, LOINC, MIMICLAB, SEX and AGE (manifest.json lists them), unless an OMOP"
    " upload had them coded in one of these; records without codes are admissions without rows; dates are synthesised",
)
