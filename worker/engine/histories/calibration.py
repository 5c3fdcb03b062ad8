"""After training: patients that the model draws begin, go on, come back and end as often as those it learned from.

A network learns each visit given a real past. What it draws has its own past, so that small errors add up over twenty
visits. A few patients are drawn, how often things happen is counted in them as it was in the training patients, and the
weights that say just that are shifted by the difference of log-odds (docs/decisions/0110).
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ehr.histories import Histories
from worker.engine.histories.earlier import Earlier
from worker.engine.histories.network import COUNTED, VisitDenoiser
from worker.engine.histories.tokens import VisitTokens

FIRST, NEW, EARLIER, LAST = range(4)  # a code: at a first visit; never seen; seen, but not last; seen at the last visit
EVENTS = 30.0  # of which half of a difference is believed
MOST = 1.0  # that log-odds are shifted by in one round
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Rates:
    """How often what could happen did happen."""

    tried: Floats
    had: Floats

    def shift(self, real: "Rates", one_of_many: NDArray[np.bool_] | bool = False) -> Floats:
        """What brings the log-odds of these rates to the real ones, as far as there are enough events to tell. Of
        `one_of_many` the rates are shares, and their logarithms are compared."""
        own, wanted = ((each.had + 0.5) / (each.tried + 1) for each in (self, real))
        both = np.log(wanted / own)
        alone = both - np.log((1 - wanted) / (1 - own))
        events = sum(np.minimum(each.had, each.tried - each.had) for each in (self, real)) / 2
        known = events / (events + EVENTS)
        shift: Floats = known * np.where(one_of_many, both, alone).clip(-MOST, MOST)
        return shift


@dataclass(frozen=True)
class Course:
    """Rates of a set of patients."""

    codes: Rates  # (4, N): FIRST, NEW, EARLIER, LAST
    ends: Rates  # (COUNTED,): a patient with so many visits before this one has no other after it
    gaps: Rates  # (buckets,)
    sizes: Rates  # (largest number of tokens + 1,) of visits

    @classmethod
    def of(cls, histories: Histories, tokens: VisitTokens, most_tokens: int, cut: NDArray[np.bool_]) -> "Course":
        """`cut` (P,): patients of whom later visits were left out."""
        n, counts = histories.n_codes, histories.visit_counts()
        firsts = histories.visits.take(histories.offsets[:-1])
        first = np.bincount(firsts.indices, minlength=n)
        seen, again = (each.numpy().astype(np.float64) for each in recurrences(histories))  # (2, N) each
        every = np.bincount(histories.visits.indices, minlength=n)
        later = len(histories.visits) - len(histories)
        tried = np.stack([np.full(n, len(histories)), later - seen.sum(axis=0), seen[0], seen[1]])
        had = np.stack([first, every - first - again.sum(axis=0), again[0], again[1]])
        number = np.minimum(counts, COUNTED) - 1
        reached = np.bincount(number, minlength=COUNTED)[::-1].cumsum()[::-1].astype(np.float64)
        reached[-1] = (counts - COUNTED + 1).clip(0).sum()
        ended = np.bincount(number[~cut], minlength=COUNTED)
        gaps = np.delete(histories.gaps, histories.offsets[:-1])
        bucket = np.bincount(tokens.gaps.bucket(gaps), minlength=len(tokens.gaps))
        size = np.bincount(tokens.records(histories, cut).sizes().clip(max=most_tokens), minlength=most_tokens + 1)
        return cls(
            Rates(tried, had),
            Rates(reached, ended.astype(np.float64)),
            Rates(np.full(len(bucket), float(later)), bucket.astype(np.float64)),
            Rates(np.full(len(size), float(len(histories.visits))), size.astype(np.float64)),
        )


@torch.no_grad()
def calibrate(network: VisitDenoiser, tokens: VisitTokens, drawn: Course, real: Course) -> None:
    """Shift the weights that say how often things happen by what the drawn patients have too much or too little."""
    device = network.out.bias.device
    grouped = tokens.groups.group_of >= 0
    of_code = drawn.codes.shift(real.codes, grouped[: tokens.n_codes])
    own = slice(0, tokens.n_codes)

    def add(weight: Tensor, shift: Floats) -> None:
        weight += torch.from_numpy(shift).to(device, weight.dtype)

    add(network.out.bias[own], of_code[NEW])
    add(network.by_number.weight[0, own], of_code[FIRST] - of_code[NEW])
    add(network.copied[:, 0], of_code[EARLIER] - of_code[NEW])
    add(network.copied[:, 1], of_code[LAST] - of_code[EARLIER])
    add(network.by_number.weight[:, tokens.last], drawn.ends.shift(real.ends))
    add(network.out.bias[tokens.first_gap : tokens.first_end], drawn.gaps.shift(real.gaps, True))
    if network.sizes is not None:
        add(network.sizes.out.bias, drawn.sizes.shift(real.sizes, True))


def recurrences(histories: Histories) -> tuple[Tensor, Tensor]:
    """(visits before which each code was seen, those of them that have it), (2, N) each: not at the visit before, and
    at the visit before."""
    earlier = Earlier.of(histories)
    key = earlier.in_last.long() * histories.n_codes + earlier.codes
    pairs = earlier.rows * histories.n_codes + earlier.codes
    visits = histories.visits
    there = torch.from_numpy(np.isin(pairs.numpy(), visits.rows() * histories.n_codes + visits.indices))
    shape = (2, histories.n_codes)
    tried = torch.bincount(key, minlength=2 * histories.n_codes).float().view(shape)
    kept = torch.bincount(key[there], minlength=2 * histories.n_codes).float().view(shape)
    return tried, kept
