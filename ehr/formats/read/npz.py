"""npz: a SciPy CSR matrix (`scipy.sparse.save_npz`) of records by codes; the format `wide` reads it.

The vocabulary is a text file with a code per line, a JSON list, or `vocabulary.txt` inside the npz, as our writer puts
it. Rows are records, numbered from 0.
"""

import json
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.lib import format as npy
from numpy.typing import NDArray

from ehr.errors import DataError, TooLargeError
from ehr.formats.read.protocol import Batch, Events, Visits
from ehr.formats.read.sources import SourceFile

INSIDE = "vocabulary.txt"
RECORDS_AT_A_TIME = 1 << 16
LONGEST_VOCABULARY = 64 << 20
TOO_LONG = f"a vocabulary has at most {LONGEST_VOCABULARY:,} bytes"
VERSIONS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def is_matrix(file: SourceFile) -> bool:
    return file.kind == "zip"


def read_matrix(files: Sequence[SourceFile], default_vocabulary: str | None) -> Iterator[Batch]:
    """The records of an upload of one matrix and, unless it is inside, one vocabulary file."""
    matrices = [file for file in files if is_matrix(file)]
    others = [file for file in files if not is_matrix(file)]
    if len(matrices) != 1 or len(others) > 1:
        raise DataError("send one .npz matrix, with one vocabulary file if the vocabulary is not inside")
    matrix = matrices[0]
    with matrix.seekable() as file:
        try:
            with zipfile.ZipFile(file) as archive:
                indptr, indices, n_codes = _csr(archive, matrix)
                text = _read_member(archive, INSIDE) if INSIDE in archive.namelist() else None
        except (zipfile.BadZipFile, ValueError, KeyError, EOFError, OSError, zlib.error) as error:
            if isinstance(error, DataError):
                raise
            raise DataError("the file is not a CSR matrix as scipy.sparse.save_npz writes it") from None
    codes = _vocabulary(text if text is not None else _whole(others))
    if len(codes) != n_codes:
        raise DataError(f"the vocabulary has {len(codes):,} codes and the matrix {n_codes:,} columns")
    names = [f"{default_vocabulary}:{code}" if default_vocabulary and ":" not in code else code for code in codes]
    yield from _rows(matrix.label, indptr, indices, pa.array(names, pa.string()))


def _rows(label: str, indptr: NDArray[np.int64], indices: NDArray[np.int64], names: pa.StringArray) -> Iterator[Batch]:
    for first in range(0, len(indptr) - 1, RECORDS_AT_A_TIME):
        last = min(first + RECORDS_AT_A_TIME, len(indptr) - 1)
        record = np.arange(first, last)
        yield Visits(label, record + 1, pa.array(record).cast(pa.string()), counts=True)
        owner = np.repeat(record, np.diff(indptr[first : last + 1]))
        code = names.take(pa.array(indices[indptr[first] : indptr[last]]))
        yield Events(label, owner + 1, pa.array(owner).cast(pa.string()), code)


def _csr(archive: zipfile.ZipFile, file: SourceFile) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """(indptr, indices, columns) without the zeros that are stored as such."""
    sizes = [info.file_size for info in archive.infolist()]
    file.budget.take(sum(sizes))
    if bytes(_array(archive, "format").astype("S").reshape(())[()]) != b"csr":
        raise DataError("the matrix must be CSR; call .tocsr() before saving it")
    n_rows, n_codes = (int(n) for n in _array(archive, "shape"))
    indptr, indices = (_array(archive, name).astype(np.int64) for name in ("indptr", "indices"))
    data = _array(archive, "data")
    sound = (
        indptr.ndim == indices.ndim == data.ndim == 1
        and len(indptr) == n_rows + 1
        and indptr[0] == 0
        and indptr[-1] == len(indices) == len(data)
        and (np.diff(indptr) >= 0).all()
        and (len(indices) == 0 or (indices.min() >= 0 and indices.max() < n_codes))
    )
    if not sound or data.dtype.kind not in "biuf" or not (data >= 0).all():
        raise DataError("the arrays of the CSR matrix contradict each other, or it has values that are no counts")
    if n_rows > file.limits.rows or len(indices) > file.limits.rows:
        raise TooLargeError(f"the matrix has more than {file.limits.rows:,} entries")
    if (data == 0).any():
        ends = np.concatenate([[0], np.cumsum(data != 0)])
        indptr, indices = ends[indptr], indices[data != 0]
    return indptr, indices, n_codes


def _array(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    """An array, if its header promises no more than its member holds. Nothing is unpickled."""
    info = archive.getinfo(f"{name}.npy")
    with archive.open(info) as file:
        version = npy.read_magic(file)
        if version not in VERSIONS:
            raise ValueError(version)
        shape, _, dtype = VERSIONS[version](file)
        if dtype.hasobject or int(np.prod(shape, dtype=object)) * dtype.itemsize > info.file_size:
            raise ValueError(name)
        data = file.read()
    return np.frombuffer(data, dtype=dtype, count=int(np.prod(shape, dtype=object))).reshape(shape)


def _read_member(archive: zipfile.ZipFile, name: str) -> bytes:
    if archive.getinfo(name).file_size > LONGEST_VOCABULARY:
        raise TooLargeError(TOO_LONG)
    return archive.read(name)


def _whole(files: Sequence[SourceFile]) -> bytes:
    if not files:
        raise DataError("the matrix has no vocabulary; send a file with a code per line beside it")
    return files[0].whole(LONGEST_VOCABULARY, TOO_LONG)


def _vocabulary(data: bytes) -> list[str]:
    try:
        text = data.decode("utf-8-sig")
        codes = json.loads(text) if text.lstrip().startswith("[") else text.splitlines()
    except ValueError:
        raise DataError("the vocabulary is neither UTF-8 text with a code per line nor a JSON list") from None
    if not all(isinstance(code, str) and code.strip() for code in codes) or len(set(codes)) < len(codes):
        raise DataError("the vocabulary has an empty code, or one twice")
    return list(codes)
