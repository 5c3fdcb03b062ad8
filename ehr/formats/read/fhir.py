"""fhir: NDJSON or Bundles of R4 Patient, Encounter, Condition, Procedure, MedicationRequest and Observation.

One record per encounter or per patient. Of several codings the first of a known system counts. Numeric observations are
labs. Resources that were entered in error or refuted are no facts.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ehr.codes.systems import BY_FHIR, DECILE, DECILES, LOCAL_URL, VISIT, Domain, domain_of, split_code
from ehr.errors import DataError
from ehr.formats.cdm import EVENT_TABLES, Row
from ehr.formats.fhir_codes import code_of
from ehr.formats.fhir_codes import text_of as _text
from ehr.formats.read.columns import as_days, visit_ids
from ehr.formats.read.json_lines import Numbered, first_object, read_objects
from ehr.formats.read.protocol import Batch, Events, Patients, Reader, Visits
from ehr.formats.read.rejects import Rejects
from ehr.formats.read.sources import SourceFile
from ehr.labs import UCUM, LabUnit

CODED = ("Condition", "Procedure", "MedicationRequest", "Observation")
# kind of resource -> the domain of its code; an Observation is a measurement if it has a number
DOMAINS: dict[str, Domain] = {
    "Condition": "condition",
    "Procedure": "procedure",
    "MedicationRequest": "drug",
    "Observation": "observation",
}
TABLES = {domain: number for number, domain in enumerate(EVENT_TABLES.values())}
NO_FACTS = {"entered-in-error", "refuted", "not-done"}
Resource = dict[str, Any]


class FhirReader(Reader):
    name = "fhir"

    @classmethod
    def tables_in(cls, files: Sequence[SourceFile]) -> dict[int, str]:
        kinds = {i: first_object(file).get("resourceType") for i, file in enumerate(files) if file.kind == "json"}
        return {i: str(kind)[:40] for i, kind in kinds.items() if kind is not None}

    def batches(self, rejects: Rejects) -> Iterator[Batch]:
        files = [file for file in self.files if file.kind == "json"]
        if not files:
            raise DataError(self.explain())
        self.ways = [Row(table) for table in EVENT_TABLES]
        for file in files:
            for numbered in read_objects(file, rejects):
                yield from self._of_resources(file.label, _unbundled(numbered), rejects)

    def _of_resources(self, file: str, resources: Numbered, rejects: Rejects) -> Iterator[Batch]:
        by_type: dict[str, Numbered] = {}
        for line, resource in resources:
            by_type.setdefault(str(resource.get("resourceType")), []).append((line, resource))
        if self.options.demographics:
            yield from _patients(file, by_type.get("Patient", []))
        if self.options.demographics or self.over_time:
            yield from self._visits(file, by_type.get("Encounter", []))
        coded = [found for kind in CODED for found in by_type.get(kind, [])]
        yield from self._events(file, coded, rejects)

    def _visits(self, file: str, encounters: Numbered) -> Iterator[Batch]:
        if encounters:
            patient = [_reference(resource.get("subject")) for _, resource in encounters]
            own = [_text(resource.get("id")) for _, resource in encounters]
            starts = [_text(_dict(resource.get("period")).get("start")) for _, resource in encounters]
            record = _texts(own if self.by == "visit" else patient)
            concept = _texts([_visit_concept(resource) for _, resource in encounters]) if self.by == "visit" else None
            day = as_days(_texts(starts))
            yield Visits(file, _lines(encounters), record, _texts(patient), day, concept=concept)

    def _events(self, file: str, coded: Numbered, rejects: Rejects) -> Iterator[Batch]:
        wrong = [line for line, resource in coded if _is_no_fact(resource)]
        rejects.add("not-a-fact", wrong, file)
        facts = [(line, resource) for line, resource in coded if not _is_no_fact(resource)]
        if not facts:
            return
        codings = [_coding_of(resource) for _, resource in facts]
        codes = [_code_of(resource, coding) for (_, resource), coding in zip(facts, codings, strict=True)]
        names = _texts([_text(coding.get("display")) for coding in codings])
        patient = _texts([_reference(resource.get("subject")) for _, resource in facts])
        visit = _texts([_reference(resource.get("encounter")) for _, resource in facts])
        values = pa.array([_value_of(resource) for _, resource in facts], pa.float64())
        days = as_days(_texts([_day_of(resource) for _, resource in facts])) if self.unit != "visit" else None
        record = visit if self.by == "visit" else patient
        if self.over_time:
            record = visit_ids(patient, days, visit)
        units = _texts([self._unit_of(resource) for _, resource in facts])
        way = np.array([_table_of(resource, code) for (_, resource), code in zip(facts, codes, strict=True)])
        more = {"value_unit": units, "name": names, "way": way}
        yield Events(file, _lines(facts), record, _texts(codes), None, patient, values, days, **more)

    def _unit_of(self, resource: Resource) -> str | None:
        """The name of a quantity's unit: its code in UCUM, which is less free than what people read."""
        quantity = _dict(resource.get("valueQuantity"))
        text, code, system = (_text(quantity.get(name)) or "" for name in ("unit", "code", "system"))
        name = (code if system == UCUM and code else text or code).strip()
        if name and (code or system):
            self.lab_units.add(name, LabUnit((text or code).strip(), code, system))
        return name or None


def _unbundled(numbered: Numbered) -> Numbered:
    """Resources, those in Bundles too; they have their Bundle's line."""
    found: Numbered = []
    for line, resource in numbered:
        if resource.get("resourceType") != "Bundle":
            found.append((line, resource))
            continue
        entries = resource.get("entry")
        for entry in entries if isinstance(entries, list) else []:
            inner = _dict(_dict(entry).get("resource"))
            if inner:
                found.append((line, inner))
    return found


def _patients(file: str, patients: Numbered) -> Iterator[Batch]:
    if patients:
        births = [_text(resource.get("birthDate")) or "" for _, resource in patients]
        # a date may end after the year or the month
        birth = as_days(_texts([text + "-01-01"[len(text) - 4 :] if len(text) in (4, 7) else text for text in births]))
        sexes = [str(resource.get("gender") or "")[:1].upper() for _, resource in patients]
        death = as_days(_texts([_text(resource.get("deceasedDateTime")) for _, resource in patients]))
        own = _texts([_text(resource.get("id")) for _, resource in patients])
        yield Patients(file, _lines(patients), own, _texts(sexes), birth, death)


def _coding_of(resource: Resource) -> Resource:
    """The first coding of a known system, else the first; empty if there is none."""
    concept = resource.get("code") or resource.get("medicationCodeableConcept")
    concept = concept or _dict(resource.get("medication")).get("concept")
    codings = _dict(concept).get("coding")
    usable = [_dict(c) for c in (codings if isinstance(codings, list) else []) if code_of(_dict(c))]
    return next((coding for coding in usable if coding.get("system") in BY_FHIR), usable[0] if usable else {})


def _code_of(resource: Resource, chosen: Resource) -> str | None:
    """SYSTEM:CODE of a resource, with its decile if our writer gave it one."""
    if not chosen:
        return None
    value = _text(resource.get("valueString")) or ""
    is_decile = value in DECILES and resource.get("resourceType") == "Observation"
    return f"{code_of(chosen)}{DECILE}{value[1:]}" if is_decile else code_of(chosen)


def _table_of(resource: Resource, code: str | None) -> int:
    domain = DOMAINS[str(resource.get("resourceType"))]
    is_measured = _value_of(resource) is not None or domain_of(split_code(code or "")[0]) == "measurement"
    return TABLES["measurement" if domain == "observation" and is_measured else domain]


def _visit_concept(encounter: Resource) -> str | None:
    """Of an encounter that our writer gave one."""
    kinds = encounter.get("type")
    codings = [_dict(kind).get("coding") for kind in (kinds if isinstance(kinds, list) else [])]
    found = [_dict(coding) for some in codings if isinstance(some, list) for coding in some]
    return next((_text(coding.get("code")) for coding in found if coding.get("system") == f"{LOCAL_URL}{VISIT}"), None)


def _is_no_fact(resource: Resource) -> bool:
    codings = _dict(resource.get("verificationStatus")).get("coding")
    verification = {_dict(coding).get("code") for coding in (codings if isinstance(codings, list) else [])}
    return bool(({str(resource.get("status"))} | {str(code) for code in verification}) & NO_FACTS)


def _value_of(resource: Resource) -> float | None:
    value = _dict(resource.get("valueQuantity")).get("value")
    try:
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    except OverflowError:  # JSON has whole numbers of any length
        return None


def _day_of(resource: Resource) -> str | None:
    for name in ("onsetDateTime", "performedDateTime", "authoredOn", "effectiveDateTime", "recordedDate"):
        if text := _text(resource.get(name)):
            return text
    return _text(_dict(resource.get("performedPeriod")).get("start"))


def _reference(value: Any) -> str | None:
    """`123` of `Patient/123`, `urn:uuid:123` or an absolute address."""
    reference = _text(_dict(value).get("reference"))
    return None if reference is None else reference.replace(":", "/").rsplit("/", 1)[-1]


def _dict(value: Any) -> Resource:
    return value if isinstance(value, dict) else {}


def _texts(values: Sequence[str | None]) -> pa.StringArray:
    return pa.array(values, pa.string())


def _lines(numbered: Numbered) -> "np.ndarray[Any, np.dtype[np.int64]]":
    return np.array([line for line, _ in numbered], dtype=np.int64)
