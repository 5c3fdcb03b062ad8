"""fhir.ndjson: a Patient and an Encounter for each record, then a resource for each of its codes. FHIR R4.

Every resource carries the tag HTEST: it is test health data, nobody's.
"""

import json
from collections.abc import Iterator
from typing import Any

from ehr.codes.icd import dotted_icd
from ehr.codes.systems import BY_NAME, LOCAL_URL, domain_of, split_code, split_lab
from ehr.formats.write.dates import birth_year, days_of
from ehr.formats.write.people import People, Person
from ehr.formats.write.protocol import Block, CohortSource, Writer

TAG = {"system": "http://terminology.hl7.org/CodeSystem/v3-ActReason", "code": "HTEST", "display": "test health data"}
META = {"tag": [TAG]}
SEXES = {"F": "female", "M": "male"}
RECORDS_AT_A_TIME = 512
# What stands for the record's number and day until they are known; neither can be part of JSON text.
RECORD, DAY = "\x00", "\x01"


def write_fhir(cohort: CohortSource) -> Iterator[bytes]:
    """Each code's resource becomes text once; a record fills in its number and day."""
    people = People(cohort)
    resources = [_template(_resource(code, i)) for i, code in enumerate(cohort.vocabulary)]
    encounter = _template(ENCOUNTER)
    for block in cohort.blocks():
        yield from _records(people, block, resources, encounter)


def _records(people: People, block: Block, resources: list[str], encounter: str) -> Iterator[bytes]:
    persons, said_by_person = people.of(block), people.said_by_person(block).tolist()
    first, records = block
    days = days_of(block.numbers()).astype(str).tolist()
    bounds, codes = records.indptr.tolist(), records.indices.tolist()
    for begin in range(0, len(records), RECORDS_AT_A_TIME):
        lines: list[str] = []
        for i in range(begin, min(begin + RECORDS_AT_A_TIME, len(records))):
            own = range(bounds[i], bounds[i + 1])
            events = (resources[codes[at]] for at in own if not said_by_person[at])
            texts = [_template(_patient(persons[i])), encounter, *events]
            lines.append("".join(texts).replace(RECORD, str(first + i)).replace(DAY, days[i]))
        yield "".join(lines).encode()


def _template(resource: dict[str, Any]) -> str:
    text = json.dumps(resource, ensure_ascii=False, separators=(",", ":"))
    return text.replace("\\u0000", RECORD).replace("\\u0001", DAY) + "\n"


def _patient(person: Person) -> dict[str, Any]:
    resource: dict[str, Any] = {"resourceType": "Patient", "id": f"record-{RECORD}", "meta": META}
    sex = None if person.sex is None else SEXES.get(split_code(person.sex)[1])
    if sex is not None:
        resource["gender"] = sex
    if person.band is not None:
        resource["birthDate"] = f"{birth_year(person.band):04d}"
    return resource


SUBJECT = {"reference": f"Patient/record-{RECORD}"}
ENCOUNTER = {
    "resourceType": "Encounter",
    "id": f"visit-{RECORD}",
    "meta": META,
    "status": "finished",
    "class": {"system": "http://terminology.hl7.org/CodeSystem/v3-ActCode", "code": "IMP"},
    "subject": SUBJECT,
    "period": {"start": DAY, "end": DAY},
}


def _resource(code: str, position: int) -> dict[str, Any]:
    """What a code says, as the resource of its domain."""
    system, stem, decile = split_lab(code)
    url = BY_NAME[system].fhir if system in BY_NAME else f"{LOCAL_URL}{system}"
    concept = {"coding": [{"system": url, "code": dotted_icd(system, stem)}]}
    kind = "observation" if decile else domain_of(system)
    common = {
        "id": f"record-{RECORD}-code-{position}",
        "meta": META,
        "subject": SUBJECT,
        "encounter": {"reference": f"Encounter/visit-{RECORD}"},
    }
    if kind == "condition":
        status = {"coding": [{"system": "http://terminology.hl7.org/CodeSystem/condition-clinical", "code": "active"}]}
        return {"resourceType": "Condition", **common, "clinicalStatus": status, "code": concept, "onsetDateTime": DAY}
    if kind == "procedure":
        return {"resourceType": "Procedure", **common, "status": "completed", "code": concept, "performedDateTime": DAY}
    if kind == "drug":
        order = {"status": "active", "intent": "order", "medicationCodeableConcept": concept, "authoredOn": DAY}
        return {"resourceType": "MedicationRequest", **common, **order}
    value = {"valueString": decile} if decile else {}
    state = {"status": "final", "code": concept, "effectiveDateTime": DAY}
    return {"resourceType": "Observation", **common, **state, **value}


FHIR_NDJSON = Writer(
    "fhir.ndjson",
    "application/fhir+ndjson",
    "fhir.ndjson",
    write_fhir,
    "values of labs, of which the decile is a valueString; dates are synthesised",
)
