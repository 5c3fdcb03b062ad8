"""The codes a dataset or model knows, and what a condition written by a person means in terms of them."""

import difflib
import fnmatch
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ehr.errors import ConditionError, UnknownCodeError

WILDCARD = "*"


@dataclass(frozen=True)
class ResolvedCondition:
    """A condition as indices into the vocabulary; groups of `any_of` must each be met by one code."""

    all_of: tuple[int, ...] = ()
    any_of: tuple[tuple[int, ...], ...] = ()
    none_of: tuple[int, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.all_of or self.any_of or self.none_of)

    def satisfied_by(self, indptr: NDArray[np.int64], indices: NDArray[np.int32], n_codes: int) -> NDArray[np.bool_]:
        """Which records (CSR rows) satisfy it, (R,)."""
        satisfied = np.ones(len(indptr) - 1, dtype=bool)
        for group in (*((code,) for code in self.all_of), *self.any_of):
            satisfied &= _has_any(indptr, indices, n_codes, group)
        if self.none_of:
            satisfied &= ~_has_any(indptr, indices, n_codes, self.none_of)
        return satisfied


@dataclass(frozen=True)
class Vocabulary:
    """Codes in a fixed order; a code's position is its index in records and models."""

    codes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.codes)

    @cached_property
    def positions(self) -> dict[str, int]:
        return {code: position for position, code in enumerate(self.codes)}

    @cached_property
    def hash(self) -> str:
        return hashlib.sha256(json.dumps(self.codes, ensure_ascii=True).encode()).hexdigest()

    def matching(self, pattern: str) -> list[int]:
        """The codes a pattern names: one code, or all that match `ICD9DX:250*`. UnknownCodeError if none does."""
        if WILDCARD in pattern:
            literal = pattern.replace("[", "[[]").replace("?", "[?]")  # only the star is special
            found = [i for i, code in enumerate(self.codes) if fnmatch.fnmatchcase(code, literal)]
            if not found:
                raise UnknownCodeError(f"no code matches '{pattern}'{self._hint(pattern.replace(WILDCARD, ''))}")
            return found
        if pattern not in self.positions:
            raise UnknownCodeError(f"unknown code '{pattern}'{self._hint(pattern)}")
        return [self.positions[pattern]]

    def resolve(
        self, all_of: Iterable[str], any_of: Iterable[Sequence[str]], none_of: Iterable[str]
    ) -> ResolvedCondition:
        """Patterns to indices. A wildcard in `all_of` asks for at least one of the codes it matches."""
        required: set[int] = set()
        groups: list[tuple[int, ...]] = []
        for pattern in all_of:
            found = self.matching(pattern)
            if len(found) == 1:
                required.add(found[0])
            else:
                groups.append(tuple(found))
        for group in any_of:
            groups.append(tuple(sorted({code for pattern in group for code in self.matching(pattern)})))
        forbidden = {code for pattern in none_of for code in self.matching(pattern)}
        self._refuse_contradictions(required, groups, forbidden)
        return ResolvedCondition(tuple(sorted(required)), tuple(groups), tuple(sorted(forbidden)))

    def _refuse_contradictions(self, required: set[int], groups: list[tuple[int, ...]], forbidden: set[int]) -> None:
        if both := sorted(required & forbidden):
            raise ConditionError(f"'{self.codes[both[0]]}' is both in all_of and in none_of")
        for group in groups:
            if not group:
                raise ConditionError("a group of any_of is empty: no record could satisfy it")
            if set(group) <= forbidden:
                raise ConditionError(f"every code like '{self.codes[group[0]]}' that is asked for is also in none_of")

    def _hint(self, pattern: str) -> str:
        close = difflib.get_close_matches(pattern, self.codes, n=3, cutoff=0.6)
        if not close and len(self.codes) > 0:
            close = [self.codes[0]]
            return f"; codes look like '{close[0]}'"
        return "; did you mean " + ", ".join(f"'{code}'" for code in close) + "?" if close else ""


def _has_any(
    indptr: NDArray[np.int64], indices: NDArray[np.int32], n_codes: int, codes: Sequence[int]
) -> NDArray[np.bool_]:
    wanted = np.zeros(n_codes, dtype=bool)
    wanted[list(codes)] = True
    hits = np.concatenate([[0], np.cumsum(wanted[indices])])
    has: NDArray[np.bool_] = hits[indptr[1:]] > hits[indptr[:-1]]
    return has
