"""Our default denoiser: a record is some ten codes out of a thousand, so pay for those ten."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ehr.generators.d3pm import SparseConfig
from worker.engine.denoisers.base import UNKNOWN_SIZE, Denoiser, Reading, TimeEmbedding, prior_logits
from worker.engine.denoisers.beside import Beside
from worker.engine.denoisers.few_patients import CodeTables
from worker.engine.denoisers.in_order import arranged
from worker.engine.denoisers.kin import Kin
from worker.engine.denoisers.sparse_reading import SparseReading
from worker.engine.denoisers.trunk import ResidualBlock, SharedDropout
from worker.engine.groups import GroupTable
from worker.engine.noise import HIDDEN, PRESENT, Noise
from worker.engine.sizes import SizeNetwork, shift_to_size

# Above this share of present codes (uniform noise) one dense product beats gathering rows.
DENSE_SHARE = 0.05


class SparseDenoiser(Denoiser):
    """Sum of the embeddings of the present codes -> residual MLP -> N log-odds, plus a pairwise skip.

    The log-odds of code i are a sum of five parts:
      prior      its prevalence;
      evidence   what x_t says about code i itself, exact by Bayes' rule (see Noise.evidence);
      pairwise   one learned weight for each present code j and each i: plain association, learned fast;
      trunk      everything else: what the codes say together;
      size       the same for all hidden codes: where the record's size is known, they add up to what is left of it.
    So before training the model is `independent`, and the network only has to learn how codes depend on each other.
    """

    name = "sparse"
    adds_up: ClassVar[bool] = True  # whether log-odds are shifted to add up to a record's size
    common: Tensor
    alone: Tensor  # (N,) codes that are in no group
    prevalence: Tensor
    log_sizes: Tensor
    paired: Tensor | None

    def __init__(self, noise: Noise, prevalence: Tensor, sizes: Tensor, config: SparseConfig) -> None:
        """`prevalence` (N,) and `sizes` (largest size + 1,), the share of records with each number of codes."""
        super().__init__()
        self.noise = noise
        n, width = noise.n_codes, config.width
        self.present = nn.Embedding(n, width)
        nn.init.normal_(self.present.weight, std=0.3)
        common = prevalence.argsort(descending=True)[: min(config.common_codes, n)]
        self.absent = nn.Linear(len(common), width, bias=False)
        self.counts = nn.Linear(4, width)
        self.time = None if noise.reveals else TimeEmbedding(width, 1)
        # One row for each number of codes to come, and a last one for "not known yet".
        self.remaining = nn.Embedding(len(sizes) + 1, width) if config.size_first else None
        self.blocks = nn.ModuleList(ResidualBlock(width, config.dropout) for _ in range(config.blocks))
        self.input_dropout = SharedDropout(config.input_dropout)
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, n)
        nn.init.zeros_(self.out.weight)
        self.out.bias.data.copy_(prior_logits(noise, prevalence))
        # Of a wide vocabulary only the most common codes have a weight for each other (docs/decisions/0102).
        m = min(config.pairwise_codes, n)
        self.pairwise = nn.Embedding(m, m) if config.pairwise else None
        paired = prevalence.argsort(descending=True, stable=True)[:m].sort().values if m < n else None
        self.register_buffer("paired", paired if config.pairwise else None)  # (m,); None: all codes are
        if self.pairwise is not None:
            nn.init.zeros_(self.pairwise.weight)
        # Only a noise that reveals begins with something known, from which a size could be told.
        self.sizes = SizeNetwork(n, sizes) if config.size_first and noise.reveals else None
        # What a tilt by the number of codes to come does to the trunk, (1, width), and to each code, (N,).
        self.from_tilt: nn.Parameter | None = None
        self.tilted: nn.Parameter | None = None
        self.kin: Kin | None = None  # while it learns from records
        self.register_buffer("common", common)
        self.register_buffer("prevalence", prevalence.float())
        self.register_buffer("alone", noise.groups.group_of < 0, persistent=False)
        self.register_buffer("log_sizes", torch.log((sizes.double() + 1e-6) / (sizes.double() + 1e-6).sum()).float())

    def lean_on(self, families: Tensor) -> None:
        """Learn of codes together with their families (levels, N), until `stand_alone`."""
        self.kin = Kin(families, self.present.embedding_dim)

    def stand_alone(self) -> None:
        """Nothing is kept of families but what the codes' own rows have taken in."""
        self.kin = None

    def _rows(self, table: Tensor, name: str) -> Tensor:
        """The rows of all codes, with what they have of their families, (N, width)."""
        return table if self.kin is None else table + self.kin.rows(getattr(self.kin, name))

    @property
    def size_log_prior(self) -> Tensor | None:
        return None if self.remaining is None else self.log_sizes

    def size_log_probability(self, x_known: Tensor, beside: Beside | None = None) -> Tensor | None:
        if self.sizes is None:
            return super().size_log_probability(x_known)
        log_p: Tensor = self.sizes(x_known, None if beside is None else beside.size)
        return log_p

    @property
    def code_tables(self) -> CodeTables:
        return CodeTables(
            outputs=("out.weight",),
            pairs=() if self.pairwise is None else ("pairwise.weight",),
            paired=None if self.paired is None else tuple(self.paired.tolist()),
            bias="out.bias",
        )

    def forward(self, x_t: Tensor, t: Tensor, size: Tensor | None = None, beside: Beside | None = None) -> Tensor:
        evidence = self.noise.evidence(x_t, t)  # (B, N)
        bag = PresentCodes(x_t, evidence, self.out.bias)
        left = size
        if size is not None and self.noise.reveals:
            left = torch.where(size == UNKNOWN_SIZE, UNKNOWN_SIZE, (size - bag.number.long()).clamp(min=0))
        tilt = self.tilt(x_t, left, beside)
        z = self._read(x_t, t, evidence, bag, left, beside, tilt)
        logits: Tensor = F.linear(z, self._rows(self.out.weight, "out"), self.out.bias) + evidence
        if self.pairwise is not None:
            if self.paired is None:
                logits = logits + bag.sum_rows(self.pairwise.weight)
            else:
                some = PresentCodes(x_t[:, self.paired], evidence[:, self.paired], self.out.bias[self.paired])
                logits = logits.index_add(1, self.paired, some.sum_rows(self.pairwise.weight).to(logits.dtype))
        if beside is not None:
            logits = logits + beside.logits
        if tilt is not None and self.tilted is not None:
            logits = logits + tilt.unsqueeze(1) * self.tilted
        if self.adds_up and left is not None and self.noise.reveals and self.remaining is not None:
            hidden = x_t == HIDDEN
            logits = logits + self.shift(logits, hidden, left, self.noise.groups) * (hidden & self.alone)
        return logits.float()

    def shift(
        self,
        logits: Tensor,
        is_open: Tensor | None,
        left: Tensor,
        groups: GroupTable | None,
        elsewhere: Tensor | None = None,
    ) -> Tensor:
        """What a record's size says of its open codes, (B, 1): nothing where it is not known."""
        shift = shift_to_size(logits, is_open, left, groups, elsewhere)
        return shift.masked_fill((left == UNKNOWN_SIZE).unsqueeze(1), 0.0)

    def tilt(self, x: Tensor, left: Tensor | None, beside: Beside | None) -> Tensor | None:
        """By how much the number of codes to come shifts all log-odds, (B,); None where the trunk alone has to tell."""
        return None

    @torch.no_grad()
    def given_each(self, codes: Tensor) -> Tensor | None:
        if not self.noise.reveals:
            return None
        x = torch.full((len(codes), self.n_codes), HIDDEN, dtype=torch.uint8, device=codes.device)
        x.scatter_(1, codes.unsqueeze(1), PRESENT)
        return torch.sigmoid(self.reading(x, None).logits(codes))

    def arranged(self, blocks: list[Tensor]) -> list[Tensor]:
        return arranged(self, blocks)

    def reading(
        self, x: Tensor, size: Tensor | None, beside: Beside | None = None, order: Tensor | None = None
    ) -> Reading:
        assert self.kin is None, "a network that still learns from records is not drawn from"
        return SparseReading(self, x, size, beside, order)

    def _read(
        self,
        x_t: Tensor,
        t: Tensor,
        evidence: Tensor,
        bag: "PresentCodes",
        left: Tensor | None,
        beside: Beside | None,
        tilt: Tensor | None,
    ) -> Tensor:
        """What the trunk makes of a record, (B, width)."""
        # A rare code's absence says next to nothing; only common codes are worth a column here.
        prior, seen = self.out.bias[self.common].detach(), evidence[:, self.common]
        known_absent = 1 - torch.sigmoid(prior + seen) / torch.sigmoid(prior)
        h = bag.sum_rows(self._rows(self.present.weight, "present"))
        h = h if beside is None else h + beside.trunk
        h = h + self.absent(torch.where(x_t[:, self.common] == PRESENT, 0.0, known_absent))
        hidden = (x_t == HIDDEN).float()
        h = h + self.context(bag.number, hidden @ self.prevalence, hidden.mean(1), left)
        if tilt is not None and self.from_tilt is not None:
            h = h + tilt.unsqueeze(1) * self.from_tilt
        if self.time is not None:  # under absorbing noise p(x_0 | x_t) does not depend on t
            h = h + self.time(t)[:, 0]
        return self.trunk(h)

    def context(self, present: Tensor, hidden_mass: Tensor, hidden_share: Tensor, left: Tensor | None) -> Tensor:
        """What a record's trunk is told about it in numbers: codes present, expected, hidden, and still to come."""
        features = [present / 8, hidden_mass / 8, hidden_share, torch.log(hidden_share + 1e-3)]
        context: Tensor = self.counts(torch.stack(features, dim=1))
        if self.remaining is None:
            return context
        unknown = self.remaining.num_embeddings - 1
        if left is None:
            return context + self.remaining.weight[unknown]
        rows: Tensor = self.remaining(torch.where(left == UNKNOWN_SIZE, unknown, left.clamp(0, unknown - 1)))
        return context + rows

    def trunk(self, h: Tensor) -> Tensor:
        """The residual blocks, (B, width) -> (B, width)."""
        h = self.input_dropout(h)
        for block in self.blocks:
            h = block(h)
        z: Tensor = self.norm(h)
        return z


class PresentCodes:
    """The present codes of a batch as bags, so that sums of table rows cost what is present, not N."""

    def __init__(self, x_t: Tensor, evidence: Tensor, prior: Tensor) -> None:
        present = x_t == PRESENT
        self.number = present.sum(1).float()  # (B,)
        self.rows, self.codes = present.nonzero(as_tuple=True)
        # A code that is present in x_t may be noise: weigh it by the probability that it is not.
        self.weights = torch.sigmoid(prior.detach()[self.codes] + evidence[self.rows, self.codes])
        self.dense = len(self.codes) > DENSE_SHARE * x_t.numel()
        self.shape = x_t.shape

    def sum_rows(self, table: Tensor) -> Tensor:
        """Weighted sum over each record's present codes of their rows in `table` (N, D), (B, D)."""
        if self.dense:
            x = torch.zeros(self.shape, device=table.device).index_put((self.rows, self.codes), self.weights)
            return x @ table
        offsets = self.number.long().cumsum(0) - self.number.long()
        return F.embedding_bag(self.codes, table, offsets, mode="sum", per_sample_weights=self.weights)
