"""Rules: codes that are never in one record, and codes that never come without another.

A rule is `certain` where medicine says so and the data agrees (`ehr/codes/edits.py`): no record breaks it, and a
condition that contradicts it is refused. Other rules were found in training records, which have none that breaks them
although chance would have it so. They are habits rather than laws: unseen records break one now and then. So every
sampler keeps them, but a condition that asks for both codes of a pair has its way.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ehr.codes.edits import reason_of
from ehr.conditions import Condition, Target
from ehr.errors import ConditionError, DataError
from ehr.groups import Groups
from ehr.pairs import NO_PAIRS, Links, Pairs, as_pairs, expanded, listed, ordered, unlisted
from ehr.records import Records

MOST_WAYS = 4096  # in which the any_of of a condition is tried to be met


@dataclass(frozen=True)
class Rules:
    """Pairs over the vocabulary of `groups`, in indices: what excludes what, and what comes only with what."""

    groups: Groups
    excludes: Pairs = field(default_factory=lambda: NO_PAIRS)  # (P, 2), the smaller index first
    implies: Pairs = field(default_factory=lambda: NO_PAIRS)  # (Q, 2): a record with the first has the second
    certain: Pairs = field(default_factory=lambda: NO_PAIRS)  # those of `excludes` that may not be asked for either

    def __post_init__(self) -> None:
        for pairs in (self.excludes, self.implies, self.certain):
            if len(pairs) and not (pairs.min() >= 0 and pairs.max() < self.n_codes):
                raise DataError("a rule names a code outside the vocabulary")

    @classmethod
    def of(cls, groups: Groups, excludes: ArrayLike = (), implies: ArrayLike = (), certain: ArrayLike = ()) -> "Rules":
        """From pairs in any order; what is certain is excluded too, and what groups say needs no rule."""
        certain_pairs = ordered(certain, groups)
        both = np.concatenate([ordered(excludes, groups), certain_pairs])
        return cls(groups, np.unique(both, axis=0), as_pairs(implies), certain_pairs)

    @property
    def n_codes(self) -> int:
        return self.groups.n_codes

    def __len__(self) -> int:
        return len(self.excludes) + len(self.implies)

    # --- records ---

    def broken_by(self, records: Records) -> NDArray[np.bool_]:
        """Which records break a rule, (R,)."""
        broken = np.zeros(len(records), dtype=bool)
        broken[self._broken_pairs(records)[0]] = True
        return broken

    def breaks(self, records: Records) -> list[tuple[int, int, int]]:
        """(first code, second code, records that break their rule), the commonest first."""
        _, pairs = self._broken_pairs(records)
        found, counts = np.unique(pairs, axis=0, return_counts=True)
        order = np.argsort(-counts, kind="stable")
        return [(int(a), int(b), int(n)) for (a, b), n in zip(found[order], counts[order], strict=True)]

    def _broken_pairs(self, records: Records) -> tuple[NDArray[np.int64], Pairs]:
        """(record, pair) wherever a record breaks a rule. Memory follows the codes of records times their rules."""
        rows, pairs = [np.zeros(0, dtype=np.int64)], [NO_PAIRS]
        for start in range(0, len(records), 65_536):
            part = records.take(np.arange(start, min(start + 65_536, len(records))))
            key = part.rows() * self.n_codes + part.indices  # ascending: records keep their codes in order
            for links, breaks_if in ((self._excluded_by_first, True), (self._implied, False)):
                row, first, second = expanded(part, links)
                wanted = row * self.n_codes + second
                at = np.minimum(np.searchsorted(key, wanted), max(len(key) - 1, 0))
                hit = (key[at] == wanted) == breaks_if if len(key) else np.zeros(0, dtype=bool)
                rows.append(row[hit] + start)
                pairs.append(np.stack([first[hit], second[hit]], axis=1).astype(np.int32))
        return np.concatenate(rows), np.concatenate(pairs)

    @cached_property
    def _excluded_by_first(self) -> Links:
        return Links.of(self.excludes, self.n_codes)

    @cached_property
    def _implied(self) -> Links:
        return Links.of(self.implies, self.n_codes)

    def without(self, condition: Condition | None) -> "Rules":
        """The rules that a record may still be held to when the condition asks for what breaks some of them."""
        if condition is None:
            return self
        asked = np.zeros(self.n_codes, dtype=bool)
        asked[sorted(condition.all_of.union(*condition.any_of))] = True
        refused = np.zeros(self.n_codes, dtype=bool)
        refused[sorted(condition.none_of)] = True
        kept = ~(asked[self.excludes].all(axis=1))
        implied = ~(asked[self.implies[:, 0]] & refused[self.implies[:, 1]])
        return replace(self, excludes=self.excludes[kept], implies=self.implies[implied])

    # --- all that follows ---

    @cached_property
    def excluded(self) -> Links:
        """What each code excludes, with all that follows from implications and groups; not its own group."""
        return Links.of(self._closed_exclusions(), self.n_codes)

    @cached_property
    def implied(self) -> Links:
        """What each code comes with, over any number of steps."""
        pairs = [(code, other) for code, others in self._reach.items() for other in sorted(others)]
        return Links.of(as_pairs(pairs), self.n_codes)

    @cached_property
    def implying(self) -> Links:
        """Which codes come only with each code."""
        pairs = [(other, code) for code, others in self._reach.items() for other in sorted(others)]
        return Links.of(as_pairs(pairs), self.n_codes)

    @cached_property
    def only_certain(self) -> "Rules":
        """The rules that hold whatever is asked for."""
        return Rules(self.groups, self.certain, NO_PAIRS, self.certain)

    @cached_property
    def _reach(self) -> dict[int, set[int]]:
        direct: dict[int, set[int]] = {}
        for code, other in self.implies.tolist():
            direct.setdefault(code, set()).add(other)
        reach: dict[int, set[int]] = {}
        for code in direct:
            found, open_codes = set[int](), [code]
            while open_codes:
                new = direct.get(open_codes.pop(), set()) - found - {code}
                found |= new
                open_codes += new
            reach[code] = found
        return reach

    def _closed_exclusions(self) -> Pairs:
        """Both directions of every pair that cannot be in one record, but for pairs of one group."""
        pairs = {tuple(pair) for pair in self.excludes.tolist()}
        pairs |= self._pairs_of_implied_members()
        before = set[tuple[int, int]]()
        while pairs != before:  # what two codes leave of one group can leave nothing of the next
            before = pairs
            pairs = self._carried(pairs)
            pairs = pairs | self._leaving_no_member(pairs)
        both = ordered(sorted(pairs), self.groups)
        return np.concatenate([both, both[:, ::-1]])

    def _pairs_of_implied_members(self) -> set[tuple[int, int]]:
        """Members of a group exclude each other, and so do the codes that come only with them."""
        group_of = self.groups.group_of
        members = {other for others in self._reach.values() for other in others if group_of[other] >= 0}
        return {(member, other) for member in members for other in self.groups.groups[group_of[member]].codes} - {
            (member, member) for member in members
        }

    def _carried(self, pairs: set[tuple[int, int]]) -> set[tuple[int, int]]:
        """If b excludes d, whatever comes only with b excludes whatever comes only with d."""
        carriers: dict[int, list[int]] = {}
        for code, others in self._reach.items():
            for other in others:
                carriers.setdefault(other, [other]).append(code)
        if not carriers:
            return pairs
        return {(a, c) for b, d in pairs for a in carriers.get(b, (b,)) for c in carriers.get(d, (d,)) if a != c}

    def _leaving_no_member(self, pairs: set[tuple[int, int]]) -> set[tuple[int, int]]:
        """Two codes that together exclude every member of a group of which one must be there."""
        found: set[tuple[int, int]] = set()
        links = as_pairs(sorted(pairs | {(b, a) for a, b in pairs}))
        for group in self.groups.groups:
            if group.is_optional:
                continue
            place = np.full(self.n_codes, -1)
            place[list(group.codes)] = np.arange(len(group.codes))
            own = links[(place[links[:, 1]] >= 0) & (place[links[:, 0]] < 0)]
            codes, which = np.unique(own[:, 0], return_inverse=True)
            shut = np.zeros((len(codes), len(group.codes)), dtype=np.float32)
            shut[which, place[own[:, 1]]] = 1
            left = (1 - shut) @ (1 - shut).T  # members that both leave open
            a, b = np.nonzero(np.triu(left == 0, 1))
            found |= set(zip(codes[a].tolist(), codes[b].tolist(), strict=True))
        return found

    # --- conditions ---

    def settled(self, condition: Condition, codes: Sequence[str] | None = None) -> Condition:
        """The condition with all that follows from it by groups and rules; ConditionError if it contradicts what is
        certain. A rule that was found gives way to the condition."""
        hard = self.only_certain._followed(condition, codes)
        if len(self) == len(self.certain):
            return hard
        all_of, none_of = set(hard.all_of), set(hard.none_of)
        shut = {other for code in all_of for other in self.excluded[code]} - all_of
        shut |= {code for absent in none_of for code in self.implying[absent]} - all_of
        for wanted in (*hard.any_of, *(set(g.codes) for g in self.groups.groups if not g.is_optional)):
            if wanted <= none_of | shut:  # the rules that were found would leave nothing
                shut -= wanted
        brought = {other for code in all_of for other in self.implied[code]} - none_of - shut
        for more, fewer in ((brought, shut), (set[int](), shut), (set[int](), set[int]())):
            try:
                wider = Condition.of(self.n_codes, all_of | more, hard.any_of, none_of | fewer)
                return self.only_certain._followed(wider, codes)
            except ConditionError:
                continue
        return hard

    def _followed(self, condition: Condition, codes: Sequence[str] | None) -> Condition:
        """All that follows from the condition; ConditionError naming the rule or group it contradicts."""
        while True:
            all_of, none_of = condition.all_of, set(condition.none_of)
            for code in sorted(all_of):
                for other in self.excluded[code]:
                    if other in all_of:
                        raise ConditionError(f"{_named(codes, code, other)}: {reason_of(codes, code, other)}")
                    none_of.add(other)
            for wanted in condition.any_of:
                if wanted <= none_of:
                    code = next(code for code in sorted(all_of) if set(self.excluded[code]) & wanted)
                    other = min(set(self.excluded[code]) & wanted)
                    raise ConditionError(f"{_named(codes, code, other)}: {reason_of(codes, code, other)}")
            further = self.groups.settled(replace(condition, none_of=frozenset(none_of)), codes)
            if further == condition:
                return condition
            condition = further

    def check(self, condition: Condition, targets: Sequence[Target], codes: Sequence[str]) -> None:
        """ConditionError if no record could meet and miss any selection of the targets."""
        conditions = [condition]
        for target in targets:
            met = [target.required(each)() for each in conditions] if target.share > 0 else []
            missed = [target.excluded(each)() for each in conditions] if target.share < 1 else []
            conditions = met + missed
        for each in conditions:
            self.only_certain._require_a_way(self.only_certain._followed(each, codes), codes)

    def _require_a_way(self, condition: Condition, codes: Sequence[str] | None) -> None:
        """ConditionError if no choice of members of its any_of leaves a record that could exist."""
        last: ConditionError | None = None
        open_ways = [(condition, 0)]
        for _ in range(MOST_WAYS):
            if not open_ways:
                raise last or ConditionError("no record could satisfy the condition")
            way, number = open_ways.pop()
            if number == len(way.any_of):
                return
            wanted = way.any_of[number]
            members = [next(iter(wanted & way.all_of))] if wanted & way.all_of else sorted(wanted - way.none_of)
            for member in reversed(members):
                try:
                    chosen = replace(way, all_of=way.all_of | {member})
                    open_ways.append((self._followed(chosen, codes), number + 1))
                except ConditionError as error:
                    last = error

    # --- at rest ---

    def as_json(self) -> dict[str, list[list[int]]]:
        """As manifests keep them, in indices: each list is a code and the codes it is paired with."""
        return {name: listed(getattr(self, name)) for name in ("excludes", "implies", "certain")}

    @classmethod
    def from_json(cls, stored: dict[str, Any], groups: Groups) -> "Rules":
        """What `as_json` gave for the same vocabulary; nothing stored is no rules."""
        return cls(groups, **{name: unlisted(rows) for name, rows in stored.items()})


def _named(codes: Sequence[str] | None, *members: int) -> str:
    names = " and ".join(repr(codes[code]) if codes else str(code) for code in members)
    return f"{names} cannot be in one record"
