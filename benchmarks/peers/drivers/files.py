"""What a driver is given and what it leaves behind. Drivers run in the environment of their peer, which has nothing of
this project: they know files, and nothing else.

FOLDER/train.npz      CSR arrays indptr, indices and n_codes: the records to learn from
FOLDER/request.json   what is asked for, see `Request`
FOLDER/cohort.npz     what it has drawn
FOLDER/told.json      what it took, or {"absent": why there is nothing}
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Request:
    """What every peer is asked for."""

    way: str  # how records are shown to it, where there are several
    seconds: float  # of training
    seed: int
    records: int  # to draw
    code: int  # that conditioned records must have
    conditioned: int  # how many of those
    held_out: float  # share of the records that may be kept for early stopping


@dataclass(frozen=True)
class Records:
    """A set of codes for each record."""

    indptr: np.ndarray
    indices: np.ndarray
    n_codes: int

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def of(self, row: int) -> np.ndarray:
        return self.indices[self.indptr[row] : self.indptr[row + 1]]

    def dense(self) -> np.ndarray:
        """(records, codes) of 0 and 1."""
        table = np.zeros((len(self), self.n_codes), dtype=np.int8)
        table[np.repeat(np.arange(len(self)), np.diff(self.indptr)), self.indices] = 1
        return table

    def by_commonness(self) -> np.ndarray:
        """The place of each code when the most common one comes first, (N,)."""
        count = np.bincount(self.indices, minlength=self.n_codes)
        place = np.empty(self.n_codes, dtype=np.int64)
        place[np.argsort(-count, kind="stable")] = np.arange(self.n_codes)
        return place


def read(folder: Path) -> tuple[Request, Records]:
    asked = Request(**json.loads((folder / "request.json").read_text(encoding="utf-8")))
    with np.load(folder / "train.npz") as arrays:
        return asked, Records(arrays["indptr"], arrays["indices"], int(arrays["n_codes"]))


def write_sets(path: Path, sets: list[set[int]], n_codes: int) -> None:
    """Records as sets of codes; what a peer says twice counts once."""
    sizes = [len(each) for each in sets]
    indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    indices = np.array([code for each in sets for code in sorted(each)], dtype=np.int64)
    np.savez_compressed(path, indptr=indptr, indices=indices, n_codes=n_codes)


def tell(folder: Path, told: dict[str, Any]) -> None:
    (folder / "told.json").write_text(json.dumps(told), encoding="utf-8")


@contextmanager
def timed(told: dict[str, Any], name: str) -> Iterator[None]:
    """Note under this name how many seconds pass inside."""
    begun = time.perf_counter()
    yield
    told[name] = time.perf_counter() - begun
