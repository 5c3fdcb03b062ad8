"""Which records are asked for: all of some codes, any of some groups, none of others."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ehr.errors import ConditionError
from ehr.records import Records


@dataclass(frozen=True)
class Condition:
    """A record satisfies it if it has every code of `all_of`, one of each group of `any_of`, and none of `none_of`.

    Codes are indices into the vocabulary. Contradictions are refused when the condition is made.
    """

    n_codes: int
    all_of: frozenset[int] = frozenset()
    any_of: tuple[frozenset[int], ...] = ()
    none_of: frozenset[int] = frozenset()

    @classmethod
    def of(
        cls,
        n_codes: int,
        all_of: Iterable[int] = (),
        any_of: Iterable[Iterable[int]] = (),
        none_of: Iterable[int] = (),
    ) -> "Condition":
        """A condition from any iterables of code indices."""
        return cls(n_codes, frozenset(all_of), tuple(frozenset(group) for group in any_of), frozenset(none_of))

    def __post_init__(self) -> None:
        for code in sorted(self.all_of.union(self.none_of, *self.any_of)):
            if not 0 <= code < self.n_codes:
                raise ConditionError(f"code {code} is outside the vocabulary: codes run from 0 to {self.n_codes - 1}")
        if both := sorted(self.all_of & self.none_of):
            raise ConditionError(f"codes {both} are both required (all_of) and forbidden (none_of)")
        for group in self.any_of:
            if not group:
                raise ConditionError("a group of any_of is empty: no record could satisfy it")
            if group <= self.none_of:
                raise ConditionError(f"every code of the any_of group {sorted(group)} is forbidden by none_of")

    @property
    def is_empty(self) -> bool:
        """Whether every record satisfies it."""
        return not (self.all_of or self.any_of or self.none_of)

    def satisfied_by(self, records: Records) -> NDArray[np.bool_]:
        """Which records satisfy the condition, (R,)."""
        satisfied = np.ones(len(records), dtype=bool)
        for code in self.all_of:
            satisfied &= _has_any(records, frozenset([code]))
        for group in self.any_of:
            satisfied &= _has_any(records, group)
        return satisfied & ~_has_any(records, self.none_of)


@dataclass(frozen=True)
class Target:
    """A share of the cohort that shall have one of these codes; the others shall have none of them."""

    n_codes: int
    codes: frozenset[int]
    share: float

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ConditionError(f"the share of a target must be between 0 and 1, not {self.share}")
        Condition.of(self.n_codes, any_of=[self.codes])

    def required(self, condition: Condition | None) -> Callable[[], Condition]:
        """`condition` for records that meet the target; made when called, so that it is refused only if needed."""
        base = condition or Condition(self.n_codes)
        return lambda: replace(base, any_of=(*base.any_of, self.codes))

    def excluded(self, condition: Condition | None) -> Callable[[], Condition]:
        """`condition` for records that do not meet the target."""
        base = condition or Condition(self.n_codes)
        return lambda: replace(base, none_of=base.none_of | self.codes)


def _has_any(records: Records, codes: frozenset[int]) -> NDArray[np.bool_]:
    wanted = np.zeros(records.n_codes, dtype=bool)
    wanted[list(codes)] = True
    hits = np.concatenate([[0], np.cumsum(wanted[records.indices])])
    has: NDArray[np.bool_] = hits[records.indptr[1:]] > hits[records.indptr[:-1]]
    return has
