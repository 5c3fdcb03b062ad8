"""Arrays of a stored file that stay where they are until they are asked for, for datasets that are large."""

import hashlib
import json
import mmap
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ehr.errors import CorruptError
from model_store.blobs import BlobStore

KINDS: dict[str, type] = {"I64": np.int64, "I32": np.int32, "F32": np.float32}
LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class ArrayFile:
    """A safetensors file of this machine, open for as long as somebody holds this. Whoever removes its name, as stores
    do, does not take it away."""

    descriptor: int
    places: dict[str, tuple[type, tuple[int, ...], int]]  # name -> (kind, shape, first byte)

    @classmethod
    def of(cls, store: BlobStore, key: str, sha256: str) -> "ArrayFile":
        """CorruptError if a byte differs from what was written."""
        with store.local_path(key) as path, path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
                raise CorruptError(f"{path.name} is not what was written")
            file.seek(0)
            (length,) = LENGTH.unpack(file.read(LENGTH.size))
            header = json.loads(file.read(length))
            first = LENGTH.size + length
            places = {
                name: (KINDS[each["dtype"]], tuple(each["shape"]), first + each["data_offsets"][0])
                for name, each in header.items()
                if name != "__metadata__"
            }
            return cls(os.dup(file.fileno()), places)

    def __del__(self) -> None:
        os.close(self.descriptor)

    def __contains__(self, name: str) -> bool:
        return name in self.places

    def whole(self, name: str) -> NDArray[Any]:
        """An array in memory."""
        return self.reader(name)(0, self.places[name][1][0])

    def mapped(self, name: str) -> NDArray[Any]:
        """An array of which the system reads what is looked at, and may forget it again."""
        kind, shape, first = self.places[name]
        start = first // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
        n = int(np.prod(shape))
        if n == 0:
            return np.zeros(shape, kind)
        length = first - start + n * np.dtype(kind).itemsize
        view = mmap.mmap(self.descriptor, length, access=mmap.ACCESS_READ, offset=start)
        return np.frombuffer(view, kind, n, first - start).reshape(shape)

    def reader(self, name: str) -> Callable[[int, int], NDArray[Any]]:
        """(start, stop) -> these entries of an array, read from the file: what is read is not held."""
        kind, _, first = self.places[name]
        size = np.dtype(kind).itemsize

        def read(start: int, stop: int) -> NDArray[Any]:
            parts, at, end = [], first + start * size, first + stop * size
            while at < end:  # one call gives 2 GiB at most
                data = os.pread(self.descriptor, end - at, at)
                if not data:
                    raise CorruptError("a stored file is shorter than it was")
                parts.append(data)
                at += len(data)
            return np.frombuffer(b"".join(parts) if len(parts) != 1 else parts[0], kind)

        return read
