"""fhir.ndjson: a Patient and an Encounter for each record, then a resource for each of its codes. FHIR R4.

Every resource carries the tag HTEST: it is test health data, nobody's.
"""

import json
from collections.abc import Iterator
from typing import Any

from ehr.codes.systems import domain_of, split_code, split_lab, without_decile
from ehr.formats.fhir_codes import CODE, URI, coding_of
from ehr.formats.write.dates import birth_year, days_of
from ehr.formats.write.lab_values import LabValues, as_texts
from ehr.formats.write.people import People, Person
from ehr.formats.write.protocol import Block, CohortSource, Writer
from ehr.labs import LabUnit

TAG = {"system": "http://terminology.hl7.org/CodeSystem/v3-ActReason", "code": "HTEST", "display": "test health data"}
META = {"tag": [TAG]}
SEXES = {"F": "female", "M": "male"}
RECORDS_AT_A_TIME = 512
# What stands for the record's number and day, and for a lab's number, until they are known: no text has half of a
# surrogate pair.
RECORD, DAY, NUMBER = "\ud800", "\ud801", "\ud802"


def write_fhir(cohort: CohortSource) -> Iterator[bytes]:
    """Each code's resource becomes text once; a record fills in its number and day."""
    people, labs = People(cohort), LabValues(cohort)
    units = [unit if known else None for unit, known in zip(labs.units, labs.has_number.tolist(), strict=True)]
    names = [cohort.name_of(without_decile(code)) for code in cohort.vocabulary]
    resources = [_template(_resource(code, i, units[i], names[i])) for i, code in enumerate(cohort.vocabulary)]
    encounter = _template(ENCOUNTER)
    for block in cohort.blocks():
        numbers = as_texts(labs.of(block)).to_pylist()
        yield from _records(people, block, numbers, resources, encounter)


def _records(
    people: People, block: Block, numbers: list[str | None], resources: list[str], encounter: str
) -> Iterator[bytes]:
    persons, said_by_person = people.of(block), people.said_by_person(block).tolist()
    first, records = block
    days = days_of(block.numbers()).astype(str).tolist()
    bounds, codes = records.indptr.tolist(), records.indices.tolist()
    for begin in range(0, len(records), RECORDS_AT_A_TIME):
        lines: list[str] = []
        for i in range(begin, min(begin + RECORDS_AT_A_TIME, len(records))):
            own = range(bounds[i], bounds[i + 1])
            events = (_filled(resources[codes[at]], numbers[at]) for at in own if not said_by_person[at])
            texts = [_template(_patient(persons[i])), encounter, *events]
            lines.append("".join(texts).replace(RECORD, str(first + i)).replace(DAY, days[i]))
        yield "".join(lines).encode()


def _template(resource: dict[str, Any]) -> str:
    return json.dumps(resource, ensure_ascii=False, separators=(",", ":")) + "\n"


def _filled(template: str, number: str | None) -> str:
    return template if number is None else template.replace(f'"{NUMBER}"', number)


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


def _resource(code: str, position: int, unit: LabUnit | None, name: str | None) -> dict[str, Any]:
    """What a code says, as the resource of its domain. `unit`: of its number; None where it has none."""
    system, _, decile = split_lab(code)
    concept = {"coding": [coding_of(without_decile(code)) | ({} if name is None else {"display": name})]}
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
    value = {"valueQuantity": _quantity(unit)} if unit is not None else {"valueString": decile} if decile else {}
    state = {"status": "final", "code": concept, "effectiveDateTime": DAY}
    return {"resourceType": "Observation", **common, **state, **value}


def _quantity(unit: LabUnit) -> dict[str, str]:
    quantity = {"value": NUMBER} | ({"unit": unit.text} if unit.text else {})
    if CODE.fullmatch(unit.code) and URI.fullmatch(unit.system):
        quantity |= {"system": unit.system, "code": unit.code}
    return quantity


FHIR_NDJSON = Writer(
    "fhir.ndjson",
    "application/fhir+ndjson",
    "fhir.ndjson",
    write_fhir,
    "dates are synthesised; a lab's decile whose numbers are not known is a valueString",
)
