"""Every reader on the real files, against what DuckDB makes of them by itself."""

from collections.abc import Iterable
from pathlib import Path

import duckdb
import pytest

from tests.formats.reading import DATA, ROOMY, Result, read_upload

pytestmark = pytest.mark.skipif(not DATA.exists(), reason="the shared data is not on this machine")

UNITS = ("visit", "patient")


def real(name: str, **options: object) -> Result:
    return read_upload(sorted((DATA / name).iterdir()), limits=ROOMY, **options)


def computed(parts: Iterable[str]) -> dict[str, set[str]]:
    """Records by id, of queries that give (record, code)."""
    records: dict[str, set[str]] = {}
    for record, code in duckdb.sql(" union all ".join(parts)).fetchall():
        records.setdefault(record, set()).add(code)
    return records


def number(query: str) -> int:
    found: int = duckdb.sql(query).fetchall()[0][0]
    return found


def table(path: Path) -> str:
    return f"read_csv('{path}', all_varchar=true, header=true)"


def assert_same(result: Result, wanted: dict[str, set[str]], rows: int) -> None:
    assert result.records == wanted
    assert result.encoded.counted.usable + result.encoded.counted.rejected == rows
    pairs = sum(len(codes) for codes in wanted.values())
    assert int(result.encoded.records.indptr[-1]) == pairs


@pytest.mark.parametrize("unit", UNITS)
def test_mimic_iii(unit: str) -> None:
    result = real("mimic-iii", unit=unit, demographics=False)
    assert result.format["name"] == "mimic-iii" and result.format["ignored"] == ["LICENSE.txt"]
    who = "HADM_ID" if unit == "visit" else "SUBJECT_ID"
    sources = {"DIAGNOSES_ICD": ("ICD9_CODE", "ICD9DX"), "PROCEDURES_ICD": ("ICD9_CODE", "ICD9PX"),
               "CPTEVENTS": ("CPT_CD", "CPT"), "PRESCRIPTIONS": ("NDC", "NDC")}  # fmt: skip
    tables = {name: table(DATA / "mimic-iii" / f"{name}.csv") for name in sources}
    wanted = computed(
        f"select {who}, '{system}:' || trim({column}) from {tables[name]} where trim({column}) not in ('', '0')"
        for name, (column, system) in sources.items()
    )
    rows = sum(number(f"select count(*) from {source}") for source in tables.values())
    assert_same(result, wanted, rows)
    assert {"ICD9DX:03819", "ICD9DX:E8791", "ICD9DX:V090", "ICD9PX:0331"} <= set(result.encoded.vocabulary.codes)
    no_ndc = number(f"select count(*) from {tables['PRESCRIPTIONS']} where NDC = '0'")
    assert result.rejected["no-ndc"]["rows"] == no_ndc


def test_mimic_iii_sex_is_known_and_age_is_not_guessed() -> None:
    """Its dates have years of two digits: which century is a guess, and so would be an age."""
    result = real("mimic-iii")
    patients = duckdb.sql(f"select SUBJECT_ID, GENDER from {table(DATA / 'mimic-iii' / 'PATIENTS.csv')}").fetchall()
    sex = dict(patients)
    owner = dict(
        duckdb.sql(f"select HADM_ID, SUBJECT_ID from {table(DATA / 'mimic-iii' / 'ADMISSIONS.csv')}").fetchall()
    )
    for record, codes in result.records.items():
        assert {code for code in codes if code.startswith("SEX:")} == {f"SEX:{sex[owner[record]]}"}
        assert not any(code.startswith("AGE:") for code in codes)


@pytest.mark.parametrize("unit", UNITS)
def test_mimic_iii_cut_to_three_digits_as_in_the_paper(unit: str) -> None:
    result = real("mimic-iii", unit=unit, demographics=False, rollup="icd3")
    who = "HADM_ID" if unit == "visit" else "SUBJECT_ID"
    cut = "case when ICD9_CODE like 'E%' then left(ICD9_CODE, 4) else left(ICD9_CODE, 3) end"
    wanted = computed(
        [
            f"select {who}, 'ICD9DX:' || {cut} from {table(DATA / 'mimic-iii' / 'DIAGNOSES_ICD.csv')}",
            f"select {who}, 'ICD9PX:' || left(ICD9_CODE, 2) from {table(DATA / 'mimic-iii' / 'PROCEDURES_ICD.csv')}",
        ]
    )
    found = {r: {c for c in codes if c.startswith("ICD9")} for r, codes in result.records.items()}
    assert {record: codes for record, codes in found.items() if codes} == wanted


OMOP = {"condition_occurrence": "condition", "procedure_occurrence": "procedure", "drug_exposure": "drug"}


# what the concept table does not know: by the block of ids that ICD-9 has in OMOP, and by shapes no other code has
SHAPES = {
    "condition": "case when cast(t.condition_source_concept_id as bigint) between 44819000 and 44838000"
    " then 'ICD9DX' else 'ICD10CM' end",
    "procedure": "case when trim(t.procedure_source_value) similar to '[0-9]{5}' then 'CPT'"
    " when length(trim(t.procedure_source_value)) = 5 then 'HCPCS' else 'ICD10PCS' end",
    "drug": "case when trim(t.drug_source_value) similar to '[0-9]{11}' then 'NDC' else 'DRUG' end",
}


def omop_query(name: str, prefix: str, who: str) -> str:
    concept = table(DATA / "omop" / "concept.csv")
    system = f"coalesce(v.vocabulary_id, {SHAPES[prefix]})"
    return (
        f"select t.{who}, {system} || ':' || trim(t.{prefix}_source_value)"
        f" from {table(DATA / 'omop' / f'{name}.csv')} t"
        f" left join {concept} v on v.concept_id = t.{prefix}_source_concept_id and v.concept_id != '0'"
    )


@pytest.mark.parametrize("unit", UNITS)
def test_omop_by_source_value(unit: str) -> None:
    """Ids are 64-bit and negative, source values are padded, and most source concepts are not in the concept table."""
    result = real("omop", unit=unit, demographics=False)
    who = "visit_occurrence_id" if unit == "visit" else "person_id"
    wanted = computed(omop_query(name, prefix, who) for name, prefix in OMOP.items())
    rows = sum(number(f"select count(*) from {table(DATA / 'omop' / f'{name}.csv')}") for name in OMOP)
    assert_same(result, wanted, rows)
    assert min(map(int, result.records)) < -(2**62) and max(map(int, result.records)) > 2**62
    assert {"ICD9DX:78791", "ICD9DX:25000", "ICD10CM:E1122"} <= set(result.encoded.vocabulary.codes)
    assert result.encoded.n_patients == 100


def test_omop_by_concept() -> None:
    result = real("omop", codes_from="concept", demographics=False)
    concept = table(DATA / "omop" / "concept.csv")
    wanted = computed(
        f"select t.visit_occurrence_id, case when v.concept_id is null then 'OMOP:' || t.{prefix}_concept_id"
        f" else v.vocabulary_id || ':' || trim(v.concept_code) end from {table(DATA / 'omop' / f'{name}.csv')} t"
        f" left join {concept} v on v.concept_id = t.{prefix}_concept_id where t.{prefix}_concept_id != '0'"
        for name, prefix in OMOP.items()
    )
    assert result.records == wanted
    zero = number(f"select count(*) from {table(DATA / 'omop' / 'drug_exposure.csv')} where drug_concept_id = '0'")
    assert result.rejected["no-concept"]["rows"] == zero == 546


def test_omop_people() -> None:
    result = real("omop")
    visits, people = (table(DATA / "omop" / f"{name}.csv") for name in ("visit_occurrence", "person"))
    known = {
        visit: (f"SEX:{sex}", age)
        for visit, sex, age in duckdb.sql(
            f"select visit_occurrence_id, gender_source_value, year(cast(visit_start_date as date)) -"
            f" cast(year_of_birth as int) from {visits} join {people} using (person_id)"
        ).fetchall()
    }
    for record, codes in result.records.items():
        sex, age = known[record]
        band = "AGE:90+" if age >= 90 else f"AGE:{age // 10 * 10}-{age // 10 * 10 + 9}"
        assert {code for code in codes if code.startswith(("SEX:", "AGE:"))} == {sex, band}


@pytest.mark.parametrize("unit", UNITS)
def test_cms_claims(unit: str) -> None:
    """Four claims have two segments: they are one record."""
    result = real("cms-claims", unit=unit)
    who = "CLM_ID" if unit == "visit" else "DESYNPUF_ID"
    duckdb.sql(f"create or replace temp table claims as from {table(DATA / 'cms-claims' / 'inpatient_claims.csv.gz')}")
    columns = [(f"ICD9_DGNS_CD_{i}", "ICD9DX") for i in range(1, 11)]
    columns += [(f"ICD9_PRCDR_CD_{i}", "ICD9PX") for i in range(1, 7)]
    columns += [(f"HCPCS_CD_{i}", "HCPCS") for i in range(1, 46)]
    parts = [f"select {who}, '{s}:' || trim({c}) from claims where trim({c}) != ''" for c, s in columns]
    rows = number(f"select count(*) from ({' union all '.join(parts)})")
    assert_same(result, computed(parts), rows)


@pytest.mark.parametrize("unit", UNITS)
def test_synthea(unit: str) -> None:
    result = real("synthea", unit=unit, demographics=False)
    conditions, medications = (table(DATA / "synthea" / f"{n}.csv.gz") for n in ("conditions", "medications"))
    first, second = ("ENCOUNTER", "med_enc_id") if unit == "visit" else ("PATIENT", "med_pat_id")
    wanted = computed(
        [
            f"select {first}, 'SNOMED:' || CODE from {conditions}",
            f"select {second}, 'RXNORM:' || med_code from {medications}",
        ]
    )
    assert_same(result, wanted, 24_065 + 22_411)


def test_synthea_people() -> None:
    """By patient, at their first row; three have no day of birth, and some rows lie before theirs."""
    result = real("synthea", unit="patient")
    tables = {name: table(DATA / "synthea" / f"{name}.csv.gz") for name in ("conditions", "medications", "patients")}
    rows = duckdb.sql(
        f"with seen as (select PATIENT p, START d from {tables['conditions']}"
        f" union all select med_pat_id, med_start_date from {tables['medications']})"
        f" select pat_id, gender, date_sub('year', try_cast(birth_date as date), min(cast(d as date))),"
        f" min(cast(d as date)) < try_cast(birth_date as date) from {tables['patients']} join seen on p = pat_id"
        f" group by pat_id, gender, birth_date"
    ).fetchall()
    found = {r: {c for c in codes if c.startswith(("SEX:", "AGE:"))} for r, codes in result.records.items()}
    for patient, sex, age, before_birth in rows:
        known = age is not None and not before_birth
        band = "AGE:90+" if known and age >= 90 else f"AGE:{age // 10 * 10}-{age // 10 * 10 + 9}" if known else None
        assert found[patient] == {f"SEX:{sex}", band} - {None}, (sex, age)
