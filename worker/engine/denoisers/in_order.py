"""What the sparse denoiser says of codes that are asked in an order known beforehand: tables brought into that order
once, so that what is still open is a slice at their end."""

from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

from worker.engine.noise import HIDDEN

if TYPE_CHECKING:
    from worker.engine.denoisers.sparse import SparseDenoiser

# A record's size speaks of all its hidden codes. So many, the most common, are asked at every call how much of it is
# theirs; the others, a small part of most records, are asked for that at few calls: what is known first
# tells most of it.
ALWAYS_ASKED, LOOKS = 512, frozenset(5**power for power in range(6))
ROWS = 32


def seldom_asked(network: "SparseDenoiser") -> Tensor:
    """Which codes are seldom asked for the sake of sizes, (N,) bool: the rare ones of a wide vocabulary. Members of
    groups are always asked, as they are with each other."""
    seldom = network.alone.clone()
    seldom[network.prevalence.argsort(descending=True, stable=True)[:ALWAYS_ASKED]] = False
    return seldom


def arranged(network: "SparseDenoiser", blocks: list[Tensor]) -> list[Tensor]:
    """The blocks with codes that are always asked before the others, each in the order of the vocabulary: columns that
    are picked in it are picked several times as fast."""
    after = seldom_asked(network).long() * network.n_codes
    return [block[(block + after[block]).argsort()] for block in blocks]


@dataclass(frozen=True)
class InOrder:
    """The output layer of codes that are always asked, in the order in which they are, known ones first."""

    order: Tensor  # (N,) of all codes
    place: Tensor  # (N,) of each code in the order
    hidden_from: int  # where all records have nothing but hidden codes from then on; N: nowhere
    alone: Tensor  # (N,) in the order, 1 for codes that are in no group
    always: Tensor  # (A,) codes that are always asked
    always_before: list[int]  # (N + 1,) how many of them come before each place in the order
    weight: Tensor  # (A, width)
    bias: Tensor  # (A,)

    @classmethod
    def of(cls, network: "SparseDenoiser", order: Tensor, x: Tensor) -> Self:
        """`x` (B, N): what is known of the records at first."""
        some = (x.amin(0) != HIDDEN)[order].nonzero().squeeze(1)  # HIDDEN is the largest state
        first = 0 if len(some) == 0 else int(some[-1]) + 1
        place = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
        is_always = ~seldom_asked(network)[order]
        always, before = order[is_always], [0, *is_always.long().cumsum(0).tolist()]
        weight, bias = network.out.weight.detach()[always], network.out.bias.detach()[always]
        return cls(order, place, first, network.alone[order].float(), always, before, weight, bias)

    def first(self, codes: Tensor) -> int:
        """The place of the first of the codes if they follow each other in the order, those that are always asked
        before the others, and all from there on are hidden; else -1."""
        first = int(self.place[codes[0]]) if len(codes) else -1
        if first < self.hidden_from or not torch.equal(self.order[first : first + len(codes)], codes):
            return -1
        start, end = self.always_before[first], self.always_before[first + len(codes)]
        return first if torch.equal(self.always[start:end], codes[: end - start]) else -1


class Links:
    """What the present codes of records say, each by itself, of the codes that have links."""

    def __init__(self, table: Tensor, paired: Tensor | None, x: Tensor, tables: InOrder | None) -> None:
        """Of records in which nothing is present yet. `paired` (M,): the codes of the table (M, M); None: all."""
        place = torch.arange(x.shape[1], device=x.device)
        if paired is not None:
            place = torch.full_like(place, -1)
            place[paired] = torch.arange(len(paired), device=x.device)
        self.place, self.paired = place, paired  # (N,) of each code in the table; -1: it has no links
        self.table, self.tables = table, tables
        # what is said of codes that are always asked, in their order, and of any code, unless these are all
        self.of_always = self.of_any = torch.zeros(len(x), 0, device=x.device)
        self.any_apart = tables is None or len(tables.always) < x.shape[1]
        if tables is not None:
            self.columns = place[tables.always].clamp(min=0)
            self.has_links = (place[tables.always] >= 0).float()
            self.of_always = torch.zeros(len(x), len(self.columns), device=x.device)
            if not self.any_apart:
                self.to_always = self._always(table)
        if self.any_apart:
            self.of_any = torch.zeros(len(x), len(table), device=x.device)

    def _always(self, rows: Tensor) -> Tensor:
        """The columns of the codes that are always asked, in their order, of rows of the table."""
        columns = rows.index_select(1, self.columns)
        return columns if self.paired is None else columns.mul_(self.has_links)

    def add(self, rows: Tensor, codes: Tensor) -> None:
        """The codes are present in these records."""
        place = self.place[codes]
        if self.paired is not None:
            rows, place = rows[place >= 0], place[place >= 0]
        if not self.any_apart:
            self.of_always.index_add_(0, rows, self.to_always.index_select(0, place))
            return
        # few rows at a time, which stay in the cache between being picked and added
        for some, at in zip(torch.split(rows, ROWS), torch.split(place, ROWS), strict=True):
            picked = self.table.index_select(0, at)
            self.of_any.index_add_(0, some, picked)
            if self.tables is not None:
                self.of_always.index_add_(0, some, self._always(picked))

    def of(self, codes: Tensor, rows: Tensor | slice) -> Tensor:
        """What they say of these codes, (rows, C); nothing of codes without links."""
        if not self.any_apart and self.tables is not None:
            return _picked(self.of_always, rows, self.tables.place[codes])
        place = self.place[codes]
        if self.paired is None:
            return _picked(self.of_any, rows, place)
        return _picked(self.of_any, rows, place.clamp(min=0)) * (place >= 0)

    def added_to(self, logits: Tensor, rows: Tensor | slice) -> Tensor:
        """What they say of all codes added to the logits (rows, N), in place."""
        if not self.any_apart and self.tables is not None:
            return logits.add_(_picked(self.of_always, rows, self.tables.place))
        told = _rows(self.of_any, rows)
        return logits.add_(told) if self.paired is None else logits.index_add_(1, self.paired, told)

    def take(self, rows: Tensor) -> "Links":
        """The same of some records."""
        some = copy(self)
        some.of_always, some.of_any = self.of_always.index_select(0, rows), self.of_any.index_select(0, rows)
        return some


def _rows(table: Tensor, rows: Tensor | slice) -> Tensor:
    return table[rows] if isinstance(rows, slice) else table.index_select(0, rows)  # which copies rows whole


def _picked(table: Tensor, rows: Tensor | slice, columns: Tensor) -> Tensor:
    """These rows and columns of the table (B, M), (R, C)."""
    if not isinstance(rows, slice) and len(rows) * table.shape[1] > len(table) * len(columns):
        return table.index_select(1, columns).index_select(0, rows)  # the other way round copies more
    return _rows(table, rows).index_select(1, columns)
