"""Conditions on histories: what each visit is told before it is drawn, and how likely that was.

For every patient it is decided first at which visits what is asked for will happen (`events`). On the way there codes
that must not have come yet are absent and the history may not end; at the visit itself one of the codes is present.
Each step weighs a patient by the network's probability of what it was told, beside the mean of all patients (`pilot`):
where a code that was likely all along was kept away, the patient counts for less.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ehr.conditions import Condition
from ehr.errors import ConditionError
from ehr.history_conditions import MOST_DAYS, HistoryCondition
from worker.engine.denoisers import Reading
from worker.engine.groups import GroupTable
from worker.engine.histories.asked_rules import rules_under, shut_static
from worker.engine.histories.earlier import Journal
from worker.engine.histories.events import Plan, events_of, planned
from worker.engine.histories.gaps import Room
from worker.engine.histories.pilot import LEAST, Pilot
from worker.engine.histories.walk import VisitModel
from worker.engine.noise import ABSENT, HIDDEN, PRESENT


class Steering:
    """A condition in the tokens of a model, and what it says of each visit."""

    def __init__(self, model: VisitModel, condition: HistoryCondition) -> None:
        rules = rules_under(model.tokens, condition)
        self.model = model if rules is model.tokens.rules else replace(model, tokens=replace(model.tokens, rules=rules))
        self.condition = condition
        self.given = 0 if condition.prompt is None else len(condition.prompt.visits)
        least, most = condition.visits
        self.most = min(model.most_visits, model.most_visits if most is None else most)
        if condition.fewest_visits > self.most:
            raise ConditionError(
                f"at least {condition.fewest_visits} visits are asked for, but the model knows patients with "
                f"{self.most} at most"
            )
        self.least = max(least, condition.fewest_visits)
        sets, self.orders = events_of(condition)
        self.events = [self._tokens(codes) for codes in sets]
        self.shut = shut_static(self.model.tokens, sets) if condition.prompt is None else []
        for codes in self.events:
            if not bool((model.prevalence[codes] > 0).any()):
                raise ConditionError("no visit of the training patients has any of the codes that are asked for")

    def _tokens(self, codes: frozenset[int]) -> Tensor:
        return torch.tensor(sorted(codes), dtype=torch.long, device=self.model.device)

    def plan(self, slots: int, pilot: Pilot | None, rng: np.random.Generator) -> tuple[Plan, Tensor]:
        """When the events happen for each slot, and the log weights (slots,) that slots begin with."""
        between = self.given, self.most - 1
        when, log_weight = planned(slots, len(self.events), self.orders, between, pilot, rng)
        needed = np.maximum(when.max(axis=1, initial=0), self.least - 1)
        tensors = [torch.from_numpy(each).to(self.model.device) for each in (when, needed, log_weight)]
        return Plan(tensors[0], tensors[1]), tensors[2]

    # --- what a visit is told ---

    @torch.no_grad()
    def tell(
        self,
        reading: Reading,
        number: int,
        journal: Journal,
        plan: Plan,
        pilot: Pilot | None,
        generator: torch.Generator,
        rng: np.random.Generator,
    ) -> "Told":
        """What the visits that are being read must be. `plan` is that of these B patients."""
        x = reading.x
        told = Told(x.clone(), torch.zeros(len(x), dtype=torch.float64, device=x.device))
        if self.condition.days != (0, None) and number >= max(self.given, 1):
            self._tell_gap(told, reading, number, journal, plan, generator, rng)
        absent, due = self._rules(number, plan, x)
        going, ending = self._endings(number, journal, plan, told)
        asked = absent.any(0)
        for _, codes in due:
            asked[codes] = True
        tokens = self.model.tokens
        if bool((going | ending).any()):
            asked[tokens.first_end :] = True
        codes = _with_whole_groups(asked, self.model.network.noise.groups)
        if len(codes) == 0:
            return told
        p = self._probability(reading, codes)
        place = torch.full((len(tokens),), -1, device=x.device)
        place[codes] = torch.arange(len(codes), device=x.device)
        self._tell_ending(told, p, place, number, going, ending, pilot)
        self._tell_absent(told, p, codes, absent[:, codes])
        for rows, members in due:
            self._tell_present(told, rows, members, p[:, place[members]], absent[:, members], generator)
        if pilot is not None:
            self._beside_pilot(told, number, plan, pilot)
        return told

    @torch.no_grad()
    def chances(self, reading: Reading) -> tuple[Tensor, Tensor]:
        """The chance that each event happens at the visits, (B, events), and that others follow, (B,)."""
        x = reading.x
        asked = torch.zeros(x.shape[1], dtype=torch.bool, device=x.device)
        for codes in (*self.events, torch.tensor([self.model.tokens.last], device=x.device)):
            asked[codes] = True
        codes = _with_whole_groups(asked, self.model.network.noise.groups)
        p = torch.zeros(x.shape, dtype=torch.float64, device=x.device)
        p[:, codes] = self._probability(reading, codes)
        happens = [1 - (1 - p[:, codes]).prod(1) for codes in self.events]
        return torch.stack(happens, dim=1), p[:, self.model.tokens.first_end]

    def _rules(self, number: int, plan: Plan, x: Tensor) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """What must be absent, (B, tokens) bool, and (rows, tokens of which one must be present)."""
        absent = torch.zeros(x.shape, dtype=torch.bool, device=x.device)
        due: list[tuple[Tensor, Tensor]] = []
        everyone = torch.ones(len(x), dtype=torch.bool, device=x.device)
        for event, codes in enumerate(self.events):
            absent[:, codes] |= (plan.when[:, event] > number).unsqueeze(1)
            due.append((plan.when[:, event] == number, codes))
        absent[:, sorted(self.condition.never)] = True
        for _, condition in (each for each in self.condition.at_visit if each[0] == number + 1):
            absent[:, sorted(condition.none_of)] = True
            due += [(everyone, self._tokens(group - condition.none_of)) for group in _groups(condition)]
        start = self.condition.start
        if number == 0:
            absent[:, self.shut] = True
        if number == 0 and start is not None:
            absent[:, self._static(start.none_of)] = True
            due += [(everyone, self._static(group - start.none_of)) for group in _groups(start)]
        return absent, [(rows, codes) for rows, codes in due if bool(rows.any())]

    def _static(self, codes: frozenset[int]) -> Tensor:
        tokens = self.model.tokens
        found = [place for place, code in enumerate(tokens.static.tolist()) if code in codes]
        if codes and not found:
            raise ConditionError("no training patient has any of the static codes that the start asks for")
        return torch.tensor(found, dtype=torch.long, device=self.model.device) + tokens.first_static

    def _endings(self, number: int, journal: Journal, plan: Plan, told: "Told") -> tuple[Tensor, Tensor]:
        """Whose history must go on after this visit and whose must end, (B,) bool each."""
        shortest, longest = self.condition.days
        day = journal.day + (0 if told.gaps is None else torch.from_numpy(told.gaps).to(journal.day))
        going = plan.last_needed > number
        if shortest > 0:
            going = going | ((day < shortest) & (number + 1 < self.most))
        ending = torch.full_like(going, number + 1 == self.most)
        if longest is not None:
            ending = ending | (day + self._shortest_gap() > longest)
        return going & ~ending, ending

    # --- how it is told ---

    def _probability(self, reading: Reading, codes: Tensor) -> Tensor:
        """p of each code given all that is revealed, (B, C), members of groups by their softmax."""
        inside = self.model.network.noise.groups.inside(codes)
        hidden, logits = reading.x[:, codes] == HIDDEN, reading.logits(codes)
        p = torch.sigmoid(logits) * hidden if inside is None else inside.in_full(logits, hidden)
        return p.double()

    def _tell_ending(
        self, told: "Told", p: Tensor, place: Tensor, number: int, going: Tensor, ending: Tensor, pilot: Pilot | None
    ) -> None:
        tokens = self.model.tokens
        if int(place[tokens.last]) < 0:
            return
        open_ = told.x[:, tokens.last] == HIDDEN
        for rows, yes, no in ((going, tokens.first_end, tokens.last), (ending, tokens.last, tokens.first_end)):
            weight = p[:, place[yes]].clamp(min=LEAST).log()
            if pilot is not None and yes == tokens.first_end:
                weight = weight - np.log(max(float(pilot.goes_on[number]), LEAST))
            told.log_weight += torch.where(rows & open_, weight, 0.0)
            told.x[rows, yes], told.x[rows, no] = PRESENT, ABSENT

    def _tell_absent(self, told: "Told", p: Tensor, codes: Tensor, absent: Tensor) -> None:
        groups = self.model.network.noise.groups
        absent = absent & (told.x[:, codes] == HIDDEN)
        inside = groups.inside(codes)
        gone = torch.where(absent, p, 0.0)
        if inside is not None:  # of a group the members that go are one event
            together = inside.total(gone[:, inside.codes])
            told.log_weight += torch.log1p(-together.clamp(max=1 - LEAST)).sum(1)
            gone = gone.clone()
            gone[:, inside.codes] = 0.0
        told.log_weight += torch.log1p(-gone.clamp(max=1 - LEAST)).sum(1)
        told.x[:, codes] = torch.where(absent, ABSENT, told.x[:, codes])

    def _tell_present(
        self, told: "Told", rows: Tensor, members: Tensor, p: Tensor, absent: Tensor, generator: torch.Generator
    ) -> None:
        """One member, by the network's probabilities. With Z their sum, a visit that comes out with k of them was
        proposed k / Z times as often as the network would have it: Z is weighed here, k when the visit is drawn."""
        state = told.x[:, members]
        rows = rows & ~(state == PRESENT).any(1)  # unless it is there already
        p = torch.where((state == HIDDEN) & ~absent, p.clamp(min=LEAST), 0.0)
        total = p.sum(1)
        told.log_weight += torch.where(rows, total.clamp(min=1e-300).log(), 0.0)
        rows = rows & (total > 0)
        some = rows.nonzero().squeeze(1)
        if len(some) == 0:
            return
        chosen = members[torch.multinomial(p[some], 1, generator=generator).squeeze(1)]
        groups = self.model.network.noise.groups
        number = groups.group_of[chosen]
        others = (groups.group_of.unsqueeze(0) == number.unsqueeze(1)) & (number >= 0).unsqueeze(1)  # (some, tokens)
        told.x[some] = torch.where(others & (told.x[some] == HIDDEN), ABSENT, told.x[some])
        told.x[some, chosen] = PRESENT
        told.proposed.append((rows, members))

    def _beside_pilot(self, told: "Told", number: int, plan: Plan, pilot: Pilot) -> None:
        """Weights beside the pilot's, so that patients with other plans compare on the way."""
        for event in range(len(self.events)):
            hazard = float(np.clip(pilot.hazards[event][number], LEAST, 1 - LEAST))
            told.log_weight -= torch.where(plan.when[:, event] > number, np.log1p(-hazard), 0.0)
            told.log_weight -= torch.where(plan.when[:, event] == number, np.log(hazard), 0.0)

    # --- days ---

    def _shortest_gap(self) -> int:
        return int(self.model.tokens.gaps.edges[0])

    def _tell_gap(
        self,
        told: "Told",
        reading: Reading,
        number: int,
        journal: Journal,
        plan: Plan,
        generator: torch.Generator,
        rng: np.random.Generator,
    ) -> None:
        """The gap before this visit, by the network's probabilities of those that the days leave room for."""
        tokens, (shortest, longest) = self.model.tokens, self.condition.days
        day = journal.day.cpu().numpy().astype(np.int64)
        to_come = (plan.last_needed - number).clamp(min=0).cpu().numpy()
        low = np.where(number + 1 == self.most, shortest - day, 0).clip(0)
        high = np.full(len(day), MOST_DAYS) if longest is None else longest - day - to_come * self._shortest_gap()
        room = Room.between(tokens.gaps, low, high.clip(0))
        codes = torch.arange(tokens.first_gap, tokens.first_end, device=told.x.device)
        share = torch.from_numpy(room.share).to(told.x.device)
        p = self._probability(reading, codes)[:, 1:].clamp(min=LEAST) * share
        told.log_weight += p.sum(1).log()
        bucket = torch.multinomial(p, 1, generator=generator).squeeze(1)
        chosen = torch.nn.functional.one_hot(bucket + 1, len(tokens.gaps)).bool()
        reading.reveal(codes, chosen)
        told.x[:, codes] = chosen.to(told.x.dtype)
        told.gaps = room.days(bucket.cpu().numpy(), rng)


@dataclass
class Told:
    """Visits with what they were told, and what that weighs."""

    x: Tensor  # (B, tokens)
    log_weight: Tensor  # (B,)
    gaps: NDArray[np.int64] | None = None  # (B,) days, where they were drawn already

    def __post_init__(self) -> None:
        self.proposed: list[tuple[Tensor, Tensor]] = []  # (rows, members of which one was put there)

    def weigh(self, x: Tensor) -> Tensor:
        """The log weight once the visits are drawn, (B,)."""
        weight = self.log_weight
        for rows, members in self.proposed:
            number = (x[:, members] == PRESENT).sum(1).clamp(min=1)
            weight = weight - torch.where(rows, number.double().log(), 0.0)
        return weight


def _groups(condition: Condition) -> list[frozenset[int]]:
    return [*(frozenset([code]) for code in condition.all_of), *condition.any_of]


def _with_whole_groups(asked: Tensor, groups: GroupTable) -> Tensor:
    """The tokens that are asked for (tokens,) bool, and all members of their groups: a softmax needs them."""
    touched = torch.zeros(len(groups), dtype=torch.bool, device=asked.device)
    touched[groups.segment[asked[groups.codes]]] = True
    asked = asked.clone()
    asked[groups.codes[touched[groups.segment]]] = True
    return asked.nonzero().squeeze(1)
