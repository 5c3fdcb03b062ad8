"""Concepts of OMOP that stand behind codes: read from an upload's concept table, written with the cohort's."""

from dataclasses import asdict, dataclass
from typing import Any

UNDEFINED = "Undefined"  # the class of concepts that have none, in the CDM's own words


@dataclass(frozen=True)
class Concept:
    """A row of an OMOP concept table, as far as a cohort needs it."""

    concept_id: int
    vocabulary_id: str
    concept_code: str
    name: str | None = None
    domain_id: str | None = None
    concept_class_id: str | None = None
    standard_concept: str | None = None  # S, C or None

    def as_json(self) -> dict[str, Any]:
        """What is not known stays away, as it did before there was a place for it."""
        return {key: value for key, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class CodeConcepts:
    """The concepts of a code: as recorded, and the standard one."""

    source: Concept | None = None
    standard: Concept | None = None

    @property
    def name(self) -> str | None:
        """What the upload calls the code: the words of the code as recorded before those of its standard concept."""
        return next((each.name for each in (self.source, self.standard) if each is not None and each.name), None)

    def as_json(self) -> dict[str, Any]:
        pairs = (("source", self.source), ("standard", self.standard))
        return {key: None if concept is None else concept.as_json() for key, concept in pairs}
