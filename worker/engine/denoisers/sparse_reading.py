"""How the sparse denoiser reads records as they are revealed."""

from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from worker.engine.denoisers.base import Reading, is_present
from worker.engine.denoisers.beside import Beside
from worker.engine.denoisers.in_order import LOOKS, InOrder, Links, seldom_asked
from worker.engine.denoisers.told import Told
from worker.engine.noise import ABSENT, HIDDEN

if TYPE_CHECKING:
    from worker.engine.denoisers.sparse import SparseDenoiser

# With a larger share of distinct records than this, all are read: copying rows about would eat up the little saved.
MOSTLY_DISTINCT = 0.8


class SparseReading(Reading):
    """Reads a record as it is revealed, paying for what is new.

    Sums are updated, only asked codes have logits, and records of which the same is known are read once: a cohort
    begins with records that differ in nothing but their size.
    """

    def __init__(
        self,
        denoiser: "SparseDenoiser",
        x: Tensor,
        size: Tensor | None,
        beside: Beside | None = None,
        order: Tensor | None = None,
        links: Links | None = None,
    ) -> None:
        """`order` (N,): all codes, as they will be asked, if that is known. `links`: what the present codes say, if
        somebody knows."""
        super().__init__(denoiser, x, size)
        self.network, self.beside = denoiser, beside
        n = denoiser.n_codes
        self.absent_rows = torch.zeros(n, denoiser.absent.out_features, device=x.device)
        self.absent_rows[denoiser.common] = denoiser.absent.weight.detach().T
        self.is_common = torch.zeros(n, dtype=torch.bool, device=x.device)
        self.is_common[denoiser.common] = True
        self.sum = torch.zeros(len(x), denoiser.absent.out_features, device=x.device)
        if beside is not None:
            self.sum += beside.trunk
        self.present = torch.zeros(len(x), device=x.device)
        is_seldom = seldom_asked(denoiser)
        self.seldom = torch.where(is_seldom, denoiser.prevalence, 0.0)  # how common each code is that is seldom asked
        self.any_seldom = bool(is_seldom.any())
        self.calls, self.seldom_rate = 0, torch.ones(len(x), device=x.device)
        self.weights = torch.stack([torch.ones(n, device=x.device), denoiser.prevalence, self.seldom], dim=1)
        self.in_order = InOrder.of(denoiser, order, x) if order is not None and beside is None else None
        self.links = links
        if denoiser.pairwise is not None and links is None:
            self.links = Links(denoiser.pairwise.weight.detach(), denoiser.paired, x, self.in_order)
        self.words, self.key = _words(n, x.device), torch.arange(len(x), device=x.device)
        self._begin(x, links is None)

    def _begin(self, x: Tensor, from_scratch: bool) -> None:
        """Take in what is known of the records; if not `from_scratch`, links know of it, and no two records are taken
        for one."""
        self.open, self.untouched = _hidden_in(x)
        nothing_known = bool(self.untouched.all())
        if nothing_known:
            hidden = self.weights.sum(0).repeat(len(x), 1)
        else:
            is_hidden = x == HIDDEN
            hidden = is_hidden.float() @ self.weights
            absent = x.index_select(1, self.network.common) == ABSENT
            self.sum.addmm_(absent.float(), self.network.absent.weight.detach().T)
        self.hidden_codes, self.hidden_mass, self.seldom_mass = (each.clone() for each in hidden.unbind(1))
        if from_scratch:
            self.key = torch.zeros_like(self.key) if nothing_known else (~is_hidden * self.words[1]).sum(1)
            self.key += 0 if self.size is None else self.size * self.words[2, 0]
        if not nothing_known:
            rows, codes = is_present(x).nonzero(as_tuple=True)
            self._note_present(rows, codes, from_scratch)

    def logits(self, codes: Tensor) -> Tensor:
        network, told = self.network, self._read()
        if told.left is None or not network.adds_up:
            return self._said(codes, told)[told.same_as]
        self.calls += 1
        first = -1 if self.in_order is None else self.in_order.first(codes)
        if self.in_order is not None and first >= 0:
            return self._in_order(self.in_order, first, codes, told)[told.same_as]
        return self._adding_up(codes, told)[told.same_as]

    def every(self) -> Tensor:
        network, told = self.network, self._read()
        logits = self._said_of_every(told)
        if told.left is not None and network.adds_up:
            hidden = self.x[told.some] == HIDDEN
            shift = network.shift(logits, hidden, told.the_left, network.noise.groups)
            logits += shift * (hidden & network.alone)
        return logits[told.same_as]

    def _read(self) -> Told:
        """What the trunk makes of the records."""
        network, (some, same_as) = self.network, self._distinct()
        left = self.left()
        context = network.context(
            self.present[some],
            self.hidden_mass[some],
            self.hidden_codes[some] / network.n_codes,
            None if left is None else left[some],
        )
        tilt = network.tilt(self.x, left, self.beside)
        if tilt is not None and network.from_tilt is not None:
            context = context + tilt[some].unsqueeze(1) * network.from_tilt
        return Told(network.trunk(self.sum[some] + context), some, same_as, left, tilt)

    @property
    def _looks(self) -> bool:
        """Whether codes that are seldom asked are asked at this call."""
        return self.any_seldom and self.calls in LOOKS

    def _said(self, codes: Tensor, told: Told) -> Tensor:
        """Log-odds of the codes, whatever the records' sizes, (rows, C)."""
        network = self.network
        # index_select copies rows whole, where indexing by a tensor goes from number to number
        logits = F.linear(told.z, network.out.weight.index_select(0, codes), network.out.bias[codes])
        if self.links is not None:
            logits += self.links.of(codes, told.some)
        if self.beside is not None:
            logits += self.beside.logits[:, codes]
        if told.tilt is not None and network.tilted is not None:
            logits += told.tilt[told.some].unsqueeze(1) * network.tilted[codes]
        return logits

    def _said_of_every(self, told: Told) -> Tensor:
        """The same of all codes, in the order of the vocabulary, (rows, N): faster than to pick most of them."""
        network = self.network
        logits = F.linear(told.z, network.out.weight, network.out.bias)
        if self.links is not None:
            logits = self.links.added_to(logits, told.some)
        if self.beside is not None:
            logits += self.beside.logits
        if told.tilt is not None and network.tilted is not None:
            logits += told.tilt[told.some].unsqueeze(1) * network.tilted
        return logits

    def _adding_up(self, codes: Tensor, told: Told) -> Tensor:
        """The same, shifted to what is left of the records' sizes. A size speaks of all hidden codes: all are asked, or
        all but those that are seldom asked."""
        network = self.network
        others = self.open.index_fill(0, codes, False)
        more = others if self._looks else others & (self.seldom == 0)
        asked = torch.cat([codes, more.nonzero().squeeze(1)])
        logits = self._said(asked, told)
        hidden = self.x.index_select(1, asked)[told.some] == HIDDEN
        of_codes = hidden[:, : len(codes)]
        elsewhere = None
        if self._looks:
            self._note_rate((torch.sigmoid(logits) * hidden) @ (self.seldom[asked] > 0).float(), told)
        elif self.any_seldom:
            unasked = self.seldom_mass[told.some] - of_codes.float() @ self.seldom[codes]
            elsewhere = self.seldom_rate[told.some] * unasked.clamp(min=0)
        shift = network.shift(logits, hidden, told.the_left, network.noise.groups.inside(asked), elsewhere)
        return logits[:, : len(codes)] + shift * (of_codes & network.alone[codes])

    def _in_order(self, tables: InOrder, first: int, codes: Tensor, told: Told) -> Tensor:
        """The same of codes that are the next in the order: those that are always asked and still open come last in
        their tables, and nothing is picked."""
        network, start = self.network, tables.always_before[first]
        now = tables.always_before[first + len(codes)] - start
        open_always = F.linear(told.z, tables.weight[start:], tables.bias[start:])
        if self.links is not None:
            open_always += self.links.of_always[told.some, start:]
        logits, elsewhere = open_always[:, :now], None
        if now < len(codes):
            logits = torch.cat([logits, self._said(codes[now:], told)], dim=1)
        if first + len(codes) == len(tables.order):  # nothing comes after these
            elsewhere = torch.sigmoid(logits[:, now:]).sum(1)
        elif self.any_seldom:
            if self._looks:
                rare = (self.open & (self.seldom > 0)).float()
                every = [self._said_of_every(part).sigmoid_() @ rare for part in told.parts()]
                self._note_rate(torch.cat(every), told)
            elsewhere = self.seldom_rate[told.some] * self.seldom_mass[told.some]
        groups = network.noise.groups.inside(tables.always[start:])
        shift = network.shift(open_always, None, told.the_left, groups, elsewhere)
        return logits + shift * tables.alone[first : first + len(codes)]

    def _note_rate(self, expected: Tensor, told: Told) -> None:
        """How many times as many codes that are seldom asked as usual each record is told to have, from how many are
        `expected` (rows,)."""
        self.seldom_rate = (expected / self.seldom_mass[told.some].clamp(min=1e-9))[told.same_as]

    def hidden(self, codes: Tensor) -> Tensor | None:
        return None if bool(self.untouched[codes].all()) else super().hidden(codes)

    def reveal(self, codes: Tensor, present: Tensor) -> None:
        hidden = self.hidden(codes)
        self._take_in(codes, hidden, present if hidden is None else hidden & present)

    def add(self, rows: Tensor, codes: Tensor) -> None:
        super().add(rows, codes)
        self.untouched[codes] = False
        self._note_present(rows, codes)
        hidden_codes, hidden_mass, seldom_mass = self.weights[codes].unbind(1)
        self.hidden_codes.index_add_(0, rows, -hidden_codes)
        self.hidden_mass.index_add_(0, rows, -hidden_mass)
        self.seldom_mass.index_add_(0, rows, -seldom_mass)

    def _note_present(self, rows: Tensor, codes: Tensor, links: bool = True) -> None:
        """Add codes that are present in these records to what the network is told of them."""
        self.sum.index_add_(0, rows, self.network.present.weight.index_select(0, codes))
        self.present.index_add_(0, rows, torch.ones(rows.shape, device=rows.device))
        self.key.index_add_(0, rows, self.words[0, codes])
        if self.links is not None and links:
            self.links.add(rows, codes)

    def _take_in(self, codes: Tensor, fresh: Tensor | None, on: Tensor) -> None:
        """Add what is `fresh` (B, C), None for all, and among it `on`, to all running sums."""
        known = on.to(self.x.dtype)  # PRESENT is 1, ABSENT is 0
        if fresh is not None:
            known = torch.where(fresh, known, self.x.index_select(1, codes))
        self.x.scatter_(1, codes.expand(len(on), -1), known)
        if fresh is None:
            self.open[codes] = self.untouched[codes] = False
        else:
            self.open[codes], self.untouched[codes] = _hidden_in(known)
        common = self.is_common[codes].nonzero().squeeze(1)
        absent = ~on.index_select(1, common)
        absent = absent if fresh is None else absent & fresh.index_select(1, common)
        self.sum.addmm_(absent.float(), self.absent_rows.index_select(0, codes[common]))
        rows, columns = on.nonzero(as_tuple=True)
        self._note_present(rows, codes[columns])
        weights = self.weights.index_select(0, codes)
        gone = weights.sum(0).expand(len(on), -1) if fresh is None else fresh.float() @ weights
        hidden_codes, hidden_mass, seldom_mass = gone.unbind(1)
        self.hidden_codes -= hidden_codes
        self.hidden_mass -= hidden_mass
        self.seldom_mass -= seldom_mass

    def _distinct(self) -> tuple[Tensor | slice, Tensor | slice]:
        """Records that differ in what is known of them, and for each record which of these it is like."""
        if self.beside is not None:  # no two patients have one history
            return slice(None), slice(None)
        keys, like = torch.unique(self.key, return_inverse=True)
        if len(keys) > MOSTLY_DISTINCT * len(like):
            return slice(None), slice(None)
        rows = torch.arange(len(like), device=like.device)
        return torch.empty_like(keys).scatter_(0, like, rows), like

    def anew(self, x: Tensor, rows: Tensor) -> Reading:
        size = None if self.size is None else self.size[rows]
        beside = None if self.beside is None else self.beside.take(rows)
        links = None if self.links is None else self.links.take(rows)
        return SparseReading(self.network, x, size, beside, links=links)

    def left(self) -> Tensor | None:
        if self.size is None or self.network.remaining is None:
            return None
        return (self.size - self.present.long()).clamp(min=0)

    def keep(self, rows: Tensor) -> None:
        super().keep(rows)
        for name in ("sum", "present", "hidden_codes", "hidden_mass", "key", "seldom_rate", "seldom_mass"):
            setattr(self, name, getattr(self, name).index_select(0, rows))
        self.links = None if self.links is None else self.links.take(rows)
        self.beside = None if self.beside is None else self.beside.take(rows)


def _hidden_in(x: Tensor) -> tuple[Tensor, Tensor]:
    """Which codes are hidden in some record, and which in every one, (N,) each, by states (B, N)."""
    if len(x) == 0:
        every = torch.ones(x.shape[1], dtype=torch.bool, device=x.device)
        return every, every.clone()
    return x.amax(0) == HIDDEN, x.amin(0) == HIDDEN  # which is the largest state


def _words(n: int, device: torch.device) -> Tensor:
    """Random numbers (3, N), of which keys are made: for codes that are present, for codes that are known at first, and
    one for each code of a size.

    Codes are revealed to all records in one order. So two records of which the same was known at first differ only
    where a code turns out to be present, and adding the numbers of those codes keeps their keys apart.
    """
    return torch.from_numpy(np.random.default_rng(0).integers(-(2**63), 2**63 - 1, size=(3, n))).to(device)
