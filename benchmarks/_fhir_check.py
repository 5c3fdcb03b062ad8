"""Whether every resource of a FHIR NDJSON file is valid R4: by the classes of fhir.resources, by patterns and required
codes of the specification that those let pass, and by references, which must lead to a resource of the file.

python -m benchmarks._fhir_check cohort.fhir.ndjson
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from fhir.resources.R4B import get_fhir_model_class
from pydantic import ValidationError

from benchmarks._harness import console, timed

# R4's own patterns of the types (https://hl7.org/fhir/R4/datatypes.html), by the elements that have them
CODE, URI = re.compile(r"[^\s]+(\s[^\s]+)*"), re.compile(r"\S+")
YEAR_MONTH_DAY = r"\d{4}(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?)?"
CLOCK = r"T([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d+)?(Z|[+-]((0\d|1[0-3]):[0-5]\d|14:00))"
MOMENT = re.compile(rf"{YEAR_MONTH_DAY}({CLOCK})?")
PATTERNS = {
    "id": re.compile(r"[A-Za-z0-9\-.]{1,64}"),
    "birthDate": re.compile(YEAR_MONTH_DAY),
    "reference": re.compile(r"[A-Z][A-Za-z]+/[A-Za-z0-9\-.]{1,64}"),
    **dict.fromkeys(("system", "url"), URI),
    **dict.fromkeys(("code", "status", "intent", "gender"), CODE),
    **dict.fromkeys(("start", "end", "onsetDateTime", "performedDateTime", "authoredOn", "effectiveDateTime"), MOMENT),
}
LONGEST_TEXT = 1 << 20
# bindings that are required: any other code is an error
STATUS = {
    "Encounter": "planned arrived triaged in-progress onleave finished cancelled entered-in-error unknown",
    "MedicationRequest": "active on-hold cancelled completed entered-in-error stopped draft unknown",
    "Observation": "registered preliminary final amended corrected cancelled entered-in-error unknown",
    "Procedure": "preparation in-progress not-done on-hold stopped completed entered-in-error unknown",
}
INTENTS = "proposal plan order original-order reflex-order filler-order instance-order option"
GENDERS = "male female other unknown"
CLINICAL = "active recurrence relapse inactive remission resolved"


def invalid(lines: Iterable[bytes]) -> int:
    """How many resources are not valid."""
    return sum(faults(lines).values())


def faults(lines: Iterable[bytes]) -> Counter[str]:
    """The invalid resources by the first thing that is wrong with each; nothing of them is quoted."""
    found: Counter[str] = Counter()
    seen: set[str] = set()
    wanted: Counter[tuple[str, ...]] = Counter()  # what valid resources refer to, before all are known
    for line in lines:
        if not line.strip():
            continue
        resource = _parsed(line)
        fault = "no JSON object" if resource is None else next(_faults_of(resource), None)
        if resource is not None:
            name = f"{resource.get('resourceType')}/{resource.get('id')}"
            fault = fault or ("an id that is there twice" if name in seen else None)
            seen.add(name)
        if fault is not None:
            found[fault] += 1
        elif resource is not None:
            wanted[tuple(sorted(_references(resource)))] += 1
    for references, resources in wanted.items():
        if not seen.issuperset(references):
            found["a reference that leads nowhere"] += resources
    return found


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        resource = json.loads(line, parse_constant=lambda name: None)
    except ValueError:
        return None
    return resource if isinstance(resource, dict) else None


def _faults_of(resource: dict[str, Any]) -> Iterator[str]:
    try:
        get_fhir_model_class(str(resource.get("resourceType"))).model_validate(resource)
    except ValidationError as error:
        yield ".".join(str(part) for part in error.errors()[0]["loc"] if not isinstance(part, int)) or "the whole"
    except (KeyError, LookupError, ValueError):
        yield "resourceType"
    if not isinstance(resource.get("id"), str):
        yield "id"  # R4 allows it to be missing; a file of resources that refer to each other does not
    yield from _patterns(resource)
    yield from _bindings(resource)


def _patterns(element: Any, name: str = "") -> Iterator[str]:
    if element is None or element in ({}, []):
        yield f"{name}: nothing"
    elif isinstance(element, dict):
        for key, value in element.items():
            yield from _patterns(value, key)
    elif isinstance(element, list):
        for value in element:
            yield from _patterns(value, name)
    elif isinstance(element, str):
        if not element.strip() or len(element) > LONGEST_TEXT or any(c < " " and c not in "\t\r\n" for c in element):
            yield f"{name}: text"
        if name in PATTERNS and PATTERNS[name].fullmatch(element) is None:
            yield f"{name}: pattern"


def _bindings(resource: dict[str, Any]) -> Iterator[str]:
    kind = resource.get("resourceType")
    if kind in STATUS and resource.get("status") not in STATUS[kind].split():
        yield f"{kind}.status"
    if kind == "MedicationRequest" and resource.get("intent") not in INTENTS.split():
        yield "MedicationRequest.intent"
    if resource.get("gender", "unknown") not in GENDERS.split():
        yield "Patient.gender"
    for coding in resource.get("clinicalStatus", {}).get("coding", []):
        if coding.get("code") not in CLINICAL.split():
            yield "Condition.clinicalStatus"
    quantity = resource.get("valueQuantity", {})
    value = quantity.get("value", 0)
    if isinstance(value, bool) or not isinstance(value, int | float):
        yield "Quantity.value"
    if "code" in quantity and "system" not in quantity:
        yield "Quantity.system"  # the invariant qty-3


def _references(element: Any) -> Iterator[str]:
    if isinstance(element, dict):
        if isinstance(reference := element.get("reference"), str):
            yield reference
        for value in element.values():
            yield from _references(value)
    elif isinstance(element, list):
        for value in element:
            yield from _references(value)


def main() -> None:
    lines = Path(sys.argv[1]).read_bytes().splitlines()
    with timed() as seconds:
        found = faults(lines)
    for fault, resources in found.most_common():
        console.print(f"{resources:>10,}  {fault}")
    console.print(
        f"{sum(found.values()):,} of {len(lines):,} invalid; {len(lines) / seconds[0]:,.0f} resources per second"
    )


if __name__ == "__main__":
    main()
