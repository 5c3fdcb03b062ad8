"""Histories are drawn visit after visit, a batch of patients together; those who have ended drop out.

A visit is drawn as a record is (worker/engine/reveal.py), with what is known of earlier visits beside it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ehr.histories import Histories
from ehr.records import Records
from worker.engine.blocks import Ties, blocks_of_chunk
from worker.engine.conditioning import possible_sizes
from worker.engine.denoisers.beside import Beside
from worker.engine.histories.earlier import Journal
from worker.engine.histories.gaps import FIRST
from worker.engine.histories.network import VisitDenoiser
from worker.engine.histories.tokens import VisitTokens, in_order
from worker.engine.noise import ABSENT, HIDDEN, PRESENT
from worker.engine.reveal import deal_offsets, reveal_sample
from worker.engine.rules import RuleTable


@dataclass(frozen=True)
class VisitModel:
    """A trained network and what is needed to draw visits from it."""

    network: VisitDenoiser
    tokens: VisitTokens
    prevalence: Tensor  # (tokens,)
    ties: Ties
    most_visits: int
    steps: int  # network calls for a visit

    @property
    def device(self) -> torch.device:
        return self.prevalence.device

    def journal(self, patients: int) -> Journal:
        return Journal(patients, self.tokens.n_codes, self.network.width_of_state, self.device)

    @torch.no_grad()
    def beside(self, journal: Journal) -> Beside:
        return self.network.beside(journal.earlier(), journal.state)

    @torch.no_grad()
    def note(self, journal: Journal, codes: Tensor, gaps: Tensor) -> None:
        """One more visit of every patient, with these codes (B, N) bool, so many days after the one before."""
        journal.note(codes, gaps)
        journal.state = self.network.next_state(codes, journal.numbers(), journal.state)

    def start(self, number: int, static: Tensor) -> Tensor:
        """What a visit begins with, (B, tokens): the first knows that it is one, later ones who the patient is."""
        tokens, x = self.tokens, torch.full((len(static), len(self.tokens)), HIDDEN, dtype=torch.uint8)
        x = x.to(self.device)
        if number == 0:
            x[:, tokens.first_gap : tokens.first_end] = ABSENT
            x[:, tokens.first_gap + FIRST] = PRESENT
        else:
            x[:, tokens.first_static : tokens.first_gap] = static
            x[:, tokens.first_gap + FIRST] = ABSENT
        if number + 1 == self.most_visits:
            x[:, tokens.first_end] = ABSENT
            x[:, tokens.last] = PRESENT
        return self.closed(x)

    @cached_property
    def rules(self) -> RuleTable | None:
        return self.tokens.rule_table.to(self.device) if len(self.tokens.rules) else None

    def closed(self, x: Tensor) -> Tensor:
        """Visits (B, tokens) with what follows by rules from what is known of them, such as who the patient is."""
        if self.rules is not None:
            self.rules.close(x)
        return x

    @torch.no_grad()
    def sizes(self, x: Tensor, beside: Beside, generator: torch.Generator) -> Tensor | None:
        """How many tokens visits that begin as `x` will have, (B,), which is drawn before all of them."""
        log_p = self.network.size_log_probability(x, beside)
        if log_p is None:
            return None
        p = possible_sizes(log_p.double(), x, self.network.noise.groups)
        point = torch.rand(len(x), 1, generator=generator, device=x.device, dtype=torch.float64)
        return torch.searchsorted(p.cumsum(1), point).squeeze(1).clamp(max=p.shape[1] - 1)

    @torch.no_grad()
    def draw(
        self, x: Tensor, size: Tensor | None, beside: Beside, number: int, chunk: "Place", generator: torch.Generator
    ) -> Tensor:
        """Visits (B, tokens) that begin as `x` and have `size` tokens; `number` counts the patient's visits from 0."""
        groups, x = self.network.noise.groups, self.closed(x.clone())
        reading = self.network.reading(x, size, beside)
        hidden = (x == HIDDEN).any(0).nonzero().squeeze(1)
        blocks = blocks_of_chunk(
            hidden, self.prevalence, self.ties, self.steps, chunk.seed, chunk.number + number, groups, self._leading()
        )
        offsets = deal_offsets(len(self.tokens), chunk.seed, chunk.number * self.most_visits + number).to(x.device)
        return reveal_sample(reading, blocks, offsets, generator, groups, self.rules)

    def _leading(self) -> Sequence[Tensor]:
        """Gap and ending come before codes, and so do groups that rules are about."""
        tokens = self.tokens
        spans = ((tokens.first_gap, tokens.first_end), (tokens.first_end, len(tokens)))
        of_rules = [] if self.rules is None else self.rules.leading
        return [*(torch.arange(*span, device=self.device) for span in spans), *of_rules]


@dataclass(frozen=True)
class Place:
    """Which part of which cohort is drawn."""

    seed: int
    number: int


@dataclass
class Drawn:
    """Visits as they were drawn: all first visits, then all second ones. Patients are slots from 0 on."""

    tokens: VisitTokens
    static: Tensor  # (slots, static codes) uint8
    visits: list[Records] = field(default_factory=list)
    gaps: list[NDArray[np.int64]] = field(default_factory=list)
    places: list[NDArray[np.int64]] = field(default_factory=list)  # of each slot's visit among those of its number; -1

    def add(self, slots: NDArray[np.int64], x: Tensor, gaps: NDArray[np.int64]) -> None:
        place = np.full(len(self.static), -1)
        place[slots] = np.arange(len(slots))
        self.places.append(place)
        self.visits.append(self.tokens.split(x.cpu().numpy())[0])
        self.gaps.append(gaps)

    def keep(self, slots: NDArray[np.int64]) -> None:
        """Forget all patients but `slots`, which may name some more than once."""
        self.static = self.static[torch.from_numpy(slots).to(self.static.device)]
        self.places = [place[slots] for place in self.places]

    def histories(self) -> Histories:
        patients, rows, first = [], [], 0
        for place, visits in zip(self.places, self.visits, strict=True):
            there = np.flatnonzero(place >= 0)
            patients.append(there)
            rows.append(first + place[there])
            first += len(visits)
        chosen = np.concatenate(rows)
        static, codes = np.nonzero(self.static.cpu().numpy())
        return in_order(
            np.concatenate(patients),
            np.concatenate(self.gaps)[chosen],
            Records.concatenate(self.visits).take(chosen),
            Records.from_pairs(static, self.tokens.static[codes], len(self.static), self.tokens.n_codes),
        )


def draw_histories(model: VisitModel, patients: int, chunk: Place, seed: int) -> Histories:
    """Any patients."""
    generator, rng = torch.Generator(model.device).manual_seed(seed), np.random.default_rng(seed)
    tokens, journal = model.tokens, model.journal(patients)
    slots = np.arange(patients)
    static = torch.zeros(patients, len(tokens.static), dtype=torch.uint8, device=model.device)
    drawn = Drawn(tokens, static)
    for number in range(model.most_visits):
        x, beside = model.start(number, static), model.beside(journal)
        x = model.draw(x, model.sizes(x, beside, generator), beside, number, chunk, generator)
        if number == 0:
            drawn.static = static = x[:, tokens.first_static : tokens.first_gap]
        gaps = gaps_of(tokens, x, rng)
        drawn.add(slots, x, gaps)
        going_on = (x[:, tokens.last] == ABSENT).nonzero().squeeze(1)
        if len(going_on) == 0:
            break
        model.note(journal, x[:, : tokens.n_codes] == PRESENT, torch.from_numpy(gaps).to(model.device))
        journal.keep(going_on)
        static, slots = static[going_on], slots[going_on.cpu().numpy()]
    return drawn.histories()


def gaps_of(tokens: VisitTokens, x: Tensor, rng: np.random.Generator) -> NDArray[np.int64]:
    """Days before each of the visits (B, tokens), (B,)."""
    buckets = x[:, tokens.first_gap : tokens.first_end].argmax(1).cpu().numpy()
    return tokens.gaps.days(buckets, rng)
