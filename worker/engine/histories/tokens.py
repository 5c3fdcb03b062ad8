"""A visit as a record: its codes, what is true of the patient at every visit, the gap before it, and whether it is
the last one. Gap and ending are groups of which exactly one holds, so they are drawn, hidden and fixed as codes are."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ehr.groups import Group, Groups
from ehr.histories import Histories
from ehr.pairs import Pairs, as_pairs
from ehr.records import Records, indptr_of
from ehr.rules import Rules
from worker.engine.histories.gaps import FIRST, GapBuckets
from worker.engine.rules import RuleTable


@dataclass(frozen=True)
class VisitTokens:
    """Tokens are, in this order: N codes of visits, static codes, buckets of gaps, "goes on" and "ends"."""

    n_codes: int
    static: NDArray[np.int64]  # (S,) codes that are static for some patient, ascending
    gaps: GapBuckets
    rules: Rules  # of tokens, and of their groups

    @classmethod
    def of(
        cls,
        histories: Histories,
        visit_groups: Groups | None = None,
        static_groups: Groups | None = None,
        rules: Rules | None = None,
    ) -> Self:
        """The tokens of these patients; the groups are of codes, within visits and within static codes, the rules of
        visits with what is true of their patient (`Histories.visits_with_static`)."""
        gaps = GapBuckets.of(histories)
        static = np.unique(histories.static.indices).astype(np.int64)
        groups = _groups_of(histories.n_codes, static, gaps, visit_groups, static_groups)
        return cls(histories.n_codes, static, gaps, _rules_of(rules, histories.n_codes, static, groups))

    @property
    def groups(self) -> Groups:
        return self.rules.groups

    @cached_property
    def rule_table(self) -> RuleTable:
        return RuleTable(self.rules)

    def __len__(self) -> int:
        return self.first_end + 2

    @property
    def first_static(self) -> int:
        return self.n_codes

    @property
    def first_gap(self) -> int:
        return self.n_codes + len(self.static)

    @property
    def first_end(self) -> int:
        """The token that says that the patient comes again; the next one says that this visit is the last."""
        return self.first_gap + len(self.gaps)

    @property
    def last(self) -> int:
        return self.first_end + 1

    def records(self, histories: Histories, cut: NDArray[np.bool_] | None = None) -> Records:
        """One record of tokens for each visit. `cut` (P,): patients of whom later visits were left out."""
        visits, patients = histories.visits, histories.patients()
        static = histories.static.take(patients)
        rows = np.arange(len(visits))
        is_first = np.zeros(len(visits), dtype=bool)
        is_first[histories.offsets[:-1]] = True
        bucket = np.where(is_first, FIRST, self.gaps.bucket(histories.gaps)) if len(self.gaps) > 1 else 0 * rows
        ends = np.full(len(visits), self.first_end)
        ends[histories.offsets[1:] - 1] = self.last if cut is None else np.where(cut, self.first_end, self.last)
        known = np.isin(static.indices, self.static)
        statics = self.first_static + np.searchsorted(self.static, static.indices[known])
        all_rows: list[NDArray[Any]] = [visits.rows(), static.rows()[known], rows, rows]
        codes: list[NDArray[Any]] = [visits.indices, statics, self.first_gap + bucket, ends]
        return Records.from_pairs(np.concatenate(all_rows), np.concatenate(codes), len(visits), len(self))

    # --- at rest ---

    def tensors(self) -> dict[str, Tensor]:
        arrays = {"static": self.static, "gap_edges": self.gaps.edges, "gap_shares": self.gaps.shares}
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    def as_json(self) -> dict[str, Any]:
        groups = self.groups.as_json(range(len(self)))
        rules = {"token_rules": self.rules.as_json()} if len(self.rules) else {}
        return {"codes": self.n_codes, "groups": groups} | rules | told(self.rules_of_codes)

    @classmethod
    def from_state(cls, tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> Self:
        """What `tensors` and `as_json` gave."""
        gaps = GapBuckets(tensors["gap_edges"].numpy(), tensors["gap_shares"].numpy())
        static = tensors["static"].numpy()
        groups = Groups.from_json(config["groups"], range(config["codes"] + len(static) + len(gaps) + 2))
        return cls(config["codes"], static, gaps, Rules.from_json(config.get("token_rules", {}), groups))

    # --- drawn visits ---

    @property
    def rules_of_codes(self) -> Rules:
        """The same of codes of the vocabulary: what holds for visits with what is true of their patient."""
        code_of = np.concatenate([np.arange(self.n_codes), self.static])
        groups = tuple(
            Group(group.name, tuple(int(code_of[token]) for token in group.codes), group.rule, group.origin)
            for group in self.groups.groups
            if max(group.codes) < self.first_gap
        )
        pairs = (code_of[each] for each in (self.rules.excludes, self.rules.implies, self.rules.certain))
        return Rules.of(Groups(self.n_codes, groups), *(np.unique(each, axis=0) for each in pairs))

    def split(self, x: NDArray[np.uint8]) -> tuple[Records, Records]:
        """(codes of visits, static codes) of drawn tokens (B, tokens), both in the vocabulary."""
        visits = Records.from_dense(x[:, : self.n_codes])
        rows, places = np.nonzero(x[:, self.first_static : self.first_gap])
        return visits, Records.from_pairs(rows, self.static[places], len(x), self.n_codes)


def told(rules: Rules) -> dict[str, Any]:
    """Groups and rules as a description of drawn patients reads them, in indices of the vocabulary."""
    return {"visit_groups": rules.groups.as_json(range(rules.n_codes)), "visit_rules": rules.as_json()}


def in_order(patients: NDArray[np.int64], gaps: NDArray[np.int64], visits: Records, static: Records) -> Histories:
    """Histories of drawn visits, each with its patient and the gap before it, in the order in which they were drawn:
    all first visits, then all second ones, and so on."""
    order = np.argsort(patients, kind="stable")
    offsets = indptr_of(np.bincount(patients, minlength=len(static)))
    return Histories(visits.take(order), offsets, gaps[order].astype(np.int32), static)


def _groups_of(
    n_codes: int,
    static: NDArray[np.int64],
    gaps: GapBuckets,
    visit_groups: Groups | None,
    static_groups: Groups | None,
) -> Groups:
    first_gap, first_end = n_codes + len(static), n_codes + len(static) + len(gaps)
    place = {int(code): n_codes + number for number, code in enumerate(static)}
    groups = list(visit_groups.groups) if visit_groups is not None else []
    for group in static_groups.groups if static_groups is not None else ():
        members = tuple(place[code] for code in group.codes if code in place)
        if members:
            groups.append(Group(group.name, members, group.rule, group.origin))
    groups.append(Group("gap", tuple(range(first_gap, first_end)), "exactly one"))
    groups.append(Group("ending", (first_end, first_end + 1), "exactly one"))
    return Groups(first_end + 2, tuple(groups))


def _rules_of(rules: Rules | None, n_codes: int, static: NDArray[np.int64], groups: Groups) -> Rules:
    """The rules of tokens: a static code is another token than the same code of a visit, and excludes the same."""
    if rules is None or len(rules) == 0:
        return Rules(groups)
    place = {int(code): n_codes + number for number, code in enumerate(static)}

    def tokens(code: int) -> tuple[int, ...]:
        return (code, place[code]) if code in place else (code,)

    def excluding(pairs: Pairs) -> Pairs:
        return as_pairs([(x, y) for a, b in pairs.tolist() for x in tokens(a) for y in tokens(b)])

    # what a code comes with is the static code wherever there is one: who a patient is does not change
    implies = [(x, place.get(b, b)) for a, b in rules.implies.tolist() for x in tokens(a)]
    return Rules.of(groups, excluding(rules.excludes), implies, excluding(rules.certain))
