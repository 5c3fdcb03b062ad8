"""The other way to patients over time: the set of a patient's codes first, by the model of records, then its visits.

"Ever X" is a condition on a record then, and exact. Visits are drawn by the network that draws ours; it may use the
codes of the set only, and all of them have to come (docs/decisions/0133).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks._histories import Patients
from ehr.codes.families import families
from ehr.conditions import Condition
from ehr.errors import ConditionError, DataError
from ehr.generators import CHUNK
from ehr.generators.auto import Shape
from ehr.groups import Group, Groups, find_groups
from ehr.histories import Histories
from ehr.history_conditions import HistoryCondition
from ehr.records import Records
from worker.engine.denoisers.beside import Beside
from worker.engine.generators.d3pm import D3PMGenerator
from worker.engine.generators.protocol import FitRequest, SampleRequest, chunk_seed
from worker.engine.generators.visits import VisitsGenerator
from worker.engine.histories.asked_rules import shut_static
from worker.engine.histories.protocol import join
from worker.engine.histories.walk import Drawn, Place, VisitModel, gaps_of
from worker.engine.noise import ABSENT, HIDDEN, PRESENT
from worker.ingestion.rules import find_rules

LEAST = 1e-9  # chance of anything


@dataclass(frozen=True)
class Lengths:
    """Numbers of visits as codes of a record, of which exactly one holds: they follow the N codes of the vocabulary."""

    n_codes: int
    numbers: NDArray[np.int64]  # (L,) of visits that a training patient has, ascending

    def records(self, histories: Histories) -> Records:
        """Each patient as one set: static codes, those of all visits, and how many visits there are."""
        sets, counts = histories.ever(), histories.visit_counts()
        known = np.flatnonzero(np.isin(counts, self.numbers))
        rows = np.concatenate([sets.rows(), known])
        codes = np.concatenate([sets.indices, self.n_codes + np.searchsorted(self.numbers, counts[known])])
        return Records.from_pairs(rows, codes, len(sets), self.n_codes + len(self.numbers)).take(known)

    def names(self, codes: tuple[str, ...]) -> list[str]:
        return [*codes, *(f"VISITS:{number}" for number in self.numbers)]

    def between(self, least: int, most: int | None) -> frozenset[int]:
        """The codes of these numbers of visits."""
        there = (self.numbers >= least) & (self.numbers <= (self.numbers[-1] if most is None else most))
        return frozenset((self.n_codes + np.flatnonzero(there)).tolist())


@dataclass(frozen=True)
class SetFirst:
    """A model of patients as sets, and one of visits."""

    sets: D3PMGenerator
    lengths: Lengths
    visits: VisitsGenerator

    @classmethod
    def fit(cls, data: Patients, visits: VisitsGenerator, epochs: int | None = None) -> Self:
        """Learn sets as the service would learn records: settings, groups, rules and kin by its own rules."""
        if data.train.visits.having_any(visits.tokens.static.tolist()).any():
            raise DataError("a code that is static for some patient is one of visits for another: a set cannot tell")
        lengths = Lengths(data.train.n_codes, np.unique(data.train.visit_counts()))
        train, holdout = lengths.records(data.train), lengths.records(data.holdout)
        names = lengths.names(data.vocabulary.codes)
        found = find_groups(train, names).groups
        of_length = Group("visits", tuple(range(lengths.n_codes, len(names))), "exactly one")
        others = [group for group in found if max(group.codes) < lengths.n_codes]
        groups = Groups(len(names), (*others, of_length))
        changes = {} if epochs is None else {"training": {"epochs": epochs}}
        settings = D3PMGenerator.spec.resolve(None, changes, Shape(len(train), len(names)))
        rules, kin = find_rules(train, names, groups), families(names)
        request = FitRequest(train, holdout, settings.config or {}, groups=groups, rules=rules, families=kin)
        return cls(D3PMGenerator.fit(request), lengths, visits)

    @cached_property
    def _model(self) -> VisitModel:
        return self.visits.model()

    def sample(
        self, n: int, seed: int, condition: HistoryCondition | None = None, paced: bool = True
    ) -> tuple[Histories, Records]:
        """Patients, and the sets that they were to have. `paced`: the number of visits is drawn with the set, and the
        codes are spread over them; else a history ends when it likes, once all codes have come."""
        asked = None if condition is None else self._of_set(condition, paced)
        drawn = self.sets.sample(SampleRequest(n, seed, condition=asked))
        wanted = frozenset() if condition is None else frozenset().union(*condition.ever)
        parts = []
        for number, first in enumerate(range(0, n, CHUNK)):
            some = drawn.take(np.arange(first, min(first + CHUNK, n)))
            unfolding = Unfolding(self._model, some, self.lengths if paced else None, wanted, Place(seed, number))
            parts.append(unfolding.histories())
        sets = Records.from_dense(drawn.to_dense(np.uint8)[:, : self.lengths.n_codes])
        return join(parts, self.lengths.n_codes), sets

    def _of_set(self, condition: HistoryCondition, paced: bool) -> Condition:
        """What the condition says of the set; ConditionError where a set has no say."""
        untold = condition.at_visit or condition.before or condition.prompt is not None or condition.days != (0, None)
        if untold or (condition.visits != (1, None) and not paced):
            raise ConditionError("a set of codes says nothing about visits, days, order or what came first")
        start, tokens = condition.start or Condition.of(condition.n_codes), self.visits.tokens
        # rules of visits keep some codes from some people, though the model of sets may not know of it
        shut = [int(tokens.static[token - tokens.first_static]) for token in shut_static(tokens, list(condition.ever))]
        lengths = [] if condition.visits == (1, None) else [self.lengths.between(*condition.visits)]
        return Condition(
            self.sets.noise.n_codes,
            start.all_of,
            tuple([*condition.ever, *start.any_of, *lengths]),
            condition.never | start.none_of | frozenset(shut),
        ).simplified()


class Unfolding:
    """Patients of whom the set is known, on their way through visits."""

    def __init__(
        self, model: VisitModel, drawn: Records, lengths: Lengths | None, wanted: frozenset[int], chunk: Place
    ) -> None:
        """`wanted` codes come first where two codes of a set cannot be at one visit and only one is left."""
        seed = chunk_seed(chunk.seed, chunk.number)
        self.model, self.chunk = model, chunk
        self.generator = torch.Generator(model.device).manual_seed(seed)
        self.rng = np.random.default_rng(seed)
        sets = torch.from_numpy(drawn.to_dense(np.uint8)).to(model.device)
        n, places = model.tokens.n_codes, torch.from_numpy(model.tokens.static).to(model.device)
        self.static = sets[:, places]
        self.missing = sets[:, :n] == PRESENT  # (B, N) codes that have to come yet
        self.missing[:, places] = False
        self.allowed = self._with_open_groups(self.missing)
        self.visits: Tensor | None = None  # (B,) that each patient will have; None: as it comes
        if lengths is not None:
            numbers = torch.from_numpy(lengths.numbers).to(model.device)
            self.visits = numbers[sets[:, n:].argmax(1)].clamp(max=model.most_visits)
        self.wanted = torch.zeros(n, dtype=torch.float64, device=model.device)
        self.wanted[sorted(wanted)] = 1.0

    def _with_open_groups(self, sets: Tensor) -> Tensor:
        """All members of a group of which every visit has one, for those whose set has none."""
        allowed, n = sets.clone(), sets.shape[1]
        for group in self.model.tokens.groups.groups:
            if not group.is_optional and max(group.codes) < n:
                members = list(group.codes)
                allowed[:, members] |= ~sets[:, members].any(1, keepdim=True)
        return allowed

    def histories(self) -> Histories:
        model, tokens = self.model, self.model.tokens
        journal, slots = model.journal(len(self.static)), np.arange(len(self.static))
        drawn = Drawn(tokens, self.static)
        for number in range(model.most_visits):
            x, beside = self._start(number), model.beside(journal)
            if number == 0:  # what cannot be with who the patient is will never come
                self.missing &= x[:, : tokens.n_codes] != ABSENT
            x = self._told(x, number, beside)
            x = self._drawn(x, number, beside)
            gaps, codes = gaps_of(tokens, x, self.rng), x[:, : tokens.n_codes] == PRESENT
            drawn.add(slots, x, gaps)
            self.missing &= ~codes
            going_on = (x[:, tokens.last] == ABSENT).nonzero().squeeze(1)
            if len(going_on) == 0:
                break
            model.note(journal, codes, torch.from_numpy(gaps).to(model.device))
            journal.keep(going_on)
            self._keep(going_on)
            slots = slots[going_on.cpu().numpy()]
        return drawn.histories()

    def _keep(self, rows: Tensor) -> None:
        self.static, self.missing, self.allowed = self.static[rows], self.missing[rows], self.allowed[rows]
        self.visits = None if self.visits is None else self.visits[rows]

    def _start(self, number: int) -> Tensor:
        """What a visit begins with, (B, tokens): who the patient is, and no code outside the set."""
        tokens = self.model.tokens
        x = self.model.start(number, self.static)
        x[:, tokens.first_static : tokens.first_gap] = self.static
        codes = x[:, : tokens.n_codes]
        x[:, : tokens.n_codes] = torch.where(self.allowed, codes, ABSENT)
        if self.visits is not None:
            is_last = self.visits == number + 1
            x[:, tokens.last], x[:, tokens.first_end] = is_last.to(x.dtype), (~is_last).to(x.dtype)
        return self.model.closed(x)

    def _told(self, x: Tensor, number: int, beside: Beside) -> Tensor:
        """The visits with codes that are due."""
        if self.visits is not None:
            return self._with(x, self._due(x, (self.visits - number).unsqueeze(1), beside))
        return self._with(x, self.missing) if number + 1 == self.model.most_visits else x

    @torch.no_grad()
    def _due(self, x: Tensor, left: Tensor, beside: Beside) -> Tensor:
        """Codes that come now for the set's sake, (B, N), where `left` (B, 1) visits are left, this one included.

        A code that comes with chance h at each of r visits comes now with h / (1 - (1 - h)^r), given that it comes at
        all. The network will see to h; the rest of that is told.
        """
        codes = torch.arange(self.missing.shape[1], device=x.device)
        reading = self.model.network.reading(x, self.model.sizes(x, beside, self.generator), beside)
        hidden, logits = x[:, codes] == HIDDEN, reading.logits(codes)
        inside = self.model.network.noise.groups.inside(codes)
        p = torch.sigmoid(logits) * hidden if inside is None else inside.in_full(logits, hidden)
        h = p.double().clamp(LEAST, 1 - LEAST)
        given = h / -torch.expm1(left * torch.log1p(-h))
        chance = torch.where(left <= 1, 1.0, (given - h) / (1 - h))
        drawn = torch.rand(h.shape, generator=self.generator, device=h.device, dtype=torch.float64)
        return self.missing & (drawn < chance)

    def _with(self, x: Tensor, due: Tensor) -> Tensor:
        """The visits with these codes (B, N), one after the other as long as groups and rules leave room for them."""
        x, due = x.clone(), due.clone()
        group_of, rules = self.model.network.noise.groups.group_of, self.model.rules
        while bool(due.any()):
            order = torch.rand(due.shape, generator=self.generator, device=x.device, dtype=torch.float64) + self.wanted
            chosen = torch.where(due, order, -1.0).argmax(1)
            rows = due.any(1).nonzero().squeeze(1)
            due[rows, chosen[rows]] = False
            rows = rows[x[rows, chosen[rows]] == HIDDEN]
            code = chosen[rows]
            trial, number = x[rows], group_of[code].unsqueeze(1)
            trial[(group_of == number) & (number >= 0)] = ABSENT
            trial[torch.arange(len(rows), device=x.device), code] = PRESENT
            possible = torch.ones_like(rows, dtype=torch.bool) if rules is None else rules.close(trial)
            x[rows[possible]] = trial[possible]
        return x

    def _drawn(self, x: Tensor, number: int, beside: Beside) -> Tensor:
        """The visits (B, tokens). A history that ended before all codes have come goes on: its visit is drawn again."""
        model, tokens = self.model, self.model.tokens
        begun = x
        x = model.draw(begun, model.sizes(begun, beside, self.generator), beside, number, self.chunk, self.generator)
        if self.visits is not None or number + 1 == model.most_visits:
            return x
        lacking = (self.missing & (x[:, : tokens.n_codes] != PRESENT)).any(1)
        again = (lacking & (x[:, tokens.last] == PRESENT)).nonzero().squeeze(1)
        if len(again):
            told, known = begun[again], beside.take(again)
            told[:, tokens.first_end], told[:, tokens.last] = PRESENT, ABSENT
            size = model.sizes(told, known, self.generator)
            x[again] = model.draw(told, size, known, number, self.chunk, self.generator)
        return x
