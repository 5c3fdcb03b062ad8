"""Concepts of OMOP that stand behind codes: read from an upload's concept table, written with the cohort's."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Concept:
    """A row of an OMOP concept table, as far as a cohort needs it."""

    concept_id: int
    vocabulary_id: str
    concept_code: str


@dataclass(frozen=True)
class CodeConcepts:
    """The concepts of a code: as recorded, and the standard one."""

    source: Concept | None = None
    standard: Concept | None = None
