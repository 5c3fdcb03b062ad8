"""After training: pairs of codes in records that the model draws, as common as they are in training records.

A network that is trained by likelihood hardly minds that a pair which three of a thousand patients should have is drawn
for five: the loss is a few thousandths of a nat. Whoever reads the records does mind, most of all where codes exclude
each other (two kinds of hypertension, a caesarean and a tear of a normal delivery). So records are drawn, pairs are
counted in them as they were in the training records, and where the two differ by more than chance the link between the
two codes is moved by the difference (docs/decisions/0122): iterative proportional fitting, in weights that are there.
"""

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
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
FARTHEST = 4.0  # that a link is moved in one round, log-odds
SEEDS = 1 << 40  # far from those that people choose: no cohort is drawn with the numbers that links were moved by
Floats = NDArray[np.float64]


def calibrate_pairs(generator: "D3PMGenerator", few: FewPatients | None, seed: int, hooks: Hooks = NO_HOOKS) -> None:
    """Move the links of a generator's network between codes, and the log-odds of single codes, after what it draws."""
    denoiser, rounds = generator.denoiser, generator.config.calibration_rounds
    tables, weights = denoiser.code_tables, dict(denoiser.named_parameters())
    n = 0 if few is None else records_drawn(generator, few.patients)
    if few is None or n == 0:
        return
    real = few.seen.double().cpu().numpy()
    believed = few.links(torch.ones_like(few.seen)).double().cpu().numpy()
    for number in range(rounds):
        request = SampleRequest(n, seed=SEEDS + seed + number)
        drawn = generator.sample(request, hooks.calibration(number * n, rounds * n))
        moved = STEP * shifts(real, few.patients, pair_counts(drawn, tables.paired), n) * believed
        _move(weights, tables, torch.from_numpy(moved))


def records_drawn(generator: "D3PMGenerator", patients: int) -> int:
    """How many records a round draws, for a generator of so many patients; 0: there is nothing to move."""
    denoiser = generator.denoiser
    n = min(patients, MOST_DRAWN, MOST_ASKED // denoiser.n_codes)
    return n if n >= FEWEST and denoiser.code_tables.pairs and generator.noise.reveals else 0


def shifts(real: Floats, n_real: int, drawn: NDArray[np.floating], n_drawn: int) -> Floats:
    """By how much log-odds are to be moved, (M, M), from how many records have both codes; a code and itself: from how
    many have it. 0 where the difference may be chance."""
    drawn_as_real = drawn * (n_real / n_drawn)  # of as many records
    one = n_real / n_drawn  # what a drawn record counts
    # Where fewer are drawn than there should be, their number is no measure of its own error.
    error = np.sqrt(real + one * np.maximum(drawn_as_real, real) + 1e-9)
    shift = np.log((real + 2 * one) / (drawn_as_real + 2 * one)).clip(-FARTHEST, FARTHEST)
    return np.where(np.abs(real - drawn_as_real) > CERTAIN * error, shift, 0.0)


@torch.no_grad()
def _move(weights: dict[str, torch.nn.Parameter], tables: CodeTables, moved: Tensor) -> None:
    """A pair's shift for whichever of its codes is drawn second; that of a code with itself is its own."""
    own = moved.diagonal().clone()
    moved = moved - torch.diag(own)
    for name in tables.pairs:
        weights[name].add_(moved.to(weights[name]))
    bias = weights[tables.bias]
    codes = torch.arange(len(bias)) if tables.paired is None else torch.tensor(tables.paired)
    bias.index_add_(0, codes.to(bias.device), own.to(bias))
