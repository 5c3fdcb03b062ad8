"""What an upload tells of the units of lab values: rows name a unit, and may say what FHIR or OMOP call it."""

from collections import Counter
from dataclasses import replace

from ehr.labs import LabUnit


class LabUnits:
    """Units by the name that rows give them. Where rows disagree about what a name stands for, most of them count."""

    def __init__(self) -> None:
        self._seen: dict[str, Counter[LabUnit]] = {}
        self.names: dict[int, str] = {}  # of concepts

    def add(self, name: str, unit: LabUnit, rows: int = 1) -> None:
        self._seen.setdefault(name, Counter())[unit] += rows

    def concept_ids(self) -> set[int]:
        return {unit.concept_id for seen in self._seen.values() for unit in seen if unit.concept_id is not None}

    def known(self) -> dict[str, LabUnit]:
        commonest = {name: seen.most_common(1)[0][0] for name, seen in self._seen.items()}
        return {name: replace(unit, name=self.names.get(unit.concept_id or 0, "")) for name, unit in commonest.items()}
