"""The fast sampler, for noise that reveals: one block of codes is revealed with each call of the network.

The records of a batch share one random order of the codes, so a call needs logits for the codes of its block only, and
what the network has read so far is updated, not read again (see `Reading`). Three things make few calls enough:

    blocks   grow while more and more is known, and keep apart what goes together (worker/engine/blocks.py)
    sizes    a block is drawn again until the rest of the record can hold the codes that are left; a record that is
             short of codes in the end gets those that suit it best, of all blocks
    rare     codes are dealt out to the batch rather than drawn for each record: each record has a rare code with the
             probability the network says, but how many records have it hardly varies from cohort to cohort
"""

import math

import torch
from torch import Tensor

from worker.engine.denoisers import Reading
from worker.engine.denoisers.base import is_present
from worker.engine.groups import GroupTable
from worker.engine.noise import HIDDEN, PRESENT
from worker.engine.rules import Keeping, RuleTable

# A code expected in fewer records of a batch than this is dealt; more would tie codes of one block to each other.
RARE = 2.0
TRIES = 8  # draws of a block before the last one is taken
UNDEALT = math.inf  # offset of a code that is never dealt, however rare it is
OVERFLOW = 0.02  # codes that may come later than the last block, or than a block after which none are expected
GOLDEN = 0.6180339887498949  # multiples of it, modulo 1, spread most evenly


def deal_offsets(n_codes: int, seed: int, chunk: int) -> Tensor:
    """Where dealing starts for each code in this chunk: chunk after chunk they cover [0, 1) evenly, (N,)."""
    first = torch.rand(n_codes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (first + chunk * GOLDEN) % 1


@torch.no_grad()
def reveal_sample(
    reading: Reading,
    blocks: list[Tensor],
    offsets: Tensor,
    generator: torch.Generator,
    groups: GroupTable | None = None,
    rules: RuleTable | None = None,
) -> Tensor:
    """Reveal the hidden codes of the batch, a block with each network call, (B, N) uint8 of 0 and 1.

    `blocks` are of worker/engine/blocks.py and hold every hidden code; `offsets` (N,) come from `deal_offsets`. What is
    revealed at the start keeps the rules, with all that follows from it.
    """
    start = reading.x.clone()
    x_0 = torch.empty_like(start)
    rows = torch.arange(len(x_0), device=x_0.device)  # of x_0 that are still being read
    keeping = None if rules is None else Keeping.of(rules, start)
    for codes in blocks:
        if rules is None or keeping is None:
            _reveal_block(reading, codes, reading.logits(codes), offsets, groups, None, generator)
        else:
            logits = reading.logits(codes)
            for part in rules.parts(codes):
                _reveal_block(reading, codes[part], logits[:, part], offsets, groups, keeping, generator)
        rows = _set_aside_finished(reading, rows, x_0, groups, keeping)
        if len(rows) == 0:
            break
    _fill(reading, start[rows], groups, keeping, generator)
    x_0[rows] = is_present(reading.x)
    return x_0


def _reveal_block(
    reading: Reading,
    codes: Tensor,
    logits: Tensor,
    offsets: Tensor,
    groups: GroupTable | None,
    keeping: Keeping | None,
    generator: torch.Generator,
) -> None:
    """Draw the codes (C,) by their logits (B, C) and reveal them."""
    inside = None if groups is None else groups.inside(codes)
    hidden = possible = reading.hidden(codes)
    if keeping is not None:
        allowed = ~(keeping.forbidden.index_select(1, codes) | keeping.forced.index_select(1, codes))
        possible = allowed if hidden is None else hidden & allowed
    if inside is not None:
        p = inside.in_full(logits, torch.ones_like(logits, dtype=torch.bool) if possible is None else possible)
    else:
        p = torch.sigmoid(logits) if possible is None else torch.sigmoid(logits) * possible
    left = reading.left()
    if left is not None and groups is not None:
        left = left - _still_to_come(reading, groups, inside)
    if left is not None and keeping is not None:
        left = left - keeping.to_come(reading.x)
    present = _draw(p, left, offsets[codes], inside, generator)
    if keeping is not None:
        present = keeping.settle(codes, present if hidden is None else present & hidden, p, generator)
        keeping.note(codes, present if hidden is None else present | (reading.x.index_select(1, codes) == PRESENT))
    reading.reveal(codes, present)


def _still_to_come(reading: Reading, groups: GroupTable, inside: GroupTable | None) -> Tensor:
    """How many codes of each record later blocks must hold for groups of which one member is a must, (B,)."""
    to_come = groups.holds(reading.x, HIDDEN) & ~groups.holds(reading.x, PRESENT) & ~groups.optional
    if inside is not None:
        to_come[:, inside.numbers] = False
    return to_come.sum(1)


def _draw(
    p: Tensor, left: Tensor | None, offsets: Tensor, inside: GroupTable | None, generator: torch.Generator
) -> Tensor:
    """Which codes of a block each record has, (B, C) bool, from their probabilities p (B, C).

    `left` (B,) is how many codes the record is to have yet, in this block or in others.
    """
    expected = p.sum(1)
    present = torch.zeros(p.shape, dtype=torch.bool, device=p.device)
    alone = torch.ones(p.shape[1], dtype=torch.bool, device=p.device)
    if inside is not None:
        alone[inside.codes] = False
        members = _draw_members(p[:, inside.codes], offsets[inside.codes], inside, generator)
        if left is not None:
            members &= ~(inside.optional[inside.segment] & (left <= 0).unsqueeze(1))
            left = left - members.sum(1)
        present[:, inside.codes] = members
    is_dealt = alone & (p.sum(0) < RARE) & (offsets != UNDEALT)
    # rare codes of a wide vocabulary are the last of their block: what can be cut off need not be picked
    last = (~is_dealt).nonzero()
    end = int(last[-1]) + 1 if len(last) else 0
    # where they stand, once: to index by a mask is to look for it each time
    rare, common = (chosen[:end].nonzero().squeeze(1) for chosen in (is_dealt, alone & ~is_dealt))
    dealt = _deal(p.index_select(1, rare), offsets[rare], generator)
    dealt_last = _deal(p[:, end:], offsets[end:], generator)
    of_common = p.index_select(1, common)
    if left is None:
        drawn = _bernoulli(of_common, generator)
    else:
        of_members = 0 if inside is None else members.sum(1)
        later = left + of_members - expected  # what is expected in later blocks
        drawn = _fitting(of_common, left - dealt.sum(1) - dealt_last.sum(1), later.clamp(min=OVERFLOW), generator)
    present[:, end:] = dealt_last
    return present.index_copy_(1, rare, dealt).index_copy_(1, common, drawn)


def _draw_members(p: Tensor, offsets: Tensor, groups: GroupTable, generator: torch.Generator) -> Tensor:
    """One member of each group, or none, (B, M) bool, from their probabilities p (B, M); rare members are dealt.

    By the chain rule: each rare member is dealt with its probability given that none before it was, and the common ones
    share what is left.
    """
    present = torch.zeros(p.shape, dtype=torch.bool, device=p.device)
    rare = (p.sum(0) < RARE) & (offsets != UNDEALT)
    place = groups.place_among(rare)  # (M,) the how-manieth rare member of its group each is
    undecided, open_share = torch.ones_like(groups.total(p)), torch.ones_like(groups.total(p))
    for turn in range(int(place.max()) + 1 if bool(rare.any()) else 0):
        columns = (rare & (place == turn)).nonzero().squeeze(1)
        group = groups.segment[columns]
        given = (p[:, columns] / open_share[:, group].clamp(min=1e-12)).clamp(max=1.0) * undecided[:, group]
        present[:, columns] = dealt = _deal(given, offsets[columns], generator) & (given > 0)
        undecided[:, group] *= ~dealt
        open_share[:, group] = (open_share[:, group] - p[:, columns]).clamp(min=0.0)
    rest = torch.where(rare, 0.0, p) * undecided[:, groups.segment]
    drawn = groups.draw(rest / open_share.clamp(min=1e-12)[:, groups.segment], generator)
    # where rounding has left a group of which one must be there without any, the likeliest member
    missing = (groups.total((present | drawn).float()) == 0) & (groups.total(p) > 0.5) & ~groups.optional
    likeliest = groups.likeliest(p) & missing[:, groups.segment]
    return present | drawn | likeliest


def _bernoulli(p: Tensor, generator: torch.Generator) -> Tensor:
    return torch.rand(p.shape, generator=generator, device=p.device) < p


def _deal(p: Tensor, offsets: Tensor, generator: torch.Generator) -> Tensor:
    """Systematic sampling down each column of p (B, C): P(present) is p for each record, their number is fixed to 1.

    Walk down the column adding up p; a record is chosen when the sum passes an integer. The walk begins at a random
    record, so that codes with the same offset do not meet in the same records.
    """
    present = torch.zeros(p.shape, dtype=torch.bool, device=p.device)
    if present.numel() == 0:
        return present
    sums = p.T.double().cumsum(1)  # (C, B)
    total = sums[:, -1:]
    start = torch.randint(len(p), (len(sums), 1), generator=generator, device=p.device)
    skipped = sums.gather(1, start) - p.T.gather(1, start)
    integers = torch.arange(1, int(total.max().ceil()) + 1, device=p.device)
    walked = integers - offsets.unsqueeze(1)  # where each integer is passed, (C, integers)
    passed = walked <= total
    place = skipped + walked
    rows = torch.searchsorted(sums, torch.where(place > total, place - total, place)).clamp(max=len(p) - 1)
    codes = torch.arange(len(sums), device=p.device).unsqueeze(1).expand_as(rows)
    present[rows[passed], codes[passed]] = True
    return present


def _fitting(p: Tensor, left: Tensor, rest: Tensor, generator: torch.Generator) -> Tensor:
    """Draw a block again until the later blocks, expected to hold `rest` codes, can hold what is left of the record.

    Codes drawn side by side vary more in number than codes that add up to a given size. A draw of k codes is accepted
    with probability proportional to Poisson(left - k; rest) ** crowding, where crowding is the chance that two codes of
    the block are not the same one: a block of a single code needs no correction, since p knows the size.
    """
    present = _bernoulli(p, generator)
    present[left <= 0] = False
    crowding = 1 - p.square().sum(1) / p.sum(1).square().clamp(min=1e-12)
    most_likely = _log_poisson(rest.floor(), rest)
    open_rows = (left > 0).nonzero().squeeze(1)
    for _ in range(TRIES):
        remaining = left[open_rows] - present[open_rows].sum(1)
        log_chance = _log_poisson(remaining, rest[open_rows]) - most_likely[open_rows]
        chance = torch.exp(crowding[open_rows] * log_chance).masked_fill(remaining < 0, 0.0)
        refused = torch.rand(len(open_rows), generator=generator, device=p.device) >= chance
        open_rows = open_rows[refused]
        if len(open_rows) == 0:
            break
        present[open_rows] = _bernoulli(p[open_rows], generator)
    return present


def _log_poisson(k: Tensor, mean: Tensor) -> Tensor:
    """log Poisson(k; mean) for k >= 0; mean = 0 leaves k = 0 alone."""
    k = k.clamp(min=0)
    return torch.xlogy(k, mean) - mean - torch.lgamma(k + 1.0)


def _set_aside_finished(
    reading: Reading, rows: Tensor, x_0: Tensor, groups: GroupTable | None, keeping: Keeping | None
) -> Tensor:
    """Stop reading records that have all their codes, once there are enough of them to be worth it."""
    left = reading.left()
    if left is None:
        return rows
    finished = left == 0
    if groups is not None:
        finished &= _still_to_come(reading, groups, None) == 0
    if keeping is not None:
        finished &= keeping.to_come(reading.x) == 0
    if int(finished.sum()) * 8 < len(rows):
        return rows
    done = finished.nonzero().squeeze(1)
    x_0.index_copy_(0, rows[done], is_present(reading.x.index_select(0, done)))
    going_on = (~finished).nonzero().squeeze(1)
    reading.keep(going_on)
    if keeping is not None:
        keeping.keep(going_on)
    return rows[going_on]


def _fill(
    reading: Reading, start: Tensor, groups: GroupTable | None, keeping: Keeping | None, generator: torch.Generator
) -> None:
    """Records that are short of codes get them, one after the other, as they go with the codes that are there.

    What blocks have left out is open again: to look for a missing code in the last block alone would make its codes
    common and meaningless. Groups are settled, and so is `start` (B, N), what was known when the reading began.
    """
    left = reading.left()
    if left is None or reading.size is None:
        return
    short = (left > 0).nonzero().squeeze(1)
    if len(short) == 0:
        return
    told = reading.x[short]
    x = torch.where(told == PRESENT, told, start[short])
    if groups is not None:
        x[:, groups.codes] = told[:, groups.codes]
    possible, again = x == HIDDEN, reading.anew(x, short)
    while len(short) > 0:
        if keeping is not None:
            possible &= ~keeping.forbidden[short]
        codes, found = _one(again.every().sigmoid_().mul_(possible), generator)
        rows = found.nonzero().squeeze(1)
        codes = codes[rows]
        reading.x[short[rows], codes] = PRESENT
        again.add(rows, codes)
        possible[rows, codes] = False
        if keeping is not None:
            keeping.forbid_with(short[rows], codes)
        left[short] -= 1
        going_on = (found & (left[short] > 0)).nonzero().squeeze(1)
        short, possible = short[going_on], possible[going_on]
        again.keep(going_on)


def _one(weight: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """One column of each row in proportion to its weight (B, C), and whether there is any with a weight, (B,) each."""
    upper = weight.double().cumsum(1)
    point = torch.rand(len(weight), 1, generator=generator, device=weight.device, dtype=torch.float64) * upper[:, -1:]
    column = torch.searchsorted(upper, point, right=True).clamp(max=weight.shape[1] - 1)
    return column.squeeze(1), weight.gather(1, column).squeeze(1) > 0
