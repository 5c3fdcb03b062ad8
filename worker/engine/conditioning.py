"""Exact conditions for noise that reveals: start with what the condition says revealed, and sample the rest.

What a condition leaves open is decided first, by the model's own probabilities: which member of an any_of group a
record has, then how many codes it has.
"""

import torch
from torch import Tensor

from worker.engine.conditions import Condition
from worker.engine.denoisers import Denoiser
from worker.engine.noise import ABSENT, HIDDEN, PRESENT

NEGLIGIBLE = 1e-6  # chance that a record has none of the group's codes looked at so far


@torch.no_grad()
def known_by_condition(
    denoiser: Denoiser, condition: Condition | None, rows: int, generator: torch.Generator
) -> Tensor:
    """What the condition reveals of each record, (rows, N) uint8, HIDDEN where it says nothing."""
    x = torch.full((rows, denoiser.n_codes), HIDDEN, dtype=torch.uint8, device=generator.device)
    if condition is None:
        return x
    x[:, sorted(condition.none_of)] = ABSENT
    x[:, sorted(condition.all_of)] = PRESENT
    for group in condition.any_of:
        members = torch.tensor(sorted(group), device=x.device)
        undecided = (x[:, members] != PRESENT).all(1).nonzero().squeeze(1)
        if len(undecided):
            x[undecided] = _with_a_member(denoiser, x[undecided], members, generator)
    return x


def _with_a_member(denoiser: Denoiser, x: Tensor, members: Tensor, generator: torch.Generator) -> Tensor:
    """Choose the first member each record has, in a fixed order, given that it has one; later members stay hidden.

    By the chain rule P(first is k) = P(k | those before are absent) * P(those before are absent), one call for each k.
    """
    contexts, context_of = torch.unique(x, dim=0, return_inverse=True)
    reading = denoiser.reading(contexts, None)
    none_so_far = torch.ones(len(contexts), 1, device=x.device)
    first = []
    for member in members:
        code = member.unsqueeze(0)
        p = torch.sigmoid(reading.logits(code)) * (reading.x[:, code] == HIDDEN)
        first.append(none_so_far * p)
        none_so_far = none_so_far * (1 - p)
        reading.reveal(code, torch.zeros_like(p, dtype=torch.bool))
        if none_so_far.max() < NEGLIGIBLE:
            break
    chosen = torch.multinomial(torch.cat(first, dim=1)[context_of] + 1e-30, 1, generator=generator).squeeze(1)
    for k, member in enumerate(members[: len(first)]):
        x[chosen > k, member] = ABSENT
        x[chosen == k, member] = PRESENT
    return x


@torch.no_grad()
def draw_sizes(denoiser: Denoiser, x: Tensor, generator: torch.Generator) -> Tensor | None:
    """How many codes each record will have, given what is revealed of it, (B,); None if the denoiser does not say.

    Sizes are drawn from evenly spread quantiles, so that a batch has about the right number of records of each size.
    """
    prior = denoiser.size_log_prior
    if prior is None:
        return None
    contexts, context_of = torch.unique(x, dim=0, return_inverse=True)
    revealed = (contexts != HIDDEN).any(1) & denoiser.noise.reveals
    log_p = prior.double().expand(len(contexts), -1).clone()
    if revealed.any():
        t = torch.ones(int(revealed.sum()), dtype=torch.long, device=x.device)
        _, logits = denoiser.predict(contexts[revealed], t, None)
        if logits is not None:
            log_p[revealed] = logits.double()
    sizes = torch.arange(len(prior), device=x.device)
    present = (contexts == PRESENT).sum(1, keepdim=True)
    hidden = (contexts == HIDDEN).sum(1, keepdim=True)
    if denoiser.noise.reveals:
        possible = (sizes >= present) & (sizes <= present + hidden)
        possible[:, -1] |= ~possible.any(1)  # more codes are revealed than any record had: then there are no others
        log_p = log_p.masked_fill(~possible, -torch.inf)
    cumulative = log_p.softmax(1).cumsum(1)[context_of]  # (B, S)
    stratum = torch.randperm(len(x), generator=generator, device=x.device)
    quantile = (stratum + torch.rand(len(x), generator=generator, device=x.device)).double() / max(len(x), 1)
    return torch.searchsorted(cumulative, quantile.unsqueeze(1), right=True).squeeze(1).clamp(max=len(prior) - 1)
