"""Patients over time by masked diffusion within a visit, visit after visit."""

from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ehr.errors import StateError
from ehr.generators.d3pm import as_stored
from ehr.generators.visits import VISITS, VisitsConfig
from ehr.histories import Histories
from ehr.history_conditions import HistoryCondition
from worker.engine.blocks import Ties
from worker.engine.denoisers.base import prior_logits
from worker.engine.generators.protocol import SampleProgress, State, chunk_seed
from worker.engine.histories.batch import Batch, Learnable, learnable
from worker.engine.histories.calibration import Course, calibrate, recurrences
from worker.engine.histories.likelihood import history_losses, last_visits
from worker.engine.histories.network import VisitDenoiser
from worker.engine.histories.particles import conditioned_histories, pilot_of
from worker.engine.histories.pilot import Pilot
from worker.engine.histories.protocol import (
    HistoryFit,
    HistoryGenerator,
    HistoryLosses,
    HistoryRequest,
    LastVisits,
    histories_in_chunks,
    join,
)
from worker.engine.histories.steering import Steering
from worker.engine.histories.tokens import VisitTokens
from worker.engine.histories.walk import Place, VisitModel, draw_histories
from worker.engine.losses import Elbo
from worker.engine.noise import HIDDEN, AbsorbingNoise
from worker.engine.sizes import size_counts
from worker.engine.training import NO_HOOKS, Hooks, TrainingRun, precision, resolve_device, seeded
from worker.engine.training.histories import HistoryLearner, visits_elbo

STATE_VERSION = 2
PATIENTS_AT_ONCE = 256
CALIBRATED_ON = 30_000  # drawn visits, in each round
# How patients are steered under each condition of a request, and when its events happen.
Ready = dict[HistoryCondition, tuple[Steering, Pilot | None]]


class VisitsGenerator(HistoryGenerator):
    """Tokens of visits, a denoiser of them, and the statistics both were built from."""

    spec = VISITS

    def __init__(
        self,
        config: VisitsConfig,
        tokens: VisitTokens,
        prevalence: Tensor,
        sizes: Tensor,
        most_visits: int,
        seed: int = 0,
    ) -> None:
        """`prevalence` (tokens,) and `sizes` of visits; `most_visits` no drawn patient has more than."""
        self.config, self.tokens, self.prevalence, self.sizes = config, tokens, prevalence, sizes
        self.most_visits = most_visits
        self.noise = AbsorbingNoise.create(prevalence, config.timesteps, tokens.groups)
        with seeded(seed):  # initial weights come from torch's global generator
            self.denoiser = VisitDenoiser(self.noise, prevalence, sizes, tokens.n_codes, config)
        self.curve: list[dict[str, float]] = []
        self.device = torch.device("cpu")

    # --- training ---

    @classmethod
    def prepare(cls, request: HistoryFit) -> tuple[Self, TrainingRun]:
        """The untrained generator and the run that would train it."""
        config = VisitsConfig.of(request.settings)
        train, holdout = learnable(request, config.most_visits)
        tokens = VisitTokens.of(train.histories, request.visit_groups, request.static_groups, request.rules)
        records = tokens.records(train.histories, train.cut)
        codes = records.sizes()
        sizes = size_counts(codes, np.maximum.reduceat(codes, train.histories.offsets[:-1]))
        prevalence = torch.from_numpy(records.prevalence())
        most = int(train.histories.visit_counts().max())
        generator = cls(config, tokens, prevalence, torch.from_numpy(sizes / sizes.sum()), most, request.seed)
        prior = prior_logits(generator.noise, prevalence)[: tokens.n_codes]
        generator.denoiser.start_copying(*recurrences(train.histories), prior)
        visits = torch.from_numpy(train.histories.visit_counts())
        generator.denoiser.start_ending(visits, torch.from_numpy(train.cut), tokens.last)
        generator.to(resolve_device(request.device))
        learner = HistoryLearner(
            generator.denoiser, generator.noise, tokens, config.training, generator.device, holdout
        )
        run = TrainingRun(learner, train, learner.plan(train), request.seed, request.hooks, request.checkpoint)
        return generator, run

    @classmethod
    def fit(cls, request: HistoryFit) -> Self:
        generator, run = cls.prepare(request)
        generator.curve = run.to_the_end()
        assert isinstance(run.train, Learnable)
        generator.calibrate(run.train, request.seed, request.hooks)
        return generator

    def calibrate(self, train: Learnable, seed: int = 0, hooks: Hooks = NO_HOOKS) -> None:
        """Draw some patients and shift how often things happen to them to how often they do in training patients."""
        visits, most_tokens = len(train.histories.visits), len(self.sizes) - 1
        patients = min(max(round(CALIBRATED_ON * len(train) / visits), 256), max(len(train), 256))
        real = Course.of(train.histories, self.tokens, most_tokens, train.cut)
        rounds = self.config.calibration_rounds
        for number in range(rounds):
            request = HistoryRequest(patients, seed=chunk_seed(seed, number))
            drawn = self.sample(request, hooks.calibration(number * patients, rounds * patients))
            course = Course.of(drawn, self.tokens, most_tokens, np.zeros(len(drawn), dtype=bool))
            calibrate(self.denoiser, self.tokens, course, real)

    def to(self, device: torch.device) -> None:
        self.device = device
        self.noise = self.noise.to(device)
        self.denoiser.to(device)
        self.denoiser.noise = self.noise
        self.prevalence = self.prevalence.to(device)

    def held_out_elbo(self, histories: Histories, seed: int = 0, draws: int = 2) -> Elbo:
        """Negative ELBO of unseen patients, nats per visit."""
        generator = torch.Generator(self.device).manual_seed(seed)
        rows = Learnable.of(histories, self.config.most_visits)
        return visits_elbo(self.denoiser, self.noise, self.tokens, rows, generator, draws)

    def history_losses(self) -> HistoryLosses:
        return partial(history_losses, self.denoiser, self.noise, self.tokens, self.config.most_visits)

    def last_visits(self) -> LastVisits:
        return partial(last_visits, self.denoiser, self.noise, self.tokens)

    @torch.no_grad()
    def next_visits(self, histories: Histories) -> NDArray[np.float32]:
        """P(code at the visit | all visits of the patient before it) for every visit, (V, N)."""
        self.denoiser.eval()
        codes, parts = torch.arange(self.tokens.n_codes, device=self.device), []
        rows = Learnable.of(histories, max(int(histories.visit_counts().max(initial=1)), 1))
        for start in range(0, len(rows), PATIENTS_AT_ONCE):
            some = rows.take(np.arange(start, min(start + PATIENTS_AT_ONCE, len(rows))))
            visits = Batch.of(some, self.tokens, self.device)
            x = torch.where(visits.known, visits.x_start, HIDDEN).to(torch.uint8)
            logits = self.denoiser.reading(x, None, visits.beside(self.denoiser)).logits(codes)
            inside = self.noise.groups.inside(codes)
            open_ = torch.ones_like(logits, dtype=torch.bool)
            p = torch.sigmoid(logits) if inside is None else inside.in_full(logits, open_)
            parts.append(p.cpu().numpy())
        return np.concatenate(parts)

    # --- sampling ---

    def sample(self, request: HistoryRequest, progress: SampleProgress | None = None) -> Histories:
        model = self.model(request.steps)
        ready: Ready = {}

        def draw(chunk: int, patients: int) -> Histories:
            parts = request.conditions(chunk, patients)
            drawn = [self._draw(model, ready, request, chunk, number, *part) for number, part in enumerate(parts)]
            order = np.argsort(np.concatenate([rows for rows, _ in parts]))
            return join(drawn, self.tokens.n_codes).take(order)

        with precision(self.device):
            return histories_in_chunks(request, self.tokens.n_codes, draw, progress)

    def _draw(
        self,
        model: VisitModel,
        ready: Ready,
        request: HistoryRequest,
        chunk: int,
        number: int,
        rows: NDArray[np.int64],
        condition: HistoryCondition | None,
    ) -> Histories:
        """Part `number` of a chunk: as many patients as `rows` who satisfy the condition."""
        place, seed = Place(request.seed, chunk), chunk_seed(chunk_seed(request.seed, chunk), number)
        if condition is None:
            return draw_histories(model, len(rows), place, seed)
        key = replace(condition, prompt=None)  # one request has one prompt
        if key not in ready:
            steering = Steering(model, condition)
            ready[key] = steering, pilot_of(steering, request.seed)
        steering, pilot = ready[key]
        histories, effective = conditioned_histories(steering, pilot, len(rows), place, seed)
        if request.effective_size is not None:
            request.effective_size.add(len(rows), effective)
        return histories

    def model(self, steps: int | None = None) -> VisitModel:
        """What draws visits, with so many network calls for each."""
        self.denoiser.eval()
        ties = Ties.seen_by(self.denoiser, self.prevalence)
        model = VisitModel(self.denoiser, self.tokens, self.prevalence, ties, self.most_visits, self.config.steps)
        return model if steps is None else replace(model, steps=steps)

    # --- at rest ---

    def state(self) -> State:
        tensors = {f"denoiser/{name}": value.cpu() for name, value in self.denoiser.state_dict().items()}
        tensors |= {"prevalence": self.prevalence.cpu(), "sizes": self.sizes} | self.tokens.tensors()
        config: dict[str, Any] = {
            "generator": self.spec.name,
            "version": STATE_VERSION,
            "settings": self.config.model_dump(),
            "most_visits": self.most_visits,
            "curve": self.curve,
        }
        return State(tensors, config | self.tokens.as_json())

    @classmethod
    def from_state(cls, state: State) -> Self:
        state.require(cls.spec.name, STATE_VERSION)
        config, tensors = state.config, state.tensors
        tokens = VisitTokens.from_state(tensors, config)
        settings = VisitsConfig(**as_stored(config["settings"], len(tensors["prevalence"])))
        generator = cls(settings, tokens, tensors["prevalence"], tensors["sizes"], config["most_visits"])
        prefix = "denoiser/"
        weights = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
        try:
            generator.denoiser.load_state_dict(weights)
        except RuntimeError as error:
            raise StateError(f"the tensors do not fit the configuration: {error}") from None
        generator.curve = list(config["curve"])
        generator.denoiser.eval()
        return generator
