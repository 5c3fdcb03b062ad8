"""What is known of a lab beside its deciles: how its values lie within each of them, their decimals and their unit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import pairwise
from math import ceil
from statistics import median_low

PARTS = 10
UCUM = "http://unitsofmeasure.org"


@dataclass(frozen=True)
class LabUnit:
    """A unit as people read it, and what FHIR and OMOP call it where that is known."""

    text: str = ""
    code: str = ""
    system: str = ""  # of the code
    concept_id: int | None = None
    name: str = ""  # of the concept


@dataclass(frozen=True)
class LabCurve:
    """The values of a lab, cell by cell: a cell reaches from one knot up to the next and holds a share of its part's
    values. A part without knots has no number: nothing is known of how far its values reach."""

    cuts: tuple[float, ...]  # between the parts
    knots: tuple[tuple[float, ...], ...]  # of each part, ascending
    shares: tuple[tuple[float, ...], ...]  # of each part's cells, one fewer than its knots
    decimals: int
    unit: LabUnit | None = None

    @classmethod
    def between(cls, cuts: Sequence[float]) -> "LabCurve":
        """For data that was stored with its cut points alone: inner parts are even, and outer ones have no number."""
        inner = tuple(pairwise(cuts))
        # a cut point between two values may have a decimal more than they have
        decimals = median_low([len(f"{Decimal(repr(cut)).normalize():f}".partition(".")[2]) for cut in cuts])
        return cls(tuple(cuts), ((), *inner, ()), ((), *(((1.0,),) * len(inner)), ()), decimals)

    def in_unit(self, units: Mapping[str, LabUnit]) -> "LabCurve":
        """With all that `units` knows of the unit's text."""
        return self if self.unit is None else replace(self, unit=units.get(self.unit.text, self.unit))


def first_number(value: float, scale: float) -> float:
    """The first whole number, over `scale`, that is not below the value; 1.1 times 10 is 11, whatever floats say."""
    return ceil(value * scale - 1e-9 * abs(value * scale)) / scale
