"""How the sparse denoiser reads records as they are revealed."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from worker.engine.denoisers.base import Reading
from worker.engine.denoisers.beside import Beside
from worker.engine.noise import HIDDEN, PRESENT

if TYPE_CHECKING:
    from worker.engine.denoisers.sparse import SparseDenoiser

# With a larger share of distinct records than this, all are read: copying rows about would eat up the little saved.
MOSTLY_DISTINCT = 0.8
# A record's size speaks of all its hidden codes. Of a wide vocabulary so many, the most common, are asked at every call
# how much of it is theirs; the others, a small part of any record, at one call in so many.
ALWAYS_ASKED, SELDOM = 1024, 4


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
    ) -> None:
        """`order` (N,): all codes, as they will be asked, if that is known."""
        super().__init__(denoiser, torch.full_like(x, HIDDEN), size)
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
        self.hidden = torch.full((len(x),), float(n), device=x.device)
        self.hidden_mass = denoiser.prevalence.sum().expand(len(x)).clone()
        self.open = torch.ones(n, dtype=torch.bool, device=x.device)  # codes that are hidden in some record
        self.seldom = _seldom_asked(denoiser)  # how common each code is that is seldom asked
        self.calls, self.seldom_rate = 0, torch.ones(len(x), device=x.device)
        self.seldom_mass = self.seldom.sum().expand(len(x)).clone()
        known = x != HIDDEN
        ordered = order is not None and beside is None and len(order) <= ALWAYS_ASKED and denoiser.paired is None
        self.in_order = InOrder.of(denoiser, order, known) if ordered and order is not None else None
        self.links = None
        if denoiser.pairwise is not None:
            place = None if self.in_order is None else self.in_order.place
            self.links = Links.none(denoiser.pairwise.weight, denoiser.paired, x, place)
        self.words, self.key = _keys(known, size)
        if bool(known.any()):
            self._take_in(torch.arange(n, device=x.device), self.x, known, x == PRESENT)

    def logits(self, codes: Tensor) -> Tensor:
        network, (some, same_as) = self.network, self._distinct()
        left = self.left()
        context = network.context(
            self.present[some],
            self.hidden_mass[some],
            self.hidden[some] / network.n_codes,
            None if left is None else left[some],
        )
        tilt = network.tilt(self.x, left, self.beside)
        if tilt is not None and network.from_tilt is not None:
            context = context + tilt[some].unsqueeze(1) * network.from_tilt
        z = network.trunk(self.sum[some] + context)
        adds_up = left is not None and network.adds_up
        if self.in_order is not None and left is not None and adds_up and (first := self.in_order.first(codes)) >= 0:
            return self._in_order(self.in_order, first, codes, z, some, left[some])[same_as]
        # A size speaks of all hidden codes: where it is known, all are asked, or all but some rare ones.
        asked, is_all = self._asked(codes) if adds_up else (codes, True)
        # index_select copies rows whole, where indexing by a tensor goes from number to number
        logits = F.linear(z, network.out.weight.index_select(0, asked), network.out.bias[asked])
        if self.links is not None:
            logits += self.links.of(asked, some)
        if self.beside is not None:
            logits += self.beside.logits[:, asked]
        if tilt is not None and network.tilted is not None:
            logits += tilt[some].unsqueeze(1) * network.tilted[asked]
        if left is not None and adds_up:
            groups = network.noise.groups.inside(asked)
            hidden = self.x.index_select(1, asked)[some] == HIDDEN
            place = torch.searchsorted(asked, codes)
            of_codes = hidden.index_select(1, place)
            elsewhere = None
            if not is_all:
                unasked = self.seldom_mass[some] - of_codes.float() @ self.seldom[codes]
                elsewhere = self.seldom_rate[some] * unasked.clamp(min=0)
            shift = network.shift(logits, hidden, left[some], groups, elsewhere)
            if is_all and bool(self.seldom.any()):
                self.seldom_rate = self._rate(asked, logits, shift, hidden, self.seldom_mass[some])[same_as]
            logits = logits.index_select(1, place) + shift * (of_codes & network.alone[codes])
        return logits[same_as]

    def _in_order(
        self, tables: "InOrder", first: int, codes: Tensor, z: Tensor, some: Tensor | slice, left: Tensor
    ) -> Tensor:
        """The logits of codes that are the next in the order: all that are open come last, and nothing is picked."""
        logits = F.linear(z, tables.weight[first:], tables.bias[first:])
        if self.links is not None:
            logits += self.links.sum[some, first:]
        groups = self.network.noise.groups.inside(tables.order[first:])
        shift = self.network.shift(logits, None, left, groups)
        return logits[:, : len(codes)] + shift * tables.alone[first : first + len(codes)]

    def _asked(self, codes: Tensor) -> tuple[Tensor, bool]:
        """`codes` with those that are asked for the sake of sizes, and whether these are all that are open."""
        asked = self.open.index_fill(0, codes, True)
        self.calls += 1
        is_all = self.calls % SELDOM == 1 or not bool(self.seldom.any())
        if not is_all:
            asked &= (self.seldom == 0).index_fill(0, codes, True)
        return asked.nonzero().squeeze(1), is_all

    def _rate(self, asked: Tensor, logits: Tensor, shift: Tensor, hidden: Tensor, mass: Tensor) -> Tensor:
        """How many times as many codes that are seldom asked each record has to expect as are usual, (B,)."""
        place = self.seldom[asked].nonzero().squeeze(1)
        p = torch.sigmoid(logits.index_select(1, place) + shift).mul_(hidden.index_select(1, place))
        return p.sum(1) / mass.clamp(min=1e-9)

    def reveal(self, codes: Tensor, present: Tensor) -> None:
        before = self.x.index_select(1, codes)
        fresh = before == HIDDEN
        self._take_in(codes, before, fresh, fresh & present)

    def _take_in(self, codes: Tensor, before: Tensor, fresh: Tensor, on: Tensor) -> None:
        """Add what is `fresh` (B, C) beyond what was known `before`, and among it `on`, to all running sums."""
        all_fresh = bool(fresh.all())
        known = on.to(before.dtype)  # PRESENT is 1, ABSENT is 0
        known = known if all_fresh else torch.where(fresh, known, before)
        self.x.index_copy_(1, codes, known)
        self.open[codes] = False if all_fresh else (known == HIDDEN).any(0)
        common = self.is_common[codes].nonzero().squeeze(1)
        absent = ~on.index_select(1, common)
        absent = absent if all_fresh else absent & fresh.index_select(1, common)
        self.sum.addmm_(absent.float(), self.absent_rows.index_select(0, codes[common]))
        rows, columns = on.nonzero(as_tuple=True)
        added = codes[columns]
        self.sum.index_add_(0, rows, self.network.present.weight.index_select(0, added))
        if self.links is not None:
            self.links.add(rows, added)
        self.key.index_add_(0, rows, self.words[added])
        self.present += on.sum(1)
        weights = torch.stack([torch.ones_like(codes), self.network.prevalence[codes], self.seldom[codes]], dim=1)
        gone = weights.sum(0).expand(len(on), -1) if all_fresh else fresh.float() @ weights
        hidden, hidden_mass, seldom_mass = gone.unbind(1)
        self.hidden -= hidden
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
        return SparseReading(self.network, x, size, None if self.beside is None else self.beside.take(rows))

    def left(self) -> Tensor | None:
        if self.size is None or self.network.remaining is None:
            return None
        return (self.size - self.present.long()).clamp(min=0)

    def keep(self, rows: Tensor) -> None:
        super().keep(rows)
        for name in ("sum", "present", "hidden", "hidden_mass", "key", "seldom_rate", "seldom_mass"):
            setattr(self, name, getattr(self, name)[rows])
        if self.links is not None:
            self.links.sum = self.links.sum[rows]
        self.beside = None if self.beside is None else self.beside.take(rows)


@dataclass(frozen=True)
class InOrder:
    """The output layer with codes in the order in which they are asked, known ones first."""

    order: Tensor  # (N,)
    place: Tensor  # (N,) of each code in the order
    hidden_from: int  # where all records have nothing but hidden codes from then on; N: nowhere
    weight: Tensor  # (N, width)
    bias: Tensor  # (N,)
    alone: Tensor  # (N,) 1 for codes that are in no group

    @classmethod
    def of(cls, network: "SparseDenoiser", order: Tensor, known: Tensor) -> Self:
        """`known` (B, N): what is known of the records at first."""
        some = known.any(0)[order].nonzero().squeeze(1)
        first = 0 if len(some) == 0 else int(some[-1]) + 1
        place = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
        weight, bias = network.out.weight.detach()[order], network.out.bias.detach()[order]
        return cls(order, place, first, weight, bias, network.alone[order].float())

    def first(self, codes: Tensor) -> int:
        """The place of the first of the codes if they follow each other in the order and all from there on are hidden,
        else -1."""
        first = int(self.place[codes[0]]) if len(codes) else -1
        there = first >= self.hidden_from and torch.equal(self.order[first : first + len(codes)], codes)
        return first if there else -1


@dataclass
class Links:
    """What the present codes of records say, each by itself, of the codes that have links."""

    table: Tensor  # (M, M)
    place: Tensor  # (N,) of each code in the table; -1: it has no links
    sum: Tensor  # (B, M)

    @classmethod
    def none(cls, table: Tensor, paired: Tensor | None, x: Tensor, ordered: Tensor | None = None) -> Self:
        """Of records in which nothing is present yet. `paired`: the codes of the table; None: all, each at its
        `ordered` place (N,) if there is one."""
        if ordered is not None:
            order = ordered.argsort()
            table = table.detach().index_select(0, order).index_select(1, order)
            return cls(table, ordered, torch.zeros(len(x), len(table), device=x.device))
        place = torch.arange(x.shape[1], device=x.device)
        if paired is not None:
            place = torch.full_like(place, -1)
            place[paired] = torch.arange(len(paired), device=x.device)
        return cls(table.detach(), place, torch.zeros(len(x), len(table), device=x.device))

    def add(self, rows: Tensor, codes: Tensor) -> None:
        """The codes are present in these records."""
        linked = self.place[codes] >= 0
        self.sum.index_add_(0, rows[linked], self.table.index_select(0, self.place[codes[linked]]))

    def of(self, codes: Tensor, rows: Tensor | slice) -> Tensor:
        """What they say of these codes, (rows, C); nothing of codes without links."""
        place, told = self.place[codes], self.sum[rows]
        if len(self.table) == len(self.place):
            return told.index_select(1, place)
        return told.index_select(1, place.clamp(min=0)) * (place >= 0)


def _seldom_asked(network: "SparseDenoiser") -> Tensor:
    """How common the rare codes of a wide vocabulary are, (N,); 0 for codes that are always asked, as members of groups
    are with each other."""
    seldom = torch.where(network.alone, network.prevalence, 0.0)
    seldom[network.prevalence.argsort(descending=True, stable=True)[:ALWAYS_ASKED]] = 0.0
    return seldom


def _keys(known: Tensor, size: Tensor | None) -> tuple[Tensor, Tensor]:
    """A random number for each code, (N,), and for what is known of each record at first, (B,).

    Codes are revealed to all records in one order. So two records of which the same was known at first differ only
    where a code turns out to be present, and adding the numbers of those codes keeps their keys apart.
    """
    n = known.shape[1]
    words = torch.from_numpy(np.random.default_rng(0).integers(-(2**63), 2**63 - 1, size=2 * n + 1)).to(known.device)
    of_present, of_known, of_size = words[:n], words[n:-1], words[-1]
    key = torch.zeros(len(known), dtype=torch.long, device=known.device)
    if bool(known.any()):
        key += (known * of_known).sum(1)
    return of_present, key if size is None else key + size * of_size
