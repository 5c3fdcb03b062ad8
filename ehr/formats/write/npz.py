"""npz: a CSR matrix of records by codes as `scipy.sparse.save_npz` writes it, with `vocabulary.txt` inside,
and `names.txt` if names are wanted: a line for each code, empty where there is none."""

import io
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from ehr.formats.write.protocol import CohortSource, Writer
from ehr.formats.write.zips import ZipStream


def write_npz(cohort: CohortSource) -> Iterator[bytes]:
    """The arrays one after another; sizes come first, so codes are counted before they are read."""
    entries = cohort.count_codes()
    stream = ZipStream()
    yield from stream.file("format.npy", [_npy(np.array(b"csr"))])
    yield from stream.file("shape.npy", [_npy(np.array([cohort.n_records, len(cohort.vocabulary)], dtype=np.int64))])
    yield from stream.file("indices.npy", _indices(cohort, entries))
    yield from stream.file("indptr.npy", _indptr(cohort))
    yield from stream.file("data.npy", _ones(entries))
    yield from stream.file("vocabulary.txt", ["\n".join(cohort.vocabulary).encode()])
    if cohort.with_names:
        names = [cohort.name_of(code) or "" for code in cohort.vocabulary]
        yield from stream.file("names.txt", ["\n".join(names).encode()])
    yield stream.end()


def _npy(array: NDArray[Any]) -> bytes:
    sink = io.BytesIO()
    npy.write_array(sink, array, allow_pickle=False)
    return sink.getvalue()


def _npy_header(dtype: str, n: int) -> bytes:
    sink: BinaryIO = io.BytesIO()
    npy.write_array_header_1_0(sink, {"descr": dtype, "fortran_order": False, "shape": (n,)})
    return sink.getvalue()  # type: ignore[attr-defined, no-any-return]


def _indices(cohort: CohortSource, entries: int) -> Iterator[bytes]:
    yield _npy_header("<i4", entries)
    for block in cohort.blocks():
        yield block.records.indices.astype("<i4").tobytes()


def _indptr(cohort: CohortSource) -> Iterator[bytes]:
    yield _npy_header("<i8", cohort.n_records + 1)
    yield np.zeros(1, dtype="<i8").tobytes()
    before = 0
    for block in cohort.blocks():
        yield (block.records.indptr[1:] + before).astype("<i8").tobytes()
        before += len(block.records.indices)


def _ones(entries: int) -> Iterator[bytes]:
    yield _npy_header("|i1", entries)
    for first in range(0, entries, 1 << 20):
        yield b"\x01" * min(1 << 20, entries - first)


NPZ = Writer("npz", "application/x-npz", "npz", write_npz, has_time=False)
