"""The sparse denoiser of visits: what it is told of a visit's own codes, and of the visits before."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ehr.generators.visits import VisitsConfig
from worker.engine.denoisers.base import UNKNOWN_SIZE
from worker.engine.denoisers.beside import Beside
from worker.engine.denoisers.sparse import SparseDenoiser
from worker.engine.histories.earlier import FEATURES, Earlier, Journal, visits_before
from worker.engine.histories.tilt import tilt
from worker.engine.noise import HIDDEN, PRESENT, Noise
from worker.engine.sizes import WIDTH as SIZE_WIDTH

COPIED = 4  # features of a code that was seen before
COUNTED = 64  # visits that have a number of their own: later ones share the last


class VisitDenoiser(SparseDenoiser):
    """A visit is a record, and its earlier visits are what is known beside it.

    They speak to every code in three ways: by copy weights of the code itself (seen at the last visit, ever, how often,
    how long ago), by what each earlier code says of each code to come, and by the trunk, which is also told the state
    of a recurrent network that has read the visits in their order.
    """

    name = "visits"
    adds_up = False  # what earlier visits make likely is tilted instead, before the trunk hears of it

    def __init__(self, noise: Noise, prevalence: Tensor, sizes: Tensor, n_codes: int, config: VisitsConfig) -> None:
        """`prevalence` (tokens,) and `sizes` as for records of tokens, of which the first `n_codes` are codes."""
        super().__init__(noise, prevalence, sizes, config.denoiser)
        width, state = config.denoiser.width, config.state
        self.width_of_state = state
        self.visit = nn.Embedding(n_codes, state)
        self.visit_numbers = nn.Linear(FEATURES, state)
        self.recurrent = nn.GRU(state, state, batch_first=True)
        self.from_state = nn.Linear(state, width)
        self.from_numbers = nn.Linear(FEATURES, width)
        # Histories begin and end by the number of visits: it speaks for itself, to the trunk and to every token.
        self.from_number = nn.Embedding(COUNTED, width)
        self.by_number = nn.Embedding(COUNTED, noise.n_codes)
        self.seen = nn.Embedding(n_codes, width)
        self.seen_last = nn.Embedding(n_codes, width)
        self.to_size = nn.Linear(state + FEATURES + 2, SIZE_WIDTH)
        self.copied = nn.Parameter(torch.zeros(n_codes, COPIED))
        # One learned weight for each earlier code and each token to come, as `pairwise` is within the visit.
        self.pairwise_seen = nn.Embedding(n_codes, noise.n_codes)
        self.pairwise_last = nn.Embedding(n_codes, noise.n_codes)
        if config.denoiser.size_first:
            self.from_tilt = nn.Parameter(torch.zeros(1, width))
            self.tilted = nn.Parameter(self.alone.float())
        nn.init.normal_(self.visit.weight, std=0.3)
        for table in (self.seen, self.seen_last, self.from_number):
            nn.init.normal_(table.weight, std=0.1)
        for table in (self.pairwise_seen, self.pairwise_last, self.by_number):
            nn.init.zeros_(table.weight)
        nn.init.zeros_(self.to_size.weight)

    def beside(self, earlier: Earlier, state: Tensor) -> Beside:
        """What earlier visits say of the next, for B patients with these states (B, width of state)."""
        everything = torch.ones_like(earlier.in_last)
        number = visits_before(earlier.numbers).clamp(max=COUNTED - 1)
        trunk = self.from_state(state) + self.from_numbers(earlier.numbers) + self.from_number(number)
        trunk = trunk + earlier.bag(self.seen.weight, everything) + earlier.bag(self.seen_last.weight, earlier.in_last)
        logits = earlier.bag(self.pairwise_seen.weight, everything)
        logits = logits + earlier.bag(self.pairwise_last.weight, earlier.in_last) + self.by_number(number)
        copied = (self.copied[earlier.codes] * copy_features(earlier)).sum(1)  # (K,)
        logits = logits.index_put((earlier.rows, earlier.codes), copied, accumulate=True)
        p = torch.sigmoid(self.out.bias + logits).detach() * self.alone
        expected, spread = p.sum(1), (p * (1 - p)).sum(1)
        counted = torch.stack([expected / 4, spread.sqrt()], dim=1)
        size = self.to_size(torch.cat([state, earlier.numbers, counted], dim=1))
        return Beside(trunk, logits, size)

    @torch.no_grad()
    def tilt(self, x: Tensor, left: Tensor | None, beside: Beside | None) -> Tensor | None:
        """By what earlier visits make likely; 0 where the number of codes is not known."""
        if self.tilted is None or left is None or beside is None:
            return None
        groups, hidden = self.noise.groups, x == HIDDEN
        due = (groups.holds(x, HIDDEN) & ~groups.holds(x, PRESENT) & ~groups.optional).sum(1)
        shift = tilt(self.out.bias + beside.logits, hidden & self.alone, left - due)
        return torch.where(left == UNKNOWN_SIZE, 0.0, shift)

    @torch.no_grad()
    def given_each(self, codes: Tensor) -> Tensor | None:
        """What comes with each code at a first visit: later ones are asked about too, but beside a history."""
        x = torch.full((len(codes), self.n_codes), HIDDEN, dtype=torch.uint8, device=codes.device)
        x.scatter_(1, codes.unsqueeze(1), PRESENT)
        newcomers = Journal(len(codes), self.visit.num_embeddings, self.width_of_state, codes.device)
        reading = self.reading(x, None, self.beside(newcomers.earlier(), newcomers.state))
        return torch.sigmoid(reading.logits(codes))

    def states(self, codes: Tensor, offsets: Tensor, numbers: Tensor, patients: Tensor) -> Tensor:
        """The recurrent state before each of V visits, (V, width of state), which is 0 before a first one.

        `codes` and `offsets` are the visits' codes as bags, `numbers` (V, FEATURES) what is known after each visit,
        `patients` (P + 1,) where each patient's visits begin.
        """
        inputs = self.read(codes, offsets, numbers)
        counts = patients[1:] - patients[:-1]
        parts = torch.split(inputs, counts.tolist())
        packed = nn.utils.rnn.pack_sequence(list(parts), enforce_sorted=False)
        after, _ = nn.utils.rnn.pad_packed_sequence(self.recurrent(packed)[0], batch_first=True)  # (P, longest, state)
        before = F.pad(after, (0, 0, 1, 0))[:, :-1]
        place = torch.arange(before.shape[1], device=counts.device) < counts.unsqueeze(1)
        return before[place]

    def read(self, codes: Tensor, offsets: Tensor, numbers: Tensor) -> Tensor:
        """Visits as the recurrent network takes them in, (V, width of state)."""
        bags = F.embedding_bag(codes, self.visit.weight, offsets, mode="sum")
        read: Tensor = bags + self.visit_numbers(numbers)
        return read

    def next_state(self, codes: Tensor, numbers: Tensor, state: Tensor) -> Tensor:
        """The state after one more visit with these codes (B, N) bool."""
        counts = codes.sum(1)
        inputs = self.read(codes.nonzero()[:, 1], counts.cumsum(0) - counts, numbers)
        return self.recurrent(inputs.unsqueeze(1), state.unsqueeze(0).contiguous())[1].squeeze(0)  # type: ignore[no-any-return]

    def start_copying(self, tried: Tensor, kept: Tensor, prior: Tensor) -> None:
        """Copy weights that say how often codes come again: `kept` of `tried` (2, N) visits before which the code was
        seen, not at the last visit and at the last visit; `prior` (N,) are the codes' log-odds."""
        everywhere = kept.sum(1, keepdim=True) / tried.sum(1, keepdim=True).clamp(min=1)
        strength = 20.0  # visits that the mean over all codes is worth
        rate = (kept + strength * everywhere) / (tried + strength)
        log_odds = torch.logit(rate.clamp(1e-5, 1 - 1e-5))
        with torch.no_grad():
            self.copied[:, 0] = (log_odds[0] - prior).clamp(-6, 8)
            self.copied[:, 1] = (log_odds[1] - log_odds[0]).clamp(-6, 8)

    def start_ending(self, counts: Tensor, cut: Tensor, ends: int) -> None:
        """Histories that end as often after each number of visits as those of `counts` (P,) visits do, but for those
        that are `cut` (P,) there. `ends` is the token that says so; the one before it says that others follow."""
        number = counts.clamp(max=COUNTED) - 1
        ended = torch.bincount(number[~cut], minlength=COUNTED).double()
        reached = torch.bincount(number, minlength=COUNTED).double().flip(0).cumsum(0).flip(0)
        reached[-1] = (counts - COUNTED + 1).clamp(min=0).sum()  # every visit of that number or later
        hazard = (ended + ended.sum() / counts.sum()) / (reached + 1)
        prior = self.out.bias[ends] - self.out.bias[ends - 1]
        with torch.no_grad():
            self.by_number.weight[:, ends] = torch.logit(hazard.clamp(1e-5, 1 - 1e-5)).float() - prior


def copy_features(earlier: Earlier) -> Tensor:
    """Of each code that was seen before, (K, COPIED); the last two are 0 for a code seen once, at the last visit."""
    return torch.stack(
        [
            torch.ones_like(earlier.in_last),
            earlier.in_last,
            torch.log(earlier.count.clamp(min=1)),
            torch.log1p(earlier.since / 30),
        ],
        dim=1,
    )
