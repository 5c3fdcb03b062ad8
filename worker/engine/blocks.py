"""Which codes the fast sampler reveals together: codes of one block are drawn without knowing of each other.

So codes that go together are kept apart, and blocks grow while more and more is known. Any division is right for a
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
# The first block expects so much less, and the last so much more, than blocks do on average: of what codes say of each
# other most is told when nothing is known yet, and then asking costs least, because records are still alike.
RAMP = 0.65
FEW = 4  # codes to a block, below which blocks are equal: a single code may be more than a small block has room for
SLACK = 0.15  # of a block's expected codes, for the sake of keeping codes apart
MOST_FOUND = 16
# Of a seed, a pair of chunks and the codes they hide: leading blocks, the others, how much is expected of each unit,
# what else belongs to it, and by how much blocks grow.
Division = tuple[list[Tensor], list[Tensor], Tensor, dict[int, Tensor], float]
Divisions = dict[tuple[int, int, bytes], Division]


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
    ramp: float = 0.0,
    found: Divisions | None = None,
) -> list[Tensor]:
    """The blocks of one chunk of a cohort, whose expected codes grow with `ramp`.

    A chunk and the next reveal codes in opposite order. A network is not quite of one mind: how common a code comes out
    depends a little on what is revealed before it, and that is the same for a whole chunk. For any two codes, each goes
    first in one chunk of the pair. `leading` groups, which decide what other codes are possible, come in blocks of
    their own before all others. `found` keeps what was found for the other arguments before.
    """
    place = seed, chunk // 2, codes.cpu().numpy().tobytes()
    if found is not None and place in found:
        first, blocks, mass, whole, ramp = found[place]
    else:
        rng = np.random.default_rng([seed, chunk // 2])
        first = _leading_blocks(codes, leading, steps, rng)
        if first:
            codes, steps = codes[~torch.isin(codes, torch.cat(first))], max(steps - len(first), 1)
        units, mass, whole = _units(codes, expected, groups)
        ramp = ramp if len(units) >= FEW * steps else 0.0
        blocks = blocks_of(units, mass, ties, steps, rng, ramp)
        if found is not None:
            while len(found) >= MOST_FOUND:
                found.pop(next(iter(found)))
            found[place] = first, blocks, mass, whole, ramp
    if chunk % 2:
        blocks = blocks[::-1] if ramp == 0 else _cut(torch.cat(blocks[::-1]), mass, len(blocks), ramp)
    in_full = [torch.cat([block, *(whole[code] for code in block.tolist() if code in whole)]) for block in blocks]
    return first[::-1] + in_full if chunk % 2 else first + in_full


def in_order(n_codes: int, blocks: list[Tensor]) -> Tensor | None:
    """All codes (N,), those of the blocks last, as they come; None if there are no blocks."""
    if not blocks:
        return None
    asked = torch.cat(blocks)
    others = torch.ones(n_codes, dtype=torch.bool, device=asked.device).index_fill_(0, asked, False)
    return torch.cat([others.nonzero().squeeze(1), asked])


def _shares(steps: int, ramp: float) -> NDArray[np.float64]:
    """What share of the expected codes each block has."""
    shares = 1 + ramp * np.linspace(-1, 1, steps) if steps > 1 else np.ones(1)
    return np.asarray(shares / shares.sum())


def _cut(codes: Tensor, expected: Tensor, steps: int, ramp: float) -> list[Tensor]:
    """`codes` (C,) in this order, in blocks that expect more and more."""
    mass = expected.double().cpu().numpy()[codes.cpu().numpy()] + 1e-6
    middle = mass.cumsum() - mass / 2
    ends = _shares(steps, ramp).cumsum() * mass.sum()
    block = torch.from_numpy(np.searchsorted(ends[:-1], middle))
    return [part for number in range(steps) if len(part := codes[block == number])]


def _leading_blocks(codes: Tensor, leading: Sequence[Tensor], steps: int, rng: np.random.Generator) -> list[Tensor]:
    """The leading groups in at most a third of the steps; with hardly any steps they share the one with all codes."""
    there = [group[torch.isin(group, codes)] for group in leading]
    there = [group for group in there if len(group)]
    room = min(max(steps // 3, 1 if steps > 1 else 0), len(there))
    order = rng.permutation(len(there))
    return [torch.cat([there[number] for number in order[place::room]]) for place in range(room)]


def _units(codes: Tensor, expected: Tensor, groups: GroupTable | None) -> tuple[Tensor, Tensor, dict[int, Tensor]]:
    """What is placed in blocks: codes, and of a group one member for all. How many are expected of each (N,), and the
    other members of each that stands for a group."""
    if groups is None or groups.inside(codes) is None:
        return codes, expected, {}
    group_of = groups.group_of[codes]
    grouped = group_of >= 0
    numbers, which = torch.unique(group_of[grouped], return_inverse=True)
    members = [codes[grouped][which == number] for number in range(len(numbers))]
    heads = torch.stack([each[0] for each in members])
    mass = expected.clone()
    for each in members:
        mass[each[0]] = expected[each].sum()
    return torch.cat([codes[~grouped], heads]), mass, {int(each[0]): each[1:] for each in members}


def blocks_of(
    codes: Tensor, expected: Tensor, ties: Ties, steps: int, rng: np.random.Generator, ramp: float = 0.0
) -> list[Tensor]:
    """`codes` (C,) in at most `steps` blocks, at random, whose sums of `expected` (N,) grow with `ramp`."""
    if steps < 1:
        raise ConfigError(f"steps must be 1 or more, not {steps}")
    order = rng.permutation(codes.cpu().numpy())
    mass = expected.double().cpu().numpy()[order] + 1e-6
    place = ties.place[order]
    tied = place >= 0
    block = np.empty(len(order), dtype=np.int64)
    capacity = _shares(steps, ramp) * mass.sum()
    block[tied], room = _apart(mass[tied], ties.strength[:, place[tied]], place[tied], capacity)
    # The others fill the room that is left, in their random order.
    middle = mass[~tied].cumsum() - mass[~tied] / 2
    ends = room.clip(1e-9).cumsum()
    block[~tied] = np.searchsorted(ends[:-1] * (mass[~tied].sum() / ends[-1]), middle)
    members = [order[block == number] for number in (rng.permutation(steps) if ramp == 0 else range(steps))]
    return [torch.from_numpy(each).to(codes.device) for each in members if len(each)]


def _apart(
    mass: NDArray[np.float64],
    strength: NDArray[np.float64],
    place: NDArray[np.int64],
    capacity: NDArray[np.float64],
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """A block for each of the codes, one after the other where it has the weakest ties, and the room that is left.

    A code may stand in a block that is a little over its capacity, or the last codes would have no choice.
    """
    block, room = np.empty(len(mass), dtype=np.int64), capacity.copy()
    strain = np.zeros((len(capacity), len(mass)))  # of each code, were it in the block
    rows = strength[place]  # (codes, codes) in the order of `mass`
    for number, needed in enumerate(mass):
        fits = room + SLACK * capacity >= needed / 2
        cost = strain[:, number] - 1e-9 * room  # of equally good blocks the emptiest
        chosen = np.where(fits, cost, np.inf).argmin() if fits.any() else room.argmax()
        block[number] = chosen
        room[chosen] -= needed
        strain[chosen] += rows[number]
    return block, room
