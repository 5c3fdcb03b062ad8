"""What encoding is asked for, and what it gives."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ehr.histories import Histories
from ehr.labs import LabCurve
from ehr.records import Records
from ehr.vocabulary import Vocabulary
from worker.ingestion.numbering import Ints


@dataclass(frozen=True)
class Choices:
    """How records are made of rows."""

    min_records: int = 11
    max_codes: int = 100_000
    rollup: str = "none"
    test_share: float = 0.1
    holdout_share: float = 0.1
    masked_age: int | None = None
    max_visits: int = 500  # of a patient
    birth_years: bool = False  # of histories: make codes of the ten years of a patient's birth


@dataclass(frozen=True)
class Counted:
    """What became of rows: of the usable ones, `repeated` said nothing new and `rare` had codes that were dropped."""

    usable: int
    rejected: int
    repeated: int
    rare: int
    codes_dropped: int


@dataclass(frozen=True)
class Encoded:
    """Records, their codes, and whose they are."""

    records: Records
    vocabulary: Vocabulary
    patients: Ints  # (R,), from 0
    n_patients: int
    position: NDArray[np.float32]  # (R,), decides the split
    counted: Counted
    curves: dict[str, LabCurve] = field(default_factory=dict)  # of labs
    summary: dict[str, Any] = field(default_factory=dict)  # of roll-up and labs
    names: dict[str, str] = field(default_factory=dict)  # of codes, as enough rows call them
    histories: Histories | None = None  # whose visits are `records`; None where records are by themselves

    @property
    def whole(self) -> Records:
        """What groups and rules are about: records, or visits with what is true of their patient."""
        return self.records if self.histories is None else self.histories.visits_with_static()

    @property
    def cuts(self) -> dict[str, list[float]]:
        """The values between the deciles of each lab."""
        return {lab: list(curve.cuts) for lab, curve in self.curves.items()}
