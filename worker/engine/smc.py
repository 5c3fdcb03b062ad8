"""Exact conditions for noise that does not reveal: twisted sequential Monte Carlo.

Particles walk from x_T to x_0 as unconditional samples do, but the codes of all_of and none_of are steered to where
the condition wants them, and each step weighs a particle by how much likelier it has made the condition:

    w <- w * psi_u(x_u) / psi_t(x_t) * p(x_u | x_t) / proposal(x_u | x_t),   psi_t(x_t) = p_theta(condition | x_t)

Particles are resampled inside small independent populations, so that a cohort does not descend from a few of them.
"""

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor

from ehr.conditions import Condition
from ehr.errors import ConditionError
from worker.engine.conditioning import Starts
from worker.engine.denoisers import Denoiser
from worker.engine.groups import CERTAIN, GroupTable
from worker.engine.guidance import ConditionEnergy
from worker.engine.noise import PRESENT, TwoStateNoise
from worker.engine.schedules import strided_times

POPULATION = 64


@torch.no_grad()
def twisted_sample(
    denoiser: Denoiser,
    noise: TwoStateNoise,
    condition: Condition,
    n: int,
    steps: int,
    generator: torch.Generator,
    mend: Callable[[Tensor], Tensor] = lambda x: x,
) -> tuple[Tensor, float]:
    """Draw n records that satisfy the condition, (n, N) uint8; as exact as the network when populations are large.

    Also tells how many independent records they are worth. `mend` makes possible records of those that came out.
    """
    particles = -(-n // POPULATION) * POPULATION
    energy, device = ConditionEnergy(condition, noise.groups), generator.device
    steered = sorted(condition.all_of | condition.none_of)
    x = noise.prior_sample(particles, generator, device)
    _, size = Starts.under(denoiser, None, device).draw(particles, generator)
    times = strided_times(noise.timesteps, steps)
    logits = denoiser.in_batches(x, torch.full((particles,), times[0], device=device), size)
    log_twist = energy(logits).double()
    log_weight = log_twist.clone()
    root = torch.arange(particles, device=device)
    for t_now, u_next in pairwise(times):
        order = resampled(log_weight, generator)
        if order is not None:
            x, logits, log_twist, root = x[order], logits[order], log_twist[order], root[order]
            size = None if size is None else size[order]
            log_weight = torch.zeros_like(log_weight)
        t, u = torch.full((1,), t_now, device=device), torch.full((1,), u_next, device=device)
        free = noise.present_probability(logits, x, t, u)
        forced = noise.present_probability(_steered_logits(logits, condition), x, t, u)
        x = noise.draw(forced, generator)
        log_weight += _log_ratio(free, forced, x == PRESENT, steered, noise.groups) - log_twist
        if u_next > 0:
            logits = denoiser.in_batches(x, u.expand(particles), size)
            log_twist = energy(logits).double()
        else:
            x = mend(x)
            log_twist = torch.where(_satisfied(condition, x), 0.0, -torch.inf).double()
        log_weight += log_twist
    share = effective_records(x, root, log_weight) / particles
    return x[_final(log_weight, generator)][:n], share * n


def effective_records(x: Tensor, root: Tensor, log_weight: Tensor) -> float:
    """The effective sample size of weighted particles x (P, N), summed over populations: 1 / sum of squared weights.

    Particles that descend from the same `root` (P,) and are the same record count as one: resampling has made them
    copies, and the steps since then have not parted them. A population in which none fits adds nothing.
    """
    by_population = log_weight.view(-1, POPULATION)
    alive = (by_population > -torch.inf).any(1)
    weight = torch.where(alive.unsqueeze(1), by_population, 0.0).softmax(1)
    _, record = torch.unique(x, dim=0, return_inverse=True)
    _, copy = torch.unique(torch.stack([root, record]), dim=1, return_inverse=True)
    # roots are of one population, and so are copies: the sum over copies of squared weights is that of populations
    of_copy = torch.zeros(len(x), dtype=weight.dtype, device=x.device).index_add_(0, copy, weight.flatten())
    of_all = of_copy[copy].view(-1, POPULATION)  # for each particle, the weight of all its copies
    return float((1 / (weight * of_all).sum(1)[alive]).sum())


def _steered_logits(logits: Tensor, condition: Condition) -> Tensor:
    steered = logits.clone()
    steered[:, sorted(condition.all_of)] = CERTAIN
    steered[:, sorted(condition.none_of)] = -CERTAIN
    return steered


def _log_ratio(free: Tensor, forced: Tensor, present: Tensor, steered: list[int], groups: GroupTable) -> Tensor:
    """log of p(x_u) / proposal(x_u) over the steered codes and the groups that have one, (B,)."""
    alone = [code for code in steered if int(groups.group_of[code]) < 0]

    def log_p(table: Tensor) -> Tensor:
        of_codes = torch.where(present, table, 1 - table)[:, alone].clamp(min=1e-300).log().sum(1)
        touched = sorted({int(groups.group_of[code]) for code in steered} - {-1})
        if not touched:
            return of_codes
        on, p = present[:, groups.codes], table[:, groups.codes]
        chosen = groups.total(torch.where(on, p, 0.0))
        none = (1 - groups.total(p)).clamp(min=0.0)
        held = torch.where(groups.total(on.double()) > 0, chosen, none)
        return of_codes + held[:, touched].clamp(min=1e-300).log().sum(1)

    return log_p(free) - log_p(forced)


def _satisfied(condition: Condition, x: Tensor) -> Tensor:
    met = (x[:, sorted(condition.all_of)] == PRESENT).all(1) & (x[:, sorted(condition.none_of)] != PRESENT).all(1)
    for group in condition.any_of:
        met &= (x[:, sorted(group)] == PRESENT).any(1)
    return met


def resampled(log_weight: Tensor, generator: torch.Generator) -> Tensor | None:
    """Which particles go on, (P,), in populations whose effective size is below half; None if there is none."""
    weight = log_weight.view(-1, POPULATION).softmax(1)
    effective = 1 / weight.square().sum(1)
    if bool((effective >= POPULATION / 2).all()):
        return None
    # Where weights are still even, systematic resampling keeps nearly every particle: one rule for all populations.
    return systematic(weight, generator)


def systematic(weight: Tensor, generator: torch.Generator, taken: int | None = None) -> Tensor:
    """Indices of resampled particles, each population (row of `weight`) from itself, as many as it has or `taken`."""
    populations, size = weight.shape
    taken = size if taken is None else taken
    first = torch.rand(populations, 1, generator=generator, device=weight.device, dtype=torch.float64)
    points = (torch.arange(taken, device=weight.device) + first) / taken
    chosen = torch.searchsorted(weight.double().cumsum(1).contiguous(), points).clamp(max=size - 1)
    return (chosen + torch.arange(populations, device=weight.device).unsqueeze(1) * size).flatten()


def _final(log_weight: Tensor, generator: torch.Generator) -> Tensor:
    """The records that are returned: resampled once more; a population in which none fits takes others' records."""
    fits = log_weight > -torch.inf
    if not fits.any():
        raise ConditionError(
            "no record that satisfies the condition was found: the model holds it for next to impossible; "
            "ask for fewer or more common codes, or train with noise 'absorbing', which meets any condition"
        )
    alive = fits.view(-1, POPULATION).any(1)
    by_population = log_weight.view(-1, POPULATION)
    weight = torch.where(alive.unsqueeze(1), by_population, 0.0).softmax(1)
    order = systematic(weight, generator).view(-1, POPULATION)
    donors = order[alive]
    pick = torch.randint(len(donors), (int((~alive).sum()),), generator=generator, device=order.device)
    order[~alive] = donors[pick]
    return order.flatten()
