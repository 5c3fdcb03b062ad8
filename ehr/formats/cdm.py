"""How the events, people and visits of an OMOP upload stood in its CDM, so that a cohort's can stand there likewise.

It is kept beside the records, in `cdm.json` of a dataset, of its models and of their cohorts.
"""

from dataclasses import dataclass, field
from typing import Self

from pydantic import TypeAdapter, ValidationError

from ehr.codes.systems import Domain
from ehr.errors import CorruptError
from ehr.formats.concepts import Concept

# type concepts, for where rows come from; a visit's concept
EHR, CLAIM = 32817, 32810
INPATIENT = 9201


@dataclass(frozen=True)
class Row:
    """A row of an event table. None: the upload had no such column."""

    table: str
    standard: int | None = None  # condition_concept_id, drug_concept_id, ...
    source: int | None = None  # condition_source_concept_id, ...
    type: int | None = None  # condition_type_concept_id, ...
    source_code: str | None = None  # SYSTEM:CODE of the source value, where that is not the code itself


@dataclass(frozen=True)
class Pattern:
    """The rows that one code of a record is: two where a source code maps to two concepts. `share` is of the records
    that have the code."""

    share: float
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Person:
    """What a person's row says and no code does."""

    race: int = 0
    race_source: int = 0
    race_source_value: str = ""
    ethnicity: int = 0
    ethnicity_source: int = 0
    ethnicity_source_value: str = ""


@dataclass(frozen=True)
class Visit:
    concept: int = 0
    type: int = 0
    source: int = 0


@dataclass(frozen=True)
class Period:
    type: int = 0


Kind = Person | Visit | Period
# event table -> the kind of fact it states
EVENT_TABLES: dict[str, Domain] = {
    "condition_occurrence": "condition",
    "procedure_occurrence": "procedure",
    "drug_exposure": "drug",
    "measurement": "measurement",
    "observation": "observation",
}


def concept_ids(said: Row | Kind) -> list[int]:
    """The concepts it refers to."""
    return [value for value in vars(said).values() if isinstance(value, int) and value != 0]


@dataclass(frozen=True)
class SourceCdm:
    """An upload's CDM, as far as at least 11 patients have it in common."""

    rows: dict[str, tuple[Pattern, ...]] = field(default_factory=dict)  # of each code; a lab's deciles share the lab's
    people: tuple[tuple[float, Person], ...] = ()  # shares, of patients
    visits: tuple[tuple[float, Visit], ...] = ()  # of records
    periods: tuple[tuple[float, Period], ...] = ()  # of patients
    concepts: tuple[Concept, ...] = ()  # what the upload's concept table says of the ids above
    otherwise: Visit = Visit(
        type=EHR
    )  # what visits are of which nothing is told, and the type of such rows and periods

    def to_json(self) -> bytes:
        return _ADAPTER.dump_json(self, exclude_none=True)

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        try:
            return _ADAPTER.validate_json(data)  # type: ignore[return-value]
        except ValidationError:
            raise CorruptError("this is not what is known of a CDM") from None


_ADAPTER = TypeAdapter(SourceCdm)
