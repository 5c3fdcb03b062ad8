"""fhir: NDJSON or Bundles of R4 Patient, Encounter, Condition, Procedure, MedicationRequest and Observation.

One record per encounter or per patient. Of several codings the first of a known system counts. Numeric observations are
labs. Resources that were entered in error or refuted are no facts.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ehr.codes.icd import plain_icd
from ehr.codes.systems import BY_FHIR, DECILE, LOCAL_URL
from ehr.errors import DataError
from ehr.formats.read.columns import as_days
from ehr.formats.read.json_lines import Numbered, first_object, read_objects
from ehr.formats.read.protocol import Batch, Events, Patients, Reader, Visits
from ehr.formats.read.rejects import Rejects
from ehr.formats.read.sources import SourceFile

CODED = ("Condition", "Procedure", "MedicationRequest", "Observation")
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
        for file in files:
            for numbered in read_objects(file, rejects):
                yield from self._of_resources(file.label, _unbundled(numbered), rejects)

    def _of_resources(self, file: str, resources: Numbered, rejects: Rejects) -> Iterator[Batch]:
        by_type: dict[str, Numbered] = {}
        for line, resource in resources:
            by_type.setdefault(str(resource.get("resourceType")), []).append((line, resource))
        if self.options.demographics:
            yield from _patients(file, by_type.get("Patient", []))
            yield from self._visits(file, by_type.get("Encounter", []))
        coded = [found for kind in CODED for found in by_type.get(kind, [])]
        yield from self._events(file, coded, rejects)

    def _visits(self, file: str, encounters: Numbered) -> Iterator[Batch]:
        if encounters:
            patient = [_reference(resource.get("subject")) for _, resource in encounters]
            own = [_text(resource.get("id")) for _, resource in encounters]
            starts = [_text(_dict(resource.get("period")).get("start")) for _, resource in encounters]
            record = _texts(own if self.unit == "visit" else patient)
            yield Visits(file, _lines(encounters), record, _texts(patient), as_days(_texts(starts)))

    def _events(self, file: str, coded: Numbered, rejects: Rejects) -> Iterator[Batch]:
        wrong = [line for line, resource in coded if _is_no_fact(resource)]
        rejects.add("not-a-fact", wrong, file)
        facts = [(line, resource) for line, resource in coded if not _is_no_fact(resource)]
        if not facts:
            return
        names = [_code_of(resource) for _, resource in facts]
        patient = _texts([_reference(resource.get("subject")) for _, resource in facts])
        visit = _texts([_reference(resource.get("encounter")) for _, resource in facts])
        values = pa.array([_value_of(resource) for _, resource in facts], pa.float64())
        days = as_days(_texts([_day_of(resource) for _, resource in facts])) if self.unit == "patient" else None
        record = visit if self.unit == "visit" else patient
        yield Events(file, _lines(facts), record, _texts(names), None, patient, values, days)


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
        yield Patients(file, _lines(patients), _texts([_text(r.get("id")) for _, r in patients]), _texts(sexes), birth)


def _code_of(resource: Resource) -> str | None:
    """SYSTEM:CODE of a resource, with its decile if our writer gave it one."""
    concept = resource.get("code") or resource.get("medicationCodeableConcept")
    concept = concept or _dict(resource.get("medication")).get("concept")
    codings = _dict(concept).get("coding")
    usable = [_dict(c) for c in (codings if isinstance(codings, list) else []) if _text(_dict(c).get("code"))]
    if not usable:
        return None
    chosen = next((coding for coding in usable if coding.get("system") in BY_FHIR), usable[0])
    system, code = _system_of(str(chosen.get("system") or "")), str(chosen["code"]).strip()
    if system.startswith("ICD"):
        code = plain_icd(code)
    value = _text(resource.get("valueString")) or ""
    if value.startswith("D") and value[1:].isdecimal() and resource.get("resourceType") == "Observation":
        code = f"{code}{DECILE}{value[1:]}"
    return f"{system}:{code}" if system else code


def _system_of(url: str) -> str:
    if url in BY_FHIR:
        return BY_FHIR[url]
    if url.startswith(LOCAL_URL):
        return url.removeprefix(LOCAL_URL)
    return url.rstrip("/").replace(":", "/").rsplit("/", 1)[-1]


def _is_no_fact(resource: Resource) -> bool:
    codings = _dict(resource.get("verificationStatus")).get("coding")
    verification = {_dict(coding).get("code") for coding in (codings if isinstance(codings, list) else [])}
    return bool(({str(resource.get("status"))} | {str(code) for code in verification}) & NO_FACTS)


def _value_of(resource: Resource) -> float | None:
    value = _dict(resource.get("valueQuantity")).get("value")
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


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


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _texts(values: Sequence[str | None]) -> pa.StringArray:
    return pa.array(values, pa.string())


def _lines(numbered: Numbered) -> "np.ndarray[Any, np.dtype[np.int64]]":
    return np.array([line for line, _ in numbered], dtype=np.int64)
