"""Which codes the fast sampler reveals together: codes of one block are drawn without knowing of each other.

So blocks hold equally many expected codes, and codes that go together are kept apart. Any division is right for a
network trained on random masks; this one leaves little unsaid between the codes of a block (docs/decisions/0009).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ehr.errors import ConfigError
from worker.engine.denoisers import Denoiser
from worker.engine.groups import GroupTable

# Ties are known among this many of the most common codes; rarer ones hardly ever meet.
MOST_TIED = 512
SLACK = 0.15  # of a block's expected codes, for the sake of keeping codes apart


@dataclass(frozen=True)
class Ties:
    """How strongly codes go together according to the network."""

    place: NDArray[np.int64]  # (N,) of each code in `strength`; -1 for rare codes
    strength: NDArray[np.float64]  # (M, M) |covariance|, 0 with itself

    @classmethod
    def none(cls, n_codes: int) -> Self:
        """Nothing is tied to anything."""
        return cls(np.full(n_codes, -1), np.zeros((0, 0)))

    @classmethod
    def seen_by(cls, denoiser: Denoiser, prevalence: Tensor) -> Self:
        """Ask what comes with each of the common codes; nothing is tied where that is too much to ask."""
        common = prevalence.argsort(descending=True, stable=True)[:MOST_TIED]
        given = denoiser.given_each(common)
        if given is None:
            return cls.none(len(prevalence))
        place = np.full(len(prevalence), -1)
        place[common.cpu().numpy()] = np.arange(len(common))
        p = prevalence[common].double().cpu().numpy()
        covariance = p[:, None] * (given.double().cpu().numpy() - p)
        strength = np.abs(covariance + covariance.T) / 2
        np.fill_diagonal(strength, 0)
        return cls(place, strength)


def blocks_of_chunk(
    codes: Tensor,
    expected: Tensor,
    ties: Ties,
    steps: int,
    seed: int,
    chunk: int,
    groups: GroupTable | None = None,
    leading: Sequence[Tensor] = (),
) -> list[Tensor]:
    """The blocks of one chunk of a cohort. A chunk and the next reveal the same blocks in opposite order.

    A network is not quite of one mind: how common a code comes out depends a little on what is revealed before it, and
    that is the same for a whole chunk. For any two codes, each goes first in one chunk of the pair. `leading` groups,
    which decide what other codes are possible, come in blocks of their own before all others.
    """
    rng = np.random.default_rng([seed, chunk // 2])
    first = _leading_blocks(codes, leading, steps, rng)
    if first:
        codes, steps = codes[~torch.isin(codes, torch.cat(first))], max(steps - len(first), 1)
    if groups is None or groups.inside(codes) is None:
        blocks = blocks_of(codes, expected, ties, steps, rng)
    else:
        blocks = _with_whole_groups(codes, expected, ties, steps, rng, groups)
    return first[::-1] + blocks[::-1] if chunk % 2 else first + blocks


def _leading_blocks(codes: Tensor, leading: Sequence[Tensor], steps: int, rng: np.random.Generator) -> list[Tensor]:
    """The leading groups in at most a third of the steps; with hardly any steps they share the one with all codes."""
    there = [group[torch.isin(group, codes)] for group in leading]
    there = [group for group in there if len(group)]
    room = min(max(steps // 3, 1 if steps > 1 else 0), len(there))
    order = rng.permutation(len(there))
    return [torch.cat([there[number] for number in order[place::room]]) for place in range(room)]


def _with_whole_groups(
    codes: Tensor, expected: Tensor, ties: Ties, steps: int, rng: np.random.Generator, groups: GroupTable
) -> list[Tensor]:
    """Blocks in which the members of a group stand together: one of them is placed for all."""
    group_of = groups.group_of[codes]
    grouped = group_of >= 0
    numbers, which = torch.unique(group_of[grouped], return_inverse=True)
    members = [codes[grouped][which == number] for number in range(len(numbers))]
    heads = torch.stack([each[0] for each in members])
    mass = expected.clone()
    for each in members:
        mass[each[0]] = expected[each].sum()
    blocks = blocks_of(torch.cat([codes[~grouped], heads]), mass, ties, steps, rng)
    whole = {int(each[0]): each for each in members}
    return [torch.cat([block, *(whole[code][1:] for code in block.tolist() if code in whole)]) for block in blocks]


def blocks_of(codes: Tensor, expected: Tensor, ties: Ties, steps: int, rng: np.random.Generator) -> list[Tensor]:
    """`codes` (C,) in at most `steps` blocks with about equal sums of `expected` (N,), in random order."""
    if steps < 1:
        raise ConfigError(f"steps must be 1 or more, not {steps}")
    order = rng.permutation(codes.cpu().numpy())
    mass = expected.double().cpu().numpy()[order] + 1e-6
    place = ties.place[order]
    tied = place >= 0
    block = np.empty(len(order), dtype=np.int64)
    block[tied], room = _apart(mass[tied], ties.strength[:, place[tied]], place[tied], steps, mass.sum() / steps)
    # The others fill the room that is left, in their random order.
    middle = mass[~tied].cumsum() - mass[~tied] / 2
    ends = room.clip(1e-9).cumsum()
    block[~tied] = np.searchsorted(ends[:-1] * (mass[~tied].sum() / ends[-1]), middle)
    members = [order[block == number] for number in rng.permutation(steps)]
    return [torch.from_numpy(each).to(codes.device) for each in members if len(each)]


def _apart(
    mass: NDArray[np.float64], strength: NDArray[np.float64], place: NDArray[np.int64], steps: int, capacity: float
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """A block for each of the codes, one after the other where it has the weakest ties, and the room that is left.

    A code may stand in a block that is a little over its capacity, or the last codes would have no choice.
    """
    block, room = np.empty(len(mass), dtype=np.int64), np.full(steps, capacity)
    strain = np.zeros((steps, len(mass)))  # of each code, were it in the block
    rows = strength[place]  # (codes, codes) in the order of `mass`
    for number, needed in enumerate(mass):
        fits = room + SLACK * capacity >= needed / 2
        cost = strain[:, number] - 1e-9 * room  # of equally good blocks the emptiest
        chosen = np.where(fits, cost, np.inf).argmin() if fits.any() else room.argmax()
        block[number] = chosen
        room[chosen] -= needed
        strain[chosen] += rows[number]
    return block, room
