"""Patients who satisfy a condition: sequential Monte Carlo over visits, in small independent populations.

Every patient drawn satisfies the condition; weights and resampling make them as those are whom the model would have
drawn anyway (docs/decisions/0081). A patient who is resampled early goes on differently; in the end half of each
population is taken, so that hardly anybody is there twice.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ehr.errors import ConditionError
from ehr.histories import Histories
from ehr.history_conditions import HistoryCondition
from worker.engine.histories.earlier import Journal
from worker.engine.histories.events import Plan
from worker.engine.histories.pilot import LEAST, Pilot
from worker.engine.histories.steering import Steering
from worker.engine.histories.tokens import VisitTokens
from worker.engine.histories.walk import Drawn, Place, gaps_of
from worker.engine.noise import ABSENT, HIDDEN, PRESENT
from worker.engine.smc import POPULATION, resampled, systematic

TAKEN = POPULATION // 2  # of each population
PILOTS = 256  # patients


class Particles:
    """Slots, of which some histories have ended; the journal has a row for each that goes on."""

    def __init__(self, steering: Steering, slots: int, chunk: Place, seed: int) -> None:
        model = self.model = steering.model
        self.steering, self.chunk = steering, chunk
        self.generator = torch.Generator(model.device).manual_seed(seed)
        self.rng = np.random.default_rng(seed)
        self.journal: Journal = model.journal(slots)
        self.alive = torch.arange(slots, device=model.device)
        static = torch.zeros(slots, len(model.tokens.static), dtype=torch.uint8, device=model.device)
        self.drawn = Drawn(model.tokens, static)
        self.log_weight = torch.zeros(slots, dtype=torch.float64, device=model.device)

    def visit(self, number: int, plan: Plan, pilot: Pilot | None) -> Tensor:
        """One more visit of all who go on, (B, tokens)."""
        tokens, prompt = self.model.tokens, self.steering.condition.prompt
        x, beside = self.model.start(number, self.drawn.static[self.alive]), self.model.beside(self.journal)
        is_given = prompt is not None and number < self.steering.given
        if prompt is not None and is_given:
            write_visit(x, tokens, prompt, number)
        mine = Plan(plan.when[self.alive], plan.last_needed[self.alive])
        size = self.model.sizes(x, beside, self.generator)
        reading = self.model.network.reading(x, size, beside)
        told = self.steering.tell(reading, number, self.journal, mine, pilot, self.generator, self.rng)
        if bool((told.x == HIDDEN).any()):
            x = self.model.draw(told.x, size, beside, number, self.chunk, self.generator)
        self.log_weight[self.alive] += told.weigh(x)
        if number == 0:
            self.drawn.static = x[:, tokens.first_static : tokens.first_gap]
        if prompt is not None and is_given:
            gaps = np.full(len(x), int(prompt.gaps[number]))
        else:
            gaps = gaps_of(tokens, x, self.rng) if told.gaps is None else told.gaps
        self.drawn.add(self.alive.cpu().numpy(), x, gaps)
        self.model.note(self.journal, x[:, : tokens.n_codes] == PRESENT, torch.from_numpy(gaps).to(x.device))
        going_on = (x[:, tokens.last] == ABSENT).nonzero().squeeze(1)
        self.journal.keep(going_on)
        self.alive = self.alive[going_on]
        return x

    def resample(self, plan: Plan) -> None:
        """Within populations that have become uneven, some slots take others' place."""
        order = resampled(self.log_weight, self.generator)
        if order is None:
            return
        slots = len(self.log_weight)
        row = torch.full((slots,), -1, device=order.device)
        row[self.alive] = torch.arange(len(self.alive), device=order.device)
        self.drawn.keep(order.cpu().numpy())
        plan.keep(order)
        self.alive = (row[order] >= 0).nonzero().squeeze(1)
        self.journal.keep(row[order][self.alive])
        self.log_weight = torch.zeros_like(self.log_weight)

    def taken(self) -> tuple[Histories, float]:
        """Half of each population by weight, and how many independent patients they are worth."""
        histories = self.drawn.histories()
        met = torch.from_numpy(self.steering.condition.satisfied_by(histories)).to(self.log_weight.device)
        weight = self.log_weight.masked_fill(~met, -torch.inf).view(-1, POPULATION)
        weight = weight[met.view(-1, POPULATION).any(1)].softmax(1)
        if len(weight) == 0:
            raise ConditionError("no patient who satisfies the condition was found: ask for less, or for more visits")
        first = met.view(-1, POPULATION).any(1).nonzero() * POPULATION
        offsets = torch.arange(len(weight), device=weight.device).unsqueeze(1) * POPULATION
        chosen = systematic(weight, self.generator, TAKEN).view(-1, TAKEN) - offsets + first
        share = effective_patients(self.drawn.places, self.log_weight, met) / len(self.log_weight)
        return histories.take(chosen.flatten().cpu().numpy()), min(2 * share, 1.0) * chosen.numel()


def effective_patients(places: list[NDArray[np.int64]], log_weight: Tensor, met: Tensor) -> float:
    """The effective sample size, summed over populations: 1 / sum of squared weights. Slots that have become copies of
    one another, visit by visit (`places`), count as one."""
    _, patient = np.unique(np.stack(places, axis=1), axis=0, return_inverse=True)
    weight = log_weight.masked_fill(~met, -torch.inf).view(-1, POPULATION)
    weight = torch.where(met.view(-1, POPULATION).any(1, keepdim=True), weight, 0.0).softmax(1).cpu()
    population = torch.arange(len(weight)).repeat_interleave(POPULATION)
    same = torch.unique(population * len(patient) + torch.from_numpy(patient.ravel()), return_inverse=True)[1]
    together = torch.zeros(len(same), dtype=weight.dtype).index_add_(0, same, weight.flatten())
    squares = torch.zeros(len(weight), dtype=weight.dtype)
    squares.index_add_(0, population, weight.flatten() * together[same])
    return float((1 / squares).sum())


def write_visit(x: Tensor, tokens: VisitTokens, prompt: Histories, number: int) -> None:
    """Make every row of x (B, tokens) the visit of that number which is given; another one follows."""
    visit = torch.from_numpy(prompt.visits.take([number]).to_dense(np.uint8)).to(x.device)
    x[:, : tokens.n_codes] = visit
    x[:, tokens.first_end], x[:, tokens.last] = PRESENT, ABSENT
    for code in prompt.static.indices.tolist() if number == 0 else ():
        token = tokens.first_static + int(np.searchsorted(tokens.static, code))
        group = int(tokens.groups.group_of[token])
        x[:, np.flatnonzero(tokens.groups.group_of == group) if group >= 0 else []] = ABSENT
        x[:, token] = PRESENT
    if number > 0:
        x[:, tokens.first_gap : tokens.first_end] = ABSENT
        x[:, tokens.first_gap + int(tokens.gaps.bucket(prompt.gaps[[number]])[0])] = PRESENT


def conditioned_histories(
    steering: Steering, pilot: Pilot | None, patients: int, chunk: Place, seed: int
) -> tuple[Histories, float]:
    """Patients who satisfy the steering's condition, and how many independent ones they are worth."""
    slots = -(-patients // TAKEN) * POPULATION
    particles = Particles(steering, slots, chunk, seed)
    plan, particles.log_weight = steering.plan(slots, pilot, particles.rng)
    for number in range(steering.most):
        if len(particles.alive) == 0:
            break
        particles.visit(number, plan, pilot)
        particles.resample(plan)
    histories, effective = particles.taken()
    rows = np.arange(patients) % len(histories)
    return histories.take(rows), effective * patients / len(histories)


def pilot_of(steering: Steering, seed: int) -> Pilot | None:
    """When the events of a condition happen to those who begin as it says; None if there are none."""
    if not steering.events:
        return None
    asked, model = steering.condition, steering.model
    begins = Steering(model, HistoryCondition(asked.n_codes, start=asked.start, prompt=asked.prompt))
    begins.shut = steering.shut
    particles = Particles(begins, PILOTS, Place(seed, 0), seed)
    plan, _ = begins.plan(PILOTS, None, particles.rng)
    open_ = torch.ones(PILOTS, len(steering.events), dtype=torch.bool, device=model.device)
    pilot = Pilot([np.full(steering.most, LEAST) for _ in steering.events], np.full(steering.most, LEAST))
    for number in range(steering.most):
        slots = particles.alive
        if len(slots) == 0:
            break
        if number < steering.given:
            pilot.goes_on[number] = 1.0
            particles.visit(number, plan, None)
            continue
        start, beside = model.start(number, particles.drawn.static[slots]), model.beside(particles.journal)
        size = model.sizes(start, beside, particles.generator)
        happens, goes_on = steering.chances(model.network.reading(start, size, beside))
        pilot.note(number, happens.cpu().numpy(), open_[slots].cpu().numpy(), goes_on.cpu().numpy())
        x = particles.visit(number, plan, None)
        for event, codes in enumerate(steering.events):
            open_[slots, event] &= ~(x[:, codes] == PRESENT).any(1)
    return pilot
