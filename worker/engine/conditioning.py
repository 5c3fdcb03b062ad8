"""Exact conditions for noise that reveals: start with what the condition says revealed, and sample the rest.

What a condition leaves open is decided first, by the model's own probabilities: which member of an any_of group a
record has, then how many codes it has.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ehr.conditions import Condition
from ehr.errors import ConditionError
from ehr.rules import Rules
from worker.engine.denoisers import Denoiser, Reading
from worker.engine.groups import GroupTable
from worker.engine.noise import ABSENT, HIDDEN, PRESENT
from worker.engine.rules import RuleTable

# Several large any_of groups can be met in more ways than fit in memory: the likeliest are kept.
MOST_WAYS = 4096
NEGLIGIBLE = 1e-6  # chance that a record has none of the group's codes looked at so far


@dataclass(frozen=True)
class Starts:
    """Every way in which a record can begin under a condition: what is revealed, how likely, and of which sizes."""

    x: Tensor  # (W, N) uint8, HIDDEN where nothing is revealed
    probability: Tensor  # (W,)
    size_probability: Tensor | None  # (W, largest size + 1); None if the denoiser knows no sizes

    @classmethod
    @torch.no_grad()
    def under(
        cls,
        denoiser: Denoiser,
        condition: Condition | None,
        device: torch.device | str,
        rules: RuleTable | None = None,
    ) -> "Starts":
        """The starts of all records that satisfy the condition, which has been settled by the rules."""
        x = torch.full((1, denoiser.n_codes), HIDDEN, dtype=torch.uint8, device=device)
        probability = torch.ones(1, dtype=torch.float64, device=device)
        if condition is not None:
            x[:, sorted(condition.none_of)] = ABSENT
            x[:, sorted(condition.all_of)] = PRESENT
            for group in condition.any_of:
                x, probability = _with_a_member(denoiser, x, probability, sorted(group), rules)
        return cls(x, probability / probability.sum(), size_probability(denoiser, x))

    @classmethod
    def kept_by(cls, rules: Rules, denoiser: Denoiser, condition: Condition | None, device: torch.device) -> "Starts":
        """The same with rules; those that were found give way if they leave no way to satisfy the condition."""
        if condition is None or len(rules) == 0:
            return cls.under(denoiser, condition, device)
        try:
            return cls.under(denoiser, condition, device, RuleTable(rules).to(device))
        except ConditionError:
            return cls.under(denoiser, condition, device, RuleTable(rules.only_certain).to(device))

    def draw(self, rows: int, generator: torch.Generator, spread: bool = True) -> tuple[Tensor, Tensor | None]:
        """A start for each record, (rows, N), and its number of codes, (rows,).

        Both follow evenly spread quantiles, so that a batch has about the right number of records of each kind; without
        `spread` every record is drawn by itself.
        """
        quantiles = _spread_quantiles if spread else _uniform
        way = torch.searchsorted(self.probability.cumsum(0), quantiles(rows, generator), right=True)
        way = way.clamp(max=len(self.x) - 1)
        x = self.x[way] if len(self.x) > 1 else self.x.repeat(rows, 1)
        if self.size_probability is None:
            return x, None
        cumulative = self.size_probability.cumsum(1)[way]
        size = torch.searchsorted(cumulative, quantiles(rows, generator).unsqueeze(1), right=True).squeeze(1)
        return x, size.clamp(max=cumulative.shape[1] - 1)


def _spread_quantiles(rows: int, generator: torch.Generator) -> Tensor:
    """One uniform number from each of `rows` equal parts of [0, 1), in random order, (rows,) float64."""
    part = torch.randperm(rows, generator=generator, device=generator.device)
    within = torch.rand(rows, generator=generator, device=generator.device, dtype=torch.float64)
    return (part + within) / max(rows, 1)


def _uniform(rows: int, generator: torch.Generator) -> Tensor:
    return torch.rand(rows, generator=generator, device=generator.device, dtype=torch.float64)


def _with_a_member(
    denoiser: Denoiser, x: Tensor, probability: Tensor, group: list[int], rules: RuleTable | None
) -> tuple[Tensor, Tensor]:
    """The starts in which the record has a member of the group, divided by which of its members is the first.

    By the chain rule P(first is k) = P(k | those before are absent) * P(those before are absent), one call for each k.
    Members after the first stay hidden.
    """
    settled = (x[:, group] == PRESENT).any(1)
    ways, weights = [x[settled]], [probability[settled]]
    reading, groups = denoiser.reading(x[~settled], None), denoiser.noise.groups
    none_so_far = probability[~settled]
    for member in group:
        if len(none_so_far) == 0 or none_so_far.max() < NEGLIGIBLE * probability.max():
            break
        code = torch.tensor([member], device=x.device)
        p = _probability(reading, groups, code)
        with_member = reading.x.clone()
        with_member[:, groups.same_group(member)] = ABSENT
        with_member[:, member] = PRESENT
        possible = p > 0 if rules is None else (p > 0) & rules.close(with_member)
        ways.append(with_member[possible])
        weights.append((none_so_far * p)[possible])
        none_so_far = none_so_far * (1 - p)
        reading.reveal(code, torch.zeros(len(p), 1, dtype=torch.bool, device=x.device))
    x, probability = torch.cat(ways), torch.cat(weights)
    if len(x) == 0:
        raise ConditionError("no record could satisfy the condition: rules of the data leave no member of an any_of")
    likeliest = probability.argsort(descending=True)[:MOST_WAYS]
    return x[likeliest], probability[likeliest]


def _probability(reading: Reading, groups: GroupTable, code: Tensor) -> Tensor:
    """p(the code is there), by itself or as a member of its group, (B,); 0 where it is known to be absent."""
    codes = groups.same_group(int(code)) if int(groups.group_of[code]) >= 0 else code
    hidden, logits = reading.x[:, codes] == HIDDEN, reading.logits(codes)
    table = groups.inside(codes)
    p = torch.sigmoid(logits) * hidden if table is None else table.in_full(logits, hidden)
    return p[:, codes == code].squeeze(1)


def size_probability(denoiser: Denoiser, x: Tensor) -> Tensor | None:
    """p(number of codes | what is revealed) for each start, (W, largest size + 1)."""
    log_p = denoiser.size_log_probability(x) if bool((x != HIDDEN).any()) else denoiser.size_log_prior
    if log_p is None:
        return None
    return possible_sizes(log_p.double().expand(len(x), -1), x, denoiser.noise.groups)


def possible_sizes(log_p: Tensor, x: Tensor, groups: GroupTable) -> Tensor:
    """p(number of codes), (W, sizes), from log p up to a constant, of those that what is revealed leaves possible."""
    size = torch.arange(log_p.shape[1], device=x.device)
    present, hidden = (x == PRESENT).sum(1, keepdim=True), (x == HIDDEN).sum(1, keepdim=True)
    if len(groups):  # a group that is still open adds one code, or none where that may be, however many are hidden
        still_open = groups.holds(x, HIDDEN) & ~groups.holds(x, PRESENT)
        present = present + (still_open & ~groups.optional).sum(1, keepdim=True)
        hidden = hidden - (x[:, groups.codes] == HIDDEN).sum(1, keepdim=True)
        hidden = hidden + (still_open & groups.optional).sum(1, keepdim=True)
    possible = (size >= present) & (size <= present + hidden)
    possible[:, -1] |= ~possible.any(1)  # more codes are revealed than any record had: then there are no others
    return log_p.masked_fill(~possible, -torch.inf).softmax(1)
