"""After training: pairs of codes in records that the model draws, as common as they are in training records.

A network that is trained by likelihood hardly minds that a pair which three of a thousand patients should have is drawn
for five: the loss is a few thousandths of a nat. Whoever reads the records does mind: where codes exclude each other (a
caesarean and a tear of a normal delivery), and where a rare disease has lost the one drug that goes with it, because
what few patients have taught was restrained. So records are drawn, pairs are counted in them as they were in the
training records, and where of those with one code far more or fewer have another, what the one says of the other is
moved by the difference of log-odds (docs/decisions/0122, 0135): iterative proportional fitting, in weights that are
there.
"""

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import xlogy
from torch import Tensor

from worker.engine.denoisers.few_patients import CodeTables, FewPatients, pair_counts
from worker.engine.generators.protocol import SampleRequest
from worker.engine.training import NO_HOOKS, Hooks

if TYPE_CHECKING:
    from worker.engine.generators.d3pm import D3PMGenerator

FEWEST = 5_000  # records; fewer show by chance more than they know
MOST_DRAWN = 60_000  # records in a round,
MOST_ASKED = 60_000_000  # and as many times codes: a wide vocabulary draws fewer, slower records
CERTAIN = 3.0  # standard errors of a difference that is no chance
STEP = 0.8  # of a difference: links of one code move each other's pairs
LEAST = 0.7  # log-odds; smaller differences of pairs are mostly those of blocks, which links cannot mend
FARTHEST = 8.0  # that a link is moved in all, log-odds: where that did not help, more would not
SEEDS = 1 << 40  # far from those that people choose: no cohort is drawn with the numbers that links were moved by
Floats = NDArray[np.float32]  # tables of all pairs: half the memory


def calibrate_pairs(generator: "D3PMGenerator", few: FewPatients | None, seed: int, hooks: Hooks = NO_HOOKS) -> None:
    """Move the links of a generator's network between codes, and the log-odds of single codes, after what it draws."""
    denoiser, rounds = generator.denoiser, generator.config.calibration_rounds
    tables, weights = denoiser.code_tables, dict(denoiser.named_parameters())
    n = 0 if few is None else records_drawn(generator, few.patients)
    if few is None or n == 0:
        return
    real, believed = few.seen.cpu().numpy(), few.links(torch.ones_like(few.seen)).cpu().numpy()
    so_far = np.zeros_like(real)
    for number in range(rounds):
        request = SampleRequest(n, seed=SEEDS + seed + number)
        drawn = generator.sample(request, hooks.calibration(number * n, rounds * n))
        wanted = STEP * shifts(real, few.patients, pair_counts(drawn, tables.paired), n) * believed
        if number == rounds - 1:  # links of one code make the other more or less common: at last, single codes alone
            wanted = np.diag(wanted.diagonal())
        moved = (so_far + wanted).clip(-FARTHEST, FARTHEST) - so_far
        _move(weights, tables, torch.from_numpy(moved))
        so_far += moved


def records_drawn(generator: "D3PMGenerator", patients: int) -> int:
    """How many records a round draws, for a generator of so many patients; 0: there is nothing to move."""
    denoiser = generator.denoiser
    n = min(patients, MOST_DRAWN, MOST_ASKED // denoiser.n_codes)
    return n if n >= FEWEST and denoiser.code_tables.pairs and generator.noise.reveals else 0


def shifts(real: Floats, n_real: int, drawn: Floats, n_drawn: int) -> Floats:
    """By how much log-odds are to be moved, (M, M), from how many records have both codes: row by row, how much more or
    less those who have one code should have the other. A pair only where that is much and no chance; a single code, on
    the diagonal, as far as it is more than chance. What a code's own shift does is not done twice.
    """
    of_real, of_drawn = (np.repeat(both.diagonal()[:, None], len(both), axis=1) for both in (real, drawn))
    np.fill_diagonal(of_real, n_real)
    np.fill_diagonal(of_drawn, n_drawn)
    difference = _log_odds(real, of_real) - _log_odds(drawn, of_drawn)
    # The likelihood ratio knows that 41 of 46 and 20 of 46 are no chance, and 0 of 46 and 20 of 46 are none.
    both, of_both = real + drawn, of_real + of_drawn
    ratio = 2 * (_surprise(real, of_real, both, of_both) + _surprise(drawn, of_drawn, both, of_both))
    own = difference.diagonal() * (1 - 1 / ratio.diagonal().clip(1))
    pairs = difference - own
    shift = np.where((ratio > CERTAIN**2) & (np.abs(pairs) > LEAST), pairs, 0.0).astype(np.float32)
    np.fill_diagonal(shift, own)
    return shift


def _log_odds(some: Floats, of: Floats) -> Floats:
    return np.asarray(np.log(some + 0.5) - np.log(of - some + 0.5))


def _surprise(some: Floats, of: Floats, expected: Floats, of_expected: Floats) -> Floats:
    """Log-likelihood of so many out of so many, beyond that with the share of the expected."""
    found = np.zeros_like(some)
    for count, usual in ((some, expected), (of - some, of_expected - expected)):
        found += xlogy(count, np.maximum(count, 1) * of_expected / np.maximum(of * usual, 1))
    return found


@torch.no_grad()
def _move(weights: dict[str, torch.nn.Parameter], tables: CodeTables, moved: Tensor) -> None:
    """A pair's shift is what its first code says of its second; that of a code with itself is its own."""
    own = moved.diagonal().clone()
    moved = moved - torch.diag(own)
    for name in tables.pairs:
        weights[name].add_(moved.to(weights[name]))
    bias = weights[tables.bias]
    codes = torch.arange(len(bias)) if tables.paired is None else torch.tensor(tables.paired)
    bias.index_add_(0, codes.to(bias.device), own.to(bias))
