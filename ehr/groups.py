"""Groups: codes of which exactly one, or at most one, can be in a record, such as sex, age bands or deciles of a lab.

A group is a property of the data: known by its name, declared with the upload, or found in the training records. To a
generator it is one categorical variable, not k codes, so that no record it draws breaks one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from ehr.codes.systems import DECILE
from ehr.conditions import Condition, Target
from ehr.errors import ConditionError, DataError, UnknownCodeError
from ehr.fields import Code
from ehr.records import Records
from ehr.vocabulary import Vocabulary

Rule = Literal["exactly one", "at most one"]
Origin = Literal["known", "declared", "found"]
# Groups by their meaning: sex, age band, years of birth, kind of visit, discharge status; and deciles of one lab, whose
# codes end in #D1 to #D10.
KNOWN = ("SEX:", "AGE:", "BIRTH:", "VISIT:", "DISCHARGE:")
DELIMITERS = ":=_|"
# Of the records, this share may break a group that is found or known: noise in the data, never repeated by a generator.
NOISE = 1e-3
# Members that never meet are a group only if they should have met by chance at least so often.
EXPECTED_MEETINGS = 20.0
FEWEST_RECORDS = 100


class DeclaredGroup(BaseModel):
    """A group that whoever uploads the data knows of."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    codes: Code = Field(description="a wildcard that names its codes", examples=["PAYER:*"])
    rule: Rule


@dataclass(frozen=True)
class Group:
    """One categorical variable; `codes` are indices into the vocabulary."""

    name: str
    codes: tuple[int, ...]
    rule: Rule
    origin: Origin = "found"

    @property
    def is_optional(self) -> bool:
        """Whether a record may have none of the codes."""
        return self.rule == "at most one"


@dataclass(frozen=True)
class Groups:
    """Disjoint groups over a vocabulary of `n_codes`."""

    n_codes: int
    groups: tuple[Group, ...] = ()

    def __post_init__(self) -> None:
        codes = [code for group in self.groups for code in group.codes]
        if len(set(codes)) < len(codes):
            raise DataError("two groups share a code: a code can be in one group only")
        if any(not 0 <= code < self.n_codes for code in codes):
            raise DataError("a group names a code outside the vocabulary")

    def __len__(self) -> int:
        return len(self.groups)

    @cached_property
    def group_of(self) -> NDArray[np.int64]:
        """The number of each code's group, -1 for codes by themselves, (N,)."""
        group_of = np.full(self.n_codes, -1, dtype=np.int64)
        for number, group in enumerate(self.groups):
            group_of[list(group.codes)] = number
        return group_of

    def over_time(self, static: set[int]) -> tuple["Groups", "Groups"]:
        """Groups of codes of visits, and those of codes that are `static`: true of a patient at every visit."""
        of_patients = tuple(group for group in self.groups if static & set(group.codes))
        of_visits = tuple(group for group in self.groups if not static & set(group.codes))
        return Groups(self.n_codes, of_visits), Groups(self.n_codes, of_patients)

    def broken_by(self, records: Records) -> NDArray[np.bool_]:
        """Which groups each record breaks, (R, G)."""
        broken = np.zeros((len(records), len(self.groups)), dtype=bool)
        for number, group in enumerate(self.groups):
            held = records.number_of(group.codes)
            broken[:, number] = (held > 1) if group.is_optional else (held != 1)
        return broken

    def keeping(self, records: Records) -> Records:
        """The records that break none."""
        broken = self.broken_by(records).any(axis=1)
        return records.take(np.flatnonzero(~broken)) if broken.any() else records

    def settled(self, condition: Condition, codes: Sequence[str] | None = None) -> Condition:
        """The condition with all that follows from it; ConditionError naming the group if no record could satisfy it.

        A member that is asked for rules out the others; the last member that is left of `exactly one` must be there.
        """
        all_of, none_of = set(condition.all_of), set(condition.none_of)
        for group in self.groups:
            members = set(group.codes)
            asked, left = sorted(members & all_of), members - none_of
            if len(asked) > 1:
                raise self._contradiction(group, asked, codes)
            if not left and not group.is_optional:
                raise ConditionError(f"none_of forbids every code of {group.name}, of which a record has exactly one")
            if asked:
                none_of |= members - all_of
                for wanted in condition.any_of:
                    if wanted <= none_of and wanted & members:
                        raise self._contradiction(group, [*asked, min(wanted & members)], codes)
            elif len(left) == 1 and not group.is_optional:
                all_of |= left
        return Condition(self.n_codes, frozenset(all_of), condition.any_of, frozenset(none_of))

    @staticmethod
    def _contradiction(group: Group, members: Sequence[int], codes: Sequence[str] | None) -> ConditionError:
        names = " and ".join(repr(codes[code]) if codes else str(code) for code in members[:2])
        return ConditionError(f"{names} exclude each other: a record has {group.rule} of {group.name}")

    def check(self, condition: Condition, targets: Sequence[Target], codes: Sequence[str]) -> None:
        """ConditionError if a record that meets and misses any selection of the targets would break a group."""
        conditions = [condition]
        for target in targets:
            met = [target.required(each)() for each in conditions] if target.share > 0 else []
            missed = [target.excluded(each)() for each in conditions] if target.share < 1 else []
            conditions = met + missed
        for each in conditions:
            self.settled(each, codes)

    def draw(self, x: NDArray[Any], shares: NDArray[np.float64], rng: np.random.Generator) -> None:
        """Put one member of each group, or none, into records (R, N) that have none of them, by `shares` (N,)."""
        for group in self.groups:
            p = shares[list(group.codes)]
            p = np.append(p, max(1 - p.sum(), 0.0) if group.is_optional else 0.0)
            chosen = rng.choice(len(p), len(x), p=p / p.sum())
            held = np.flatnonzero(chosen < len(group.codes))
            x[held, np.array(group.codes)[chosen[held]]] = 1

    def mend(
        self, x: NDArray[Any], shares: NDArray[np.float64], rng: np.random.Generator, condition: Condition | None
    ) -> None:
        """Make records (R, N) keep the groups, in place: for samplers that draw every code by itself.

        Of several members one stays, of none one is drawn, by their `shares` (N,) of the training records; what a
        condition asks for goes first, and what it forbids is never drawn.
        """
        weight = shares.clip(1e-9)
        if condition is not None:
            weight[sorted(condition.none_of)] = 0
            weight[sorted(condition.all_of.union(*condition.any_of) - condition.none_of)] *= 1e12
        for group in self.groups:
            codes = np.array(group.codes)
            held = x[:, codes].sum(axis=1)
            rows = np.flatnonzero((held > 1) if group.is_optional else (held != 1))
            if len(rows) == 0:
                continue
            chances = weight[codes] * np.where(held[rows, None] > 1, x[np.ix_(rows, codes)], 1)
            upper = chances.cumsum(axis=1)
            chosen = (upper > rng.random((len(rows), 1)) * upper[:, -1:]).argmax(axis=1)
            x[np.ix_(rows, codes)] = np.eye(len(codes), dtype=x.dtype)[chosen]

    def as_json(self, codes: Sequence[Any]) -> list[dict[str, Any]]:
        """As manifests keep them: with the codes' names, or with their indices if `codes` is a range."""
        return [
            {"name": g.name, "codes": [codes[code] for code in g.codes], "rule": g.rule, "origin": g.origin}
            for g in self.groups
        ]

    @classmethod
    def from_json(cls, stored: Iterable[dict[str, Any]], codes: Sequence[Any]) -> "Groups":
        """What `as_json` gave for the same codes."""
        place = {code: number for number, code in enumerate(codes)}
        groups = (Group(g["name"], tuple(place[code] for code in g["codes"]), g["rule"], g["origin"]) for g in stored)
        return cls(len(codes), tuple(groups))


def find_groups(records: Records, codes: Sequence[str], declared: Iterable[DeclaredGroup] = ()) -> Groups:
    """The groups of the records: declared ones (a wildcard and its rule), known ones, and prefixes that hold.

    A prefix that all codes of a group share holds if no record, or hardly any, has two of them although chance would
    have it so, or if every record, or nearly every one, has exactly one.
    """
    taken = np.zeros(len(codes), dtype=bool)
    found: list[Group] = []
    vocabulary = Vocabulary(tuple(codes))
    for asked, rule in ((each.codes, each.rule) for each in declared):
        try:
            reading = vocabulary.read(asked)
        except UnknownCodeError as error:
            raise DataError(f"a group has two or more codes of this data: {error}") from None
        pattern, members = reading.meant, list(reading.codes)
        if len(members) < 2:
            raise DataError(f"the group '{pattern}' names {len(members)} codes of this data; a group has two or more")
        share = float((Groups(len(codes), (Group(pattern, tuple(members), rule),)).broken_by(records)).mean())
        if share > NOISE:
            raise DataError(f"the group '{pattern}' does not hold: {share:.1%} of the records do not have {rule} of it")
        taken[members] = True
        found.append(Group(pattern, tuple(members), rule, "declared"))
    for prefix, members in sorted(_prefixes(codes).items(), key=lambda item: (len(item[0]), item[0])):
        # where all are women, a record without a sex is as impossible as one with two
        if len(members) < (1 if prefix in KNOWN else 2) or taken[members].any():
            continue
        holds = _rule(records, members)
        if holds is not None:
            origin: Origin = "known" if prefix in KNOWN or prefix.endswith(DECILE) else "found"
            taken[members] = True
            found.append(Group(f"{prefix}*", tuple(members), holds, origin))
    return Groups(len(codes), tuple(found))


def _prefixes(codes: Sequence[str]) -> dict[str, list[int]]:
    """Codes by what stands before any of their delimiters, and labs by what stands before their decile."""
    prefixes: dict[str, list[int]] = {}
    for number, code in enumerate(codes):
        stem, mark, decile = code.rpartition(DECILE)
        if mark and decile.isdigit():  # deciles of one lab; the lab itself shares nothing with others
            ends = {len(stem) + len(mark)}
        else:
            ends = {place + 1 for place, character in enumerate(code) if character in DELIMITERS}
        for end in ends:
            prefixes.setdefault(code[:end], []).append(number)
    return prefixes


def _rule(records: Records, members: Sequence[int]) -> Rule | None:
    """What holds of these codes in the records; None if nothing does, or if it may be chance."""
    if len(records) < FEWEST_RECORDS:
        return None
    held = records.number_of(members)
    if (held > 1).mean() > NOISE:
        return None
    if (held == 0).mean() <= NOISE:
        return "exactly one"
    share = records.prevalence()[list(members)]
    expected = len(records) * (share.sum() ** 2 - (share**2).sum()) / 2
    return "at most one" if expected >= EXPECTED_MEETINGS and (held > 1).sum() == 0 else None
