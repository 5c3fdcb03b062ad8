"""The rows that a record's codes are in a CDM: as they were in the upload, or what their system says.

A code may be one of several patterns of rows (two rows where it maps to two concepts), of which one is drawn for each
record that has it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ehr.codes.systems import Domain, domain_of, split_lab, visit_concept, without_decile
from ehr.formats.cdm import EVENT_TABLES, Pattern, Row, SourceCdm, concept_ids
from ehr.formats.concepts import CodeConcepts
from ehr.formats.write import draws
from ehr.formats.write.omop_tables import TABLE_OF
from ehr.formats.write.protocol import Block, CohortSource, Ints

# Concepts of our own: OMOP leaves these ids to whoever needs some. The upload may have some too.
LOCAL_CONCEPTS = range(2_000_000_000, 2_140_000_000, 10_000_000)


@dataclass(frozen=True)
class CodeRow:
    """A row that a code of the vocabulary can be."""

    code: int  # position in the vocabulary
    nth: int  # of the rows of its pattern
    table: str
    standard: int
    source: int
    type: int
    source_code: str  # SYSTEM:CODE


@dataclass(frozen=True)
class CodeRows:
    """Of all codes of a cohort."""

    cohort: CohortSource
    cdm: SourceCdm

    @cached_property
    def patterns(self) -> list[list[tuple[float, list[CodeRow]]]]:
        """Of each code: shares, and rows."""
        local: dict[str, int] = {}  # the deciles of a lab share the lab's concept
        found, first, kind = [], self._first_local, self.cdm.otherwise.type
        for position, code in enumerate(self.cohort.vocabulary):
            own = local.setdefault(without_decile(code), first + position)
            found.append(
                [
                    (pattern.share, [_written(position, n, row, code, own, kind) for n, row in enumerate(pattern.rows)])
                    for pattern in self.cdm.rows.get(without_decile(code)) or [self._by_system(code)]
                ]
            )
        return found

    @cached_property
    def domains(self) -> list[Domain]:
        """The kind of fact each code states, by the first row of its commonest pattern."""
        return [EVENT_TABLES[patterns[0][1][0].table] for patterns in self.patterns]

    @cached_property
    def _first_local(self) -> int:
        """From here on there is an id for each code that is not the upload's."""
        ways = (row for patterns in self.cdm.rows.values() for pattern in patterns for row in pattern.rows)
        kinds = (kind for mix in (self.cdm.people, self.cdm.visits, self.cdm.periods) for _, kind in mix)
        units = (curve.unit.concept_id or 0 for curve in self.cohort.lab_curves.values() if curve.unit is not None)
        visits = (visit_concept(code) or 0 for code in self.cohort.vocabulary)
        used = (number for each in (*ways, *kinds) for number in concept_ids(each))
        taken = np.array([*used, *units, *visits], dtype=np.int64)
        free = (at for at in LOCAL_CONCEPTS if not np.any((taken >= at) & (taken < at + len(self.cohort.vocabulary))))
        return next(free, LOCAL_CONCEPTS[0])

    @cached_property
    def all(self) -> list[CodeRow]:
        """One after another."""
        return [row for patterns in self.patterns for _, rows in patterns for row in rows]

    def of(self, block: Block) -> tuple[Ints, Ints]:
        """(code of the block, position in `all`) of every row: the patterns of the block's codes are drawn."""
        _, code = block.rows()
        pattern = self._first_pattern[code]
        several = np.flatnonzero(self._first_pattern[code + 1] - pattern > 1)
        if len(several):
            # a draw for each code of the block, needed or not: what one gets must not depend on what the others are
            u = draws.generator(self.cohort.seed, draws.ROWS, block.first_record).random(len(code))[several]
            among = np.searchsorted(self._ends, code[several] + u, side="right")
            pattern[several] = np.minimum(among, self._first_pattern[code[several] + 1] - 1)
        first, sizes = self._first_row[pattern], np.diff(self._first_row)[pattern]
        event = np.repeat(np.arange(len(code)), sizes)
        return event, np.arange(len(event)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + first[event]

    @cached_property
    def _first_pattern(self) -> Ints:
        """Where the patterns of each code begin, and their number."""
        return np.cumsum([0, *(len(patterns) for patterns in self.patterns)])

    @cached_property
    def _first_row(self) -> Ints:
        """Where the rows of each pattern begin, and their number."""
        return np.cumsum([0, *(len(rows) for patterns in self.patterns for _, rows in patterns)])

    @cached_property
    def _ends(self) -> NDArray[np.float64]:
        """Position of the code plus the sum of its shares up to each pattern."""
        ends = []
        for position, patterns in enumerate(self.patterns):
            shares = np.cumsum([share for share, _ in patterns])
            ends.append(position + shares / shares[-1])
        return np.concatenate([np.zeros(0), *ends])

    def _by_system(self, code: str) -> Pattern:
        """What a code's system says, where the upload was no CDM: a lab's decile is a measurement in any system."""
        system, _, decile = split_lab(code)
        known = self.cohort.concepts.get(without_decile(code), CodeConcepts())
        table = TABLE_OF["measurement" if decile else domain_of(system)]
        standard, source = (None if each is None else each.concept_id for each in (known.standard, known.source))
        return Pattern(1.0, (Row(table, standard, source),))


def _written(position: int, nth: int, row: Row, code: str, local: int, usual: int) -> CodeRow:
    """Where the upload had no source concept, one of our own explains the code; without a type it has the `usual`."""
    source = local if row.source is None else row.source
    source_code = row.source_code or without_decile(code)
    return CodeRow(
        position, nth, row.table, row.standard or 0, source, usual if row.type is None else row.type, source_code
    )


def numbered_blocks(cohort: CohortSource) -> Iterator[tuple[int, Block]]:
    """Blocks, and the number of codes in those before: what numbers a cohort's events."""
    first = 0
    for block in cohort.blocks():
        yield first, block
        first += len(block.records.indices)
