"""Every resource of fhir.ndjson is valid R4, whatever the codes are, and is read back as the code it was made of."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks._fhir_check import faults, invalid
from ehr.formats import writer_named
from ehr.formats.fhir_codes import SOURCE_CODE
from ehr.formats.write.protocol import Block, CohortSource
from ehr.records import Records
from tests.formats.reading import DATA, ROOMY, read_upload
from worker.ingestion.numbering import Numbering

NASTY = (
    "CONDITION:Sepsis  NOS",
    "CONDITION:Sepsis NOS",
    "CONDITION:two\u00a0\u00a0hard blanks",
    "WARD 3  EAST:bed  4",
    "WARD:%20",
    "W%41RD:x",
    "no system",
    ":nothing before",
    "NOTHING:",
    "ICD10CM:e11.9",
    "ICD10CM:E11 .9",
    "ICD9DX:",
    "LOINC:2345-7  x#D10",
    "LOINC:2345-7#D11",
    "LOINC:2345-7#D²",
    "AGE:elderly",
    "AGE:65+",
    "SEX:U",
    "http://loinc.org:x",
    r"BACK:\u0000 \ud800 \n",
    'QUOTE:"; {"a": [1]}',
    "ÜÑÍ:糖尿病 \U0001f489\u200b",
    "LONG:" + "x" * 240,
    "=1+1",
)
texts = st.text(
    st.sampled_from("aZ09 .:/%#D\"\\\u00a0\u2003\u2028é糖\U0001f489\u200b\x7f{}'&<>"), min_size=1, max_size=20
)
codes = st.one_of(
    texts, st.tuples(st.sampled_from(("ICD10CM", "ICDX", "LOINC", "SNOMED", "", "A B")), texts).map(":".join)
)


def written(vocabulary: tuple[str, ...], records: list[list[int]]) -> bytes:
    rows = Records.from_sets(records, len(vocabulary))
    source = CohortSource(vocabulary, len(rows), lambda: iter([Block(0, rows)]), lambda: len(rows.indices))
    return b"".join(writer_named("fhir.ndjson").write(source))


@settings(max_examples=60, deadline=None)
@example(NASTY)
@given(st.lists(codes, min_size=1, max_size=12))
def test_any_code_is_valid_and_comes_back(names: tuple[str, ...]) -> None:
    known = Numbering(256)
    for name in names:
        known.number(name)
    vocabulary = tuple(sorted(known.number_of))
    records = [[i] for i in range(len(vocabulary))] + [[*range(len(vocabulary))]]
    data = written(vocabulary, records)
    assert faults(data.splitlines()) == {}
    with tempfile.TemporaryDirectory() as folder:
        if not vocabulary:
            return
        result = read_upload({"c.ndjson": data}, Path(folder), limits=ROOMY)
    wanted = {f"visit-{i}": {vocabulary[code] for code in codes} for i, codes in enumerate(records)}
    about_people = {"SEX:F", "SEX:M"}
    assert result.rejected == {}
    assert result.records == {visit: codes for visit, codes in wanted.items() if codes - about_people}


def test_a_code_that_fhir_cannot_say_is_written_as_near_as_can_be() -> None:
    line = written(("CONDITION:Sepsis  NOS",), [[0]]).splitlines()[-1]
    (coding,) = json.loads(line)["code"]["coding"]
    assert coding["code"] == "Sepsis NOS"
    assert coding["extension"] == [{"url": SOURCE_CODE, "valueString": "CONDITION:Sepsis  NOS"}]


GOOD = {
    "resourceType": "Observation",
    "id": "o",
    "status": "final",
    "code": {"coding": [{"system": "http://loinc.org", "code": "2345-7"}]},
    "valueQuantity": {"value": 5.4, "unit": "mg/dL"},
}


@pytest.mark.parametrize(
    "change",
    [
        {"id": "x" * 65},
        {"id": "a_b"},
        {"status": "done"},
        {"unknown": 1},
        {"subject": {"reference": "Patient/nobody"}},
        {"subject": None},
        {"note": []},
        {"effectiveDateTime": "2020-1-1"},
        {"valueQuantity": {"value": "5.4"}},
        {"valueQuantity": {"value": 5.4, "code": "mg"}},
        {"valueString": "two values"},
        {"code": {"coding": [{"system": "http://loinc.org", "code": "a  b"}]}},
        {"code": {"coding": [{"system": "urn:a b", "code": "a"}]}},
        {"code": {"coding": [{"system": "", "code": "a"}]}},
        {"code": {}},
        {"resourceType": "Nothing"},
    ],
    ids=str,
)
def test_the_check_finds_what_is_wrong(change: dict[str, object]) -> None:
    assert invalid([json.dumps(GOOD).encode()]) == 0
    assert invalid([json.dumps(GOOD | change).encode()]) == 1


def test_the_check_finds_lines_that_are_no_resources_and_ids_that_are_there_twice() -> None:
    line = json.dumps(GOOD).encode()
    assert invalid([line, line, b"{", b"[]", b"", line.replace(b"5.4", b"NaN").replace(b'"o"', b'"p"')]) == 4


@pytest.mark.skipif(not DATA.exists(), reason="the shared data is not on this machine")
@pytest.mark.parametrize(("name", "records"), [("omop", 100), ("mimic-iii", 50), ("synthea", 500)])
def test_real_files_come_out_valid_and_as_they_were(name: str, records: int, tmp_path: Path) -> None:
    """OMOP's source values have inner blanks, two and more in a row."""
    result = read_upload(sorted((DATA / name).iterdir()), limits=ROOMY)
    vocabulary = result.encoded.vocabulary.codes
    position = {code: i for i, code in enumerate(vocabulary)}
    rows = [sorted(position[code] for code in codes) for codes in list(result.records.values())[:records]]
    data = written(vocabulary, rows)
    assert invalid(data.splitlines()) == 0
    back = read_upload({"c.ndjson": data}, tmp_path, limits=ROOMY)
    assert back.records == {f"visit-{i}": {vocabulary[code] for code in row} for i, row in enumerate(rows)}
