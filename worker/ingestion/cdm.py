"""What a cohort needs to know of an upload's CDM, counted: the rows that each code is, the mix of people and visits.

Nothing is kept that fewer than 11 patients have in common, but for how a code is mapped: that its rows have these
concepts is a fact about the code.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ehr.codes.meanings import description
from ehr.codes.rollups import ROLLUPS, rolled_up
from ehr.codes.systems import BY_NAME, split_code, without_decile
from ehr.disclosure import SMALLEST_SHOWN
from ehr.formats.cdm import EVENT_TABLES, Kind, Pattern, Period, Person, Row, SourceCdm, Visit, concept_ids
from ehr.formats.concepts import Concept
from ehr.formats.read.protocol import KindName, Kinds, Reader
from worker.ingestion.numbering import Ints, Numbering

WAY_BITS = 32
MOST_PATTERNS = 50  # of a code
DIGITS = 3  # of a share: with all of them it would be a fraction of two counts that can be worked out
Option = TypeVar("Option", Person, Visit, Period)


@dataclass
class CdmTally:
    """Pairs of numbers, a batch at a time: eight bytes for each row."""

    pairs: dict[int, int] = field(default_factory=dict)  # code and way, as one number -> number of the pair
    records: list[NDArray[np.int32]] = field(default_factory=list)
    rows: list[NDArray[np.int32]] = field(default_factory=list)  # pairs of these records
    kinds: dict[KindName, list[tuple[Ints, Ints]]] = field(default_factory=dict)  # (whose, kind)

    def add_rows(self, record: Ints, code: Ints, way: Ints) -> None:
        keys, which = np.unique((code << WAY_BITS) + way, return_inverse=True)
        numbers = [self.pairs.setdefault(key, len(self.pairs)) for key in keys.tolist()]
        self.records.append(record.astype(np.int32))
        self.rows.append(np.array(numbers, dtype=np.int32)[which])

    def add_kinds(self, batch: Kinds, records: Numbering, patients: Numbering) -> None:
        whose = (records if batch.of == "visits" else patients).of_column(batch.whose)
        self.kinds.setdefault(batch.of, []).append((whose[whose >= 0], batch.kind[whose >= 0]))


@dataclass(frozen=True)
class Facts:
    """What is known when all rows are in."""

    tally: CdmTally
    codes: Sequence[str]  # by number
    owner: Ints  # patient of each record
    present: NDArray[np.bool_]  # which records are there

    def source_cdm(self, reader: Reader, vocabulary: Iterable[str], rollup: str) -> SourceCdm | None:
        """None if the upload says nothing of it."""
        if not self.tally.pairs:
            return None if reader.visits == SourceCdm().otherwise else SourceCdm(otherwise=reader.visits)
        kept = {without_decile(code) for code in vocabulary}
        rows = self._rows(reader.ways, kept, rollup)
        people = self._mix(reader, "people", Person, rest=Person())
        visits, periods = self._mix(reader, "visits", Visit), self._mix(reader, "periods", Period)
        said: list[Row | Kind] = [row for some in rows.values() for pattern in some for row in pattern.rows]
        said += [kind for mix in (people, visits, periods) for _, kind in mix]
        met = sorted({number for each in said for number in concept_ids(each)})
        sources = {concept.concept_id: concept for concept in _named_sources(rows)}
        told = sources | reader.described
        concepts = tuple(told[number] for number in met if number in told)
        return SourceCdm(rows, people, visits, periods, concepts, reader.visits)

    # --- rows of codes ---

    def _rows(self, ways: Sequence[Row], kept: set[str], rollup: str) -> dict[str, tuple[Pattern, ...]]:
        """Of each code that is kept."""
        meant = list(self._meant(ways, kept, rollup))
        targets = sorted({each for each in meant if each is not None}, key=lambda each: (each[0], str(each[1])))
        place = {target: number for number, target in enumerate(targets)}
        target_of = np.array([-1 if each is None else place[each] for each in meant], dtype=np.int64)
        types = self._types(target_of, targets)
        found: dict[str, list[tuple[int, int, list[Row]]]] = {}
        for records, patients, numbers in self._patterns(target_of, targets):
            rows = [targets[number][1] for number in numbers]
            found.setdefault(targets[numbers[0]][0], []).append((records, patients, rows))
        return {code: _chosen(patterns, types) for code, patterns in sorted(found.items())}

    def _meant(self, ways: Sequence[Row], kept: set[str], rollup: str) -> Iterator[tuple[str, Row] | None]:
        """The code and the row of each pair; None if the code was dropped. A rolled-up code has its codes' table and
        none of their concepts, which say more than it does."""
        for pair in self.tally.pairs:
            code, row = self.codes[pair >> WAY_BITS], ways[pair & ((1 << WAY_BITS) - 1)]
            coarse = rolled_up(code, ROLLUPS[rollup])
            stem = without_decile(coarse)
            yield None if stem not in kept else (stem, row if coarse == code else Row(row.table, type=row.type))

    def _patterns(self, target_of: Ints, targets: Sequence[tuple[str, Row]]) -> Iterator[tuple[int, int, list[int]]]:
        """(records, patients, targets) of each set of targets that a code of a record is. A code that is the same row
        always needs no counting."""
        _, code, sizes = np.unique(np.array([code for code, _ in targets]), return_inverse=True, return_counts=True)
        alone = (sizes[code] == 1) & np.array([row.source_code is None for _, row in targets])
        yield from ((1, 0, [number]) for number in np.flatnonzero(alone).tolist())
        n, keys = len(targets), [np.zeros(0, dtype=np.int64)]
        for record, target in self._chunks(target_of):
            some = ~alone[target]
            keys.append(np.unique(record[some].astype(np.int64) * n + target[some]))
        record, target = np.divmod(np.unique(np.concatenate(keys)), n)
        if len(record) == 0:
            return
        starts = np.flatnonzero((np.diff(record, prepend=-1) != 0) | (np.diff(code[target], prepend=-1) != 0))
        ends = np.append(starts[1:], len(record))
        # a set is known by the sum of random numbers of its members
        marks = np.random.default_rng(0).integers(0, 1 << 63, size=n, dtype=np.uint64)
        sets, first, which, counts = np.unique(
            np.add.reduceat(marks[target], starts), return_index=True, return_inverse=True, return_counts=True
        )
        patients = _distinct_patients([(which, self.owner[record[starts]])], len(sets))
        for at, records, people in zip(first, counts.tolist(), patients.tolist(), strict=True):
            yield records, people, target[starts[at] : ends[at]].tolist()

    def _types(self, target_of: Ints, targets: Sequence[tuple[str, Row]]) -> dict[str, list[int]]:
        """The types that at least 11 patients have in a table, the commonest first."""
        kinds = sorted({(row.table, row.type) for _, row in targets if row.type is not None})
        number: dict[tuple[str, int | None], int] = {kind: at for at, kind in enumerate(kinds)}
        kind_of = np.array([number.get((row.table, row.type), len(kinds)) for _, row in targets])
        rows = ((kind_of[target], self.owner[record]) for record, target in self._chunks(target_of))
        patients = _distinct_patients(rows, len(kinds) + 1)[:-1]
        found: dict[str, list[int]] = {}
        for at in np.argsort(-patients, kind="stable").tolist():
            if patients[at] >= SMALLEST_SHOWN:
                found.setdefault(kinds[at][0], []).append(kinds[at][1])
        return found

    def _chunks(self, target_of: Ints) -> Iterator[tuple[NDArray[np.int32], Ints]]:
        """(record, target) of the rows whose codes are kept."""
        for record, row in zip(self.tally.records, self.tally.rows, strict=True):
            target = target_of[row]
            yield record[target >= 0], target[target >= 0]

    # --- people and visits ---

    def _mix(
        self, reader: Reader, name: KindName, of: type[Option], rest: Option | None = None
    ) -> tuple[tuple[float, Option], ...]:
        """Kinds with their shares, of records for visits and of patients for the others. Those of fewer than 11
        patients are left out; with `rest`, all of them together are that, if they are 11 patients or more."""
        options = [option for option in reader.kinds.get(name, ()) if isinstance(option, of)]
        pairs = self.tally.kinds.get(name, [])
        if not options or not pairs:
            return ()
        whose, kind = (np.concatenate([pair[i] for pair in pairs]) for i in (0, 1))
        if name == "visits":
            here = whose < len(self.present)
            here[here] = self.present[whose[here]]
            patient = self.owner[whose[here]]
        else:
            here = np.isin(whose, np.unique(self.owner[self.present]))
            patient = whose[here]
        counts = np.bincount(kind[here], minlength=len(options))
        patients = _distinct_patients([(kind[here], patient)], len(options))
        shares = {options[i]: int(counts[i]) for i in np.flatnonzero(patients >= SMALLEST_SHOWN)}
        others = np.flatnonzero((patients > 0) & (patients < SMALLEST_SHOWN))
        if rest is not None and len(np.unique(patient[np.isin(kind[here], others)])) >= SMALLEST_SHOWN:
            shares[rest] = shares.get(rest, 0) + int(counts[others].sum())
        total = sum(shares.values())
        ordered = sorted(shares.items(), key=lambda pair: (-pair[1], str(pair[0])))
        return tuple((_share(count, total), option) for option, count in ordered)


def _named_sources(rows: dict[str, tuple[Pattern, ...]]) -> Iterator[Concept]:
    """What concepts were coded as, where that has a name without a concept table."""
    every = [row for some in rows.values() for pattern in some for row in pattern.rows]
    standards = {row.standard for row in every}
    for row in every:
        if row.source and row.source_code is not None and (name := description(row.source_code)) is not None:
            system, code = split_code(row.source_code)
            vocabulary = BY_NAME[system].omop if system in BY_NAME else system
            standard = "S" if row.source in standards else None
            yield Concept(row.source, vocabulary, code, name, EVENT_TABLES[row.table].capitalize(), None, standard)


def _share(count: int, total: int) -> float:
    return float(f"{count / total:.{DIGITS}g}")


def _distinct_patients(pairs: Iterable[tuple[Ints, Ints]], n: int) -> Ints:
    """How many patients there are of each of n things, by pairs of a thing and a patient."""
    keys = [np.zeros(0, dtype=np.int64), *(np.unique((patient << 32) + what) for what, patient in pairs)]
    return np.bincount(np.unique(np.concatenate(keys)) & 0xFFFFFFFF, minlength=n)


def _chosen(found: list[tuple[int, int, list[Row]]], types: dict[str, list[int]]) -> tuple[Pattern, ...]:
    """The patterns of a code that 11 patients have, the commonest first; else the commonest without what is theirs."""
    common = sorted((each for each in found if each[1] >= SMALLEST_SHOWN), key=lambda each: (-each[0], str(each[2])))
    if common:
        total = sum(records for records, *_ in common[:MOST_PATTERNS])
        return tuple(Pattern(_share(each[0], total), tuple(each[2])) for each in common[:MOST_PATTERNS])
    _, _, rows = max(found, key=lambda each: (each[0], str(each[2])))
    return (Pattern(1.0, tuple(dict.fromkeys(_without_source(_with_common_type(row, types)) for row in rows))),)


def _with_common_type(row: Row, types: dict[str, list[int]]) -> Row:
    common = types.get(row.table, [])
    return row if row.type in common else replace(row, type=common[0] if common else None)


def _without_source(row: Row) -> Row:
    """Of a code that is a concept: what a few patients had it coded as is not told. It then is its own source."""
    return row if row.source_code is None else replace(row, source=row.standard, source_code=None)
