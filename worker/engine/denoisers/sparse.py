"""Our default denoiser: a record is some ten codes out of a thousand, so pay for those ten."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from worker.engine.config import SparseConfig
from worker.engine.denoisers.base import Denoiser, TimeEmbedding, log_odds
from worker.engine.noise import HIDDEN, PRESENT, Noise

# Above this share of present codes (uniform noise) one dense product beats gathering rows.
DENSE_SHARE = 0.05


class SharedDropout(nn.Module):
    """Dropout whose masks are shared by groups of 8 records.

    torch draws random numbers on one core: a mask for each record took a seventh of a training step on CPU.
    """

    GROUP = 8

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, h: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return h
        masks = torch.empty(-(-len(h) // self.GROUP), h.shape[1], device=h.device).bernoulli_(1 - self.p)
        return h * masks.div_(1 - self.p).repeat(self.GROUP, 1)[: len(h)]


class ResidualBlock(nn.Module):
    """LayerNorm, two linear layers with a GELU between them, and the residual; starts as the identity."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, width)
        self.down = nn.Linear(width, width)
        self.dropout = SharedDropout(dropout)
        nn.init.zeros_(self.down.weight)
        nn.init.zeros_(self.down.bias)

    def forward(self, h: Tensor) -> Tensor:
        out: Tensor = h + self.down(self.dropout(F.gelu(self.up(self.norm(h)))))
        return out


class SparseDenoiser(Denoiser):
    """Sum of the embeddings of the present codes -> residual MLP -> N log-odds, plus a pairwise skip.

    The log-odds of code i are a sum of four parts:
      prior      its prevalence;
      evidence   what x_t says about code i itself, exact by Bayes' rule (see Noise.evidence);
      pairwise   one learned weight for each present code j and each i: plain association, learned fast;
      trunk      everything else: what the codes say together.
    So before training the model is `independent`, and the network only has to learn how codes depend on each other.
    """

    name = "sparse"
    common: Tensor
    prevalence: Tensor
    log_sizes: Tensor

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
        self.remaining = nn.Embedding(len(sizes), width) if config.size_first else None
        self.blocks = nn.ModuleList(ResidualBlock(width, config.dropout) for _ in range(config.blocks))
        self.input_dropout = SharedDropout(config.input_dropout)
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, n)
        nn.init.zeros_(self.out.weight)
        self.out.bias.data.copy_(log_odds(prevalence))
        self.pairwise = nn.Embedding(n, n) if config.pairwise else None
        if self.pairwise is not None:
            nn.init.zeros_(self.pairwise.weight)
        self.register_buffer("common", common)
        self.register_buffer("prevalence", prevalence.float())
        self.register_buffer("log_sizes", torch.log((sizes.double() + 1e-6) / (sizes.double() + 1e-6).sum()).float())

    @property
    def size_log_prior(self) -> Tensor | None:
        return None if self.remaining is None else self.log_sizes

    def forward(self, x_t: Tensor, t: Tensor, size: Tensor | None = None) -> Tensor:
        evidence = self.noise.evidence(x_t, t)  # (B, N)
        bag = PresentCodes(x_t, evidence, self.out.bias)
        h = bag.sum_rows(self.present.weight) + self._context(x_t, t, evidence, bag.number, size)
        h = self.input_dropout(h)
        for block in self.blocks:
            h = block(h)
        logits: Tensor = self.out(self.norm(h)) + evidence
        if self.pairwise is not None:
            logits = logits + bag.sum_rows(self.pairwise.weight)
        return logits.float()

    def _context(self, x_t: Tensor, t: Tensor, evidence: Tensor, present: Tensor, size: Tensor | None) -> Tensor:
        """What the trunk knows besides the present codes: what is known absent, how much is hidden, time, size."""
        # A rare code's absence says next to nothing; only common codes are worth a column here.
        prior, seen = self.out.bias[self.common].detach(), evidence[:, self.common]
        known_absent = 1 - torch.sigmoid(prior + seen) / torch.sigmoid(prior)
        context: Tensor = self.absent(torch.where(x_t[:, self.common] == PRESENT, 0.0, known_absent))
        hidden = (x_t == HIDDEN).float()
        share = hidden.mean(1)
        features = [present / 8, hidden @ self.prevalence / 8, share, torch.log(share + 1e-3)]
        context = context + self.counts(torch.stack(features, dim=1))
        if self.time is not None:  # under absorbing noise p(x_0 | x_t) does not depend on t
            context = context + self.time(t)[:, 0]
        if self.remaining is not None and size is not None:
            left = size - present.long() if self.noise.reveals else size
            context = context + self.remaining(left.clamp(0, self.remaining.num_embeddings - 1))
        return context


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
