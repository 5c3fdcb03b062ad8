"""fhir.ndjson: a Patient and an Encounter for each record, then a resource for each of its codes. FHIR R4. In histories
a Patient has an Encounter for each visit.

Every resource carries the tag HTEST: it is test health data, nobody's.
"""

import json
from collections.abc import Iterator
from typing import Any

from ehr.codes.systems import VISIT, Domain, split_code, split_decile, without_decile
from ehr.formats.cdm import SourceCdm
from ehr.formats.fhir_codes import CODE, URI, coding_of
from ehr.formats.known_concepts import ENCOUNTER_CLASSES
from ehr.formats.write.dates import birth_year
from ehr.formats.write.lab_values import LabValues, as_texts
from ehr.formats.write.omop_rows import CodeRows
from ehr.formats.write.people import People, Person
from ehr.formats.write.protocol import Block, CohortSource, Writer
from ehr.formats.write.stays import Stays
from ehr.labs import LabUnit

TERMINOLOGY = "http://terminology.hl7.org/CodeSystem/"
TAG = {"system": f"{TERMINOLOGY}v3-ActReason", "code": "HTEST", "display": "test health data"}
META = {"tag": [TAG]}
SEXES = {"F": "female", "M": "male"}
RECORDS_AT_A_TIME = 512
# What stands for the record's number and day, a lab's number and the patient's until they are known: no text has half
# of a surrogate pair.
RECORD, DAY, NUMBER, WHO = "\ud800", "\ud801", "\ud802", "\ud803"


def write_fhir(cohort: CohortSource) -> Iterator[bytes]:
    """Each code's resource becomes text once; a record fills in its number and day."""
    people, labs, source = People(cohort), LabValues(cohort), cohort.cdm() or SourceCdm()
    domains = CodeRows(cohort, source).domains
    units = [unit if known else None for unit, known in zip(labs.units, labs.has_number.tolist(), strict=True)]
    names = [cohort.name_of(without_decile(code)) for code in cohort.vocabulary]
    resources = [
        _template(_resource(code, i, domains[i], units[i], names[i])) for i, code in enumerate(cohort.vocabulary)
    ]
    stays = Stays(cohort, source, people)
    encounters = [_template(_encounter(visit.concept, cohort)) for _, visit in stays.kinds]
    for block in cohort.blocks():
        numbers = as_texts(labs.of(block)).to_pylist()
        yield from _records(people, block, numbers, resources, [encounters[kind] for kind in stays.of(block).tolist()])


def _records(
    people: People, block: Block, numbers: list[str | None], resources: list[str], encounters: list[str]
) -> Iterator[bytes]:
    persons, said_by_person = people.of(block), people.said_by_person(block).tolist()
    first, records = block.first_record, block.records
    days, whose, firsts = block.dates().astype(str).tolist(), block.people().tolist(), set(block.firsts().tolist())
    year = people.cohort.first_year
    bounds, codes = records.indptr.tolist(), records.indices.tolist()
    for begin in range(0, len(records), RECORDS_AT_A_TIME):
        lines: list[str] = []
        for i in range(begin, min(begin + RECORDS_AT_A_TIME, len(records))):
            own = range(bounds[i], bounds[i + 1])
            events = (_filled(resources[codes[at]], numbers[at]) for at in own if not said_by_person[at])
            texts = [_template(_patient(persons[i], year)) if i in firsts else "", encounters[i], *events]
            text = "".join(texts).replace(RECORD, str(first + i))
            lines.append(text.replace(WHO, str(whose[i])).replace(DAY, days[i]))
        yield "".join(lines).encode()


def _template(resource: dict[str, Any]) -> str:
    return json.dumps(resource, ensure_ascii=False, separators=(",", ":")) + "\n"


def _filled(template: str, number: str | None) -> str:
    return template if number is None else template.replace(f'"{NUMBER}"', number)


def _patient(person: Person, year: int) -> dict[str, Any]:
    resource: dict[str, Any] = {"resourceType": "Patient", "id": f"record-{WHO}", "meta": META}
    sex = None if person.sex is None else SEXES.get(split_code(person.sex)[1])
    if sex is not None:
        resource["gender"] = sex
    if person.band is not None:
        resource["birthDate"] = DAY if person.is_newborn else f"{birth_year(person.age, year):04d}"
    return resource


SUBJECT = {"reference": f"Patient/record-{WHO}"}
ENCOUNTER: dict[str, Any] = {
    "resourceType": "Encounter",
    "id": f"visit-{RECORD}",
    "meta": META,
    "status": "finished",
    "subject": SUBJECT,
    "period": {"start": DAY, "end": DAY},
}


def _encounter(concept: int, cohort: CohortSource) -> dict[str, Any]:
    """An encounter must have a class, if only one that says it is not known. The concept stands beside it where records
    have it as a code."""
    code = ENCOUNTER_CLASSES.get(concept)
    values = "v3-ActCode" if code is not None else "v3-NullFlavor"
    resource = ENCOUNTER | {"class": {"system": f"{TERMINOLOGY}{values}", "code": code or "UNK"}}
    if (own := f"{VISIT}:{concept}") in cohort.vocabulary:
        name = cohort.name_of(own)
        resource["type"] = [{"coding": [coding_of(own) | ({} if name is None else {"display": name})]}]
    return resource


def _resource(code: str, position: int, kind: Domain, unit: LabUnit | None, name: str | None) -> dict[str, Any]:
    """What a code says, as the resource of its domain. `unit`: of its number; None where it has none."""
    decile = split_decile(code)[1]
    concept = {"coding": [coding_of(without_decile(code)) | ({} if name is None else {"display": name})]}
    common = {
        "id": f"record-{RECORD}-code-{position}",
        "meta": META,
        "subject": SUBJECT,
        "encounter": {"reference": f"Encounter/visit-{RECORD}"},
    }
    kind = "observation" if decile else kind
    if kind == "condition":
        status = {"coding": [{"system": f"{TERMINOLOGY}condition-clinical", "code": "active"}]}
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
