"""Which records are asked for: all of some codes, any of some groups, none of others.

`AskedCondition` is what a person wrote, in codes and wildcards; it is made once where a request or a file comes in and
passed on unchanged. `Condition` is the same in indices of one vocabulary, which `Vocabulary.resolve` makes of it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, WithJsonSchema

from ehr.errors import ConditionError
from ehr.fields import Code
from ehr.records import Records

MOST_TERMS = 100  # of each kind in one condition
MOST_MEMBERS = 5_000  # codes and wildcards in all groups of a condition
# every target doubles the combinations of targets met and not met
MOST_TARGETS = 8


def _flat_list_is_one_group(value: Any) -> Any:
    if isinstance(value, list) and value and all(isinstance(code, str) for code in value):
        return [value]
    return value


def _not_too_many_members(groups: list[list[str]]) -> list[list[str]]:
    if (members := sum(map(len, groups))) > MOST_MEMBERS:
        raise ValueError(f"groups name {members:,} codes in all; at most {MOST_MEMBERS:,}, and a wildcard is one")
    return groups


OneGroup = Annotated[list[Code], Field(max_length=MOST_MEMBERS)]
SeveralGroups = Annotated[list[OneGroup], Field(max_length=MOST_TERMS)]
Groups = Annotated[
    SeveralGroups,
    BeforeValidator(_flat_list_is_one_group),
    AfterValidator(_not_too_many_members),
    WithJsonSchema(TypeAdapter(OneGroup | SeveralGroups).json_schema()),
]


class AskedCondition(BaseModel):
    """Every code of `all_of`, one of each group of `any_of`, none of `none_of`.

    A star stands for any characters: `ICD9DX:250*`. In `all_of` a wildcard asks for at least one of its codes. Neither
    case nor dots of ICD codes count, and where only one system has a code the system may be left out: `e11.65`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    all_of: list[Code] = Field(default_factory=list, max_length=MOST_TERMS)
    any_of: Groups = Field(default_factory=list, description="a list of groups; a flat list is one group")
    none_of: list[Code] = Field(default_factory=list, max_length=MOST_TERMS)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is asked."""
        return not (self.all_of or self.any_of or self.none_of)

    @property
    def patterns(self) -> list[str]:
        """Everything that names codes, in order."""
        return [*self.all_of, *(code for group in self.any_of for code in group), *self.none_of]


class AskedTarget(BaseModel):
    """A share of the cohort has one of these codes or wildcards; the rest has none of them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    codes: list[Code] = Field(min_length=1, max_length=MOST_TERMS)
    share: float = Field(ge=0, le=1, allow_inf_nan=False, examples=[0.3])


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

    def simplified(self) -> "Condition":
        """The one shortest form of all conditions that the same records satisfy: a group of one code is required, a
        forbidden code helps no group, and a group that follows from another or from `all_of` says nothing."""
        groups = {group - self.none_of for group in self.any_of} | {frozenset([code]) for code in self.all_of}
        least = [group for group in groups if not any(other < group for other in groups)]
        required = (code for group in least if len(group) == 1 for code in group)
        several = sorted((group for group in least if len(group) > 1), key=sorted)
        return Condition.of(self.n_codes, required, several, self.none_of)

    def satisfied_by(self, records: Records) -> NDArray[np.bool_]:
        """Which records satisfy the condition, (R,)."""
        satisfied = np.ones(len(records), dtype=bool)
        for group in (*(frozenset([code]) for code in self.all_of), *self.any_of):
            satisfied &= records.having_any(group)
        return satisfied & ~records.having_any(self.none_of)


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
