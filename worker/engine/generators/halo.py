"""HALO (Theodorou et al. 2023): a transformer reads visits, each as one multi-hot vector, and a masked head draws the
codes of the next visit one after the other. Where ours differs from the published one is in docs/baselines.md."""

import math
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ehr.errors import ConfigError, StateError
from ehr.generators.halo import HALO, HaloConfig
from ehr.histories import Histories
from worker.engine.checkpoints import Checkpoint, flat, load_optimiser, optimiser_tensors, require_same_network
from worker.engine.generators.baselines.networks import gradient_step
from worker.engine.generators.protocol import SampleProgress, State, chunk_seed
from worker.engine.histories.batch import Learnable, learnable
from worker.engine.histories.chain import Chain
from worker.engine.histories.protocol import HistoryFit, HistoryGenerator, HistoryRequest, histories_in_chunks
from worker.engine.histories.tokens import VisitTokens
from worker.engine.histories.walk import Drawn, gaps_of
from worker.engine.noise import ABSENT
from worker.engine.training import TrainingRun, precision, resolve_device, seeded
from worker.engine.training.loop import Learner, Plan

STATE_VERSION = 1
BEFORE = 2  # what is read before the first visit: where the sequence starts, and who the patient is
PATIENTS_AT_ONCE = 256
Past = list[tuple[Tensor, Tensor]]  # keys and values of every block


class Block(nn.Module):
    """A block of GPT-2: attention to visits up to this one, and two layers, each beside what goes in."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.attention, self.merge = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, past: tuple[Tensor, Tensor] | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """x (B, L, width); with a `past`, x is the one visit after it."""
        parts = self.attention(self.norms[0](x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = parts  # (B, heads, L, width / heads)
        if past is not None:
            key, value = (torch.cat([old, new], dim=2) for old, new in zip(past, (key, value), strict=True))
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=past is None)
        x = x + self.merge(seen.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norms[1](x)), (key, value)


class MaskedLinear(nn.Linear):
    """Output i depends on inputs up to and including i."""

    def lower(self) -> Tensor:
        return self.weight.tril()

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.lower(), self.bias)


class HaloNetwork(nn.Module):
    """Coarse: visits -> states. Fine: the state and a visit's earlier tokens -> log-odds of its next token."""

    def __init__(self, n_tokens: int, most_visits: int, config: HaloConfig) -> None:
        super().__init__()
        self.width = config.width
        self.embed = nn.Linear(n_tokens, config.width, bias=False)
        self.start = nn.Parameter(0.02 * torch.randn(config.width))
        self.position = nn.Embedding(most_visits + BEFORE, config.width)
        self.blocks = nn.ModuleList(Block(config.width, config.heads) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.first, self.second = (MaskedLinear(config.width + n_tokens, config.width + n_tokens) for _ in range(2))
        for table in (self.embed, self.position):
            nn.init.normal_(table.weight, std=0.02)

    def states(self, x: Tensor, place: int = 0, past: Past | None = None) -> tuple[Tensor, Past]:
        """States after each of L visits x (B, L, tokens), (B, L, width); the first stands at `place`."""
        h = self.embed(x) + self.position.weight[place : place + x.shape[1]]
        if place == 0:
            h = torch.cat([h[:, :1] + self.start, h[:, 1:]], dim=1)
        kept: Past = []
        for number, block in enumerate(self.blocks):
            h, keys = block(h, None if past is None else past[number])
            kept.append(keys)
        return self.norm(h), kept

    def logits(self, state: Tensor, x: Tensor) -> Tensor:
        """Log-odds of every token of visits x (V, tokens), each given the state before (V, width) and the tokens
        before it, (V, tokens)."""
        out: Tensor = self.second(torch.relu(self.first(torch.cat([state, x], dim=1))))
        return out[:, self.width - 1 : -1]

    def draw(self, state: Tensor, chain: Chain, generator: torch.Generator) -> Tensor:
        """Tokens of a visit after each state (B, width), one after the other as the chain allows, (B, tokens) uint8.

        What `logits` gives, computed as far as it changes: a token that is drawn adds a column to the hidden units that
        are still open, and a hidden unit that is closed adds a column to the log-odds to come.
        """
        width, (w, v) = self.width, (layer.lower() for layer in (self.first, self.second))
        known = torch.relu(F.linear(state, w[:width, :width], self.first.bias[:width]))
        hidden = F.linear(state, w[width:, :width], self.first.bias[width:])  # (B, tokens)
        logits = F.linear(known, v[width - 1 : -1, :width], self.second.bias[width - 1 : -1])
        chance = torch.rand(hidden.shape, generator=generator, device=state.device)
        for token in range(hidden.shape[1]):
            on = chain.draw(token, torch.sigmoid(logits[:, token]), chance[:, token])
            rows = on.nonzero().squeeze(1)
            hidden[rows, token:] += w[width + token :, width + token]
            unit = torch.relu(hidden[:, token : token + 1])
            logits[:, token + 1 :].addmm_(unit, v[width + token : -1, width + token].unsqueeze(0))
        return chain.x


class HaloGenerator(HistoryGenerator):
    """Tokens of visits as ours, and the network."""

    spec = HALO

    def __init__(self, config: HaloConfig, tokens: VisitTokens, most_visits: int, seed: int = 0) -> None:
        self.config, self.tokens, self.most_visits = config, tokens, most_visits
        with seeded(seed):
            self.network = HaloNetwork(len(tokens), most_visits, config)
        self.curve: list[dict[str, float]] = []

    @classmethod
    def fit(cls, request: HistoryFit) -> Self:
        config = HaloConfig.of(request.settings)
        train, holdout = learnable(request, config.most_visits)
        tokens = VisitTokens.of(train.histories, request.visit_groups, request.static_groups, request.rules)
        generator = cls(config, tokens, int(train.histories.visit_counts().max()), request.seed)
        generator.to(resolve_device(request.device))
        plan = Plan(config.epochs, min(config.batch_size, len(train)), config.ema_decay, config.checkpoint_every)
        learner = HaloLearner(generator, holdout)
        run = TrainingRun(learner, train, plan, request.seed, request.hooks, request.checkpoint)
        generator.curve = run.to_the_end()
        return generator

    def to(self, device: torch.device) -> None:
        self.device = device
        self.network.to(device)

    def nats(self, rows: Learnable) -> tuple[Tensor, int]:
        """(-log p of all visits of these patients, how many there are)."""
        sequence, there = self._sequences(rows)
        states, _ = self.network.states(sequence)
        before, visits = states[:, :-1][there[:, 1:]], sequence[:, 1:][there[:, 1:]]
        logits = self.network.logits(before, visits)
        return F.binary_cross_entropy_with_logits(logits, visits, reduction="sum"), len(rows.histories.visits)

    def _sequences(self, rows: Learnable) -> tuple[Tensor, Tensor]:
        """What the network reads of each patient, (P, longest + 2, tokens), and where there is something, bool."""
        tokens, histories = self.tokens, rows.histories
        visits = torch.from_numpy(tokens.records(histories, rows.cut).to_dense()).to(self.device)
        first = torch.from_numpy(histories.offsets[:-1]).to(self.device)
        counts = torch.from_numpy(histories.visit_counts()).to(self.device)
        patient = torch.from_numpy(histories.patients()).to(self.device)
        sequence = torch.zeros(len(rows), int(counts.max()) + BEFORE, len(tokens), device=self.device)
        static = slice(tokens.first_static, tokens.first_gap)
        sequence[:, 1, static] = visits[first][:, static]
        visits[:, static] = 0
        place = torch.arange(len(visits), device=self.device) - first[patient]
        sequence[patient, place + BEFORE] = visits
        there = torch.arange(sequence.shape[1], device=self.device) < (counts + BEFORE).unsqueeze(1)
        return sequence, there

    # --- sampling ---

    def sample(self, request: HistoryRequest, progress: SampleProgress | None = None) -> Histories:
        if request.targets or not (request.condition is None or request.condition.is_empty):
            raise ConfigError("'halo' meets no conditions: it is here to be compared with")
        self.network.eval()
        with precision(self.device):
            return histories_in_chunks(
                request, self.tokens.n_codes, lambda *part: self._draw(request.seed, *part), progress
            )

    @torch.no_grad()
    def _draw(self, seed: int, chunk: int, patients: int) -> Histories:
        seed = chunk_seed(seed, chunk)
        generator, rng = torch.Generator(self.device).manual_seed(seed), np.random.default_rng(seed)
        tokens, network = self.tokens, self.network
        nothing = torch.zeros(patients, 1, len(tokens), device=self.device)
        state, past = network.states(nothing)
        x = network.draw(state[:, 0], Chain.of_static(tokens, patients, self.device), generator)
        drawn = Drawn(tokens, x[:, tokens.first_static : tokens.first_gap])
        slots, static = torch.arange(patients, device=self.device), drawn.static
        for number in range(self.most_visits):
            state, past = network.states(x.float().unsqueeze(1), number + 1, past)
            chain = Chain.of_visit(tokens, static, number, number + 1 == self.most_visits)
            x = network.draw(state[:, 0], chain, generator)
            drawn.add(slots.cpu().numpy(), x, gaps_of(tokens, x, rng))
            going_on = (x[:, tokens.last] == ABSENT).nonzero().squeeze(1)
            if len(going_on) == 0:
                break
            x, slots, static = x[going_on], slots[going_on], static[going_on]
            past = [(key[going_on], value[going_on]) for key, value in past]
        return drawn.histories()

    # --- at rest ---

    def state(self) -> State:
        weights = {f"network/{name}": value.cpu() for name, value in self.network.state_dict().items()}
        config: dict[str, Any] = {
            "generator": self.spec.name,
            "version": STATE_VERSION,
            "settings": self.config.model_dump(),
            "most_visits": self.most_visits,
            "curve": self.curve,
        }
        return State(weights | self.tokens.tensors(), config | self.tokens.as_json())

    @classmethod
    def from_state(cls, state: State) -> Self:
        state.require(cls.spec.name, STATE_VERSION)
        tokens = VisitTokens.from_state(state.tensors, state.config)
        generator = cls(HaloConfig(**state.config["settings"]), tokens, state.config["most_visits"])
        prefix = "network/"
        weights = {name.removeprefix(prefix): v for name, v in state.tensors.items() if name.startswith(prefix)}
        try:
            generator.network.load_state_dict(weights)
        except RuntimeError as error:
            raise StateError(f"the tensors do not fit the configuration: {error}") from None
        generator.curve = list(state.config["curve"])
        return generator


class HaloLearner(Learner):
    """HALO in training: Adam at one rate, and of all epochs the weights that suit held-out patients best."""

    advice = ": try a lower learning_rate"

    def __init__(self, generator: HaloGenerator, holdout: Learnable | None) -> None:
        self.generator, self.device, self.holdout = generator, generator.device, holdout
        self.weights = dict(generator.network.named_parameters())
        self.best = {name: weight.detach().clone() for name, weight in self.weights.items()}
        self.optimiser = torch.optim.Adam(self.weights.values(), generator.config.learning_rate, fused=True)

    def step(self, batch: Learnable, run: TrainingRun) -> float:
        self.generator.network.train()
        with precision(self.device):
            nats, visits = self.generator.nats(batch)
        return gradient_step(self.optimiser, nats / visits, self.generator.config.learning_rate)

    @torch.no_grad()
    def end_epoch(self, epoch: int, run: TrainingRun) -> None:
        point = {"epoch": float(epoch), "loss": run.loss}
        if self.holdout is not None and len(self.holdout):
            starts = range(0, len(self.holdout), PATIENTS_AT_ONCE)
            parts = [np.arange(start, min(start + PATIENTS_AT_ONCE, len(self.holdout))) for start in starts]
            measured = [self.generator.nats(self.holdout.take(part)) for part in parts]
            point["held_out"] = float(sum(nats for nats, _ in measured)) / sum(visits for _, visits in measured)
            if point["held_out"] <= min((each["held_out"] for each in run.curve), default=math.inf):
                self.best = {name: weight.detach().clone() for name, weight in self.weights.items()}
        else:
            self.best = {name: weight.detach().clone() for name, weight in self.weights.items()}
        run.curve.append(point)

    def finish(self, run: TrainingRun) -> None:
        self.load_weights(run.average if run.plan.ema_decay is not None else self.best)

    def tensors(self) -> dict[str, Tensor]:
        return (
            flat("weights", self.weights)
            | flat("best", self.best)
            | flat("optimiser", optimiser_tensors(self.optimiser))
        )

    def load(self, checkpoint: Checkpoint) -> None:
        weights, best = checkpoint.under("weights"), checkpoint.under("best")
        require_same_network(weights, self.weights)
        self.load_weights(weights)
        self.best = {name: best[name].to(self.device).clone() for name in self.weights}
        load_optimiser(self.optimiser, checkpoint.under("optimiser"))
