"""What the processes of a training tell each other: JSON with bytes behind it, and arrays in a file without a name."""

import json
import mmap
import os
import struct
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from ehr.groups import Groups
from ehr.records import Records, indptr_of
from ehr.rules import Rules
from worker.engine.checkpoints import Checkpoint
from worker.engine.generators import FitRequest
from worker.tasks.loading import pack_tensors, unpack_tensors

LENGTHS = struct.Struct("<QQ")
ALIGNED = 16
STOP, WANT_CHECKPOINT = b"s", b"c"  # what the parent tells rank 0


class Readable(Protocol):
    def read(self, n: int, /) -> bytes: ...


def send(file: BinaryIO, message: Mapping[str, Any], payload: bytes = b"") -> None:
    data = json.dumps(message).encode()
    file.write(LENGTHS.pack(len(data), len(payload)))
    file.write(data)
    file.write(payload)
    file.flush()


def receive(file: Readable) -> tuple[dict[str, Any], bytes] | None:
    """The next message; None if the other side has ended, in the middle of one or between two."""
    lengths = file.read(LENGTHS.size)
    if len(lengths) < LENGTHS.size:
        return None
    n_data, n_payload = LENGTHS.unpack(lengths)
    data, payload = file.read(n_data), file.read(n_payload)
    return (json.loads(data), payload) if len(data) == n_data and len(payload) == n_payload else None


def write_request(generator: str, request: FitRequest, scratch: Path) -> BinaryIO:
    """All that a process needs to train, but for its hooks, in a file that has no name."""
    scratch.mkdir(parents=True, exist_ok=True)
    file: BinaryIO = tempfile.TemporaryFile(dir=scratch)  # noqa: SIM115 - whoever asked for it closes it
    train, holdout, checkpoint = request.train, request.holdout, request.checkpoint
    settings = request.settings if isinstance(request.settings, dict) else request.settings.model_dump()
    send(
        file,
        {
            "generator": generator,
            "settings": settings,
            "seed": request.seed,
            "n_codes": train.n_codes,
            "holds_out": holdout is not None,
            "groups": None if request.groups is None else request.groups.as_json(range(train.n_codes)),
            "rules": None if request.rules is None else request.rules.as_json(),
            "families": None if request.families is None else request.families.tolist(),
            "checkpoint": None if checkpoint is None else checkpoint.values,
        },
        b"" if checkpoint is None else pack_tensors(checkpoint.tensors),
    )
    for records in (train, holdout):
        if records is not None:
            parts = (records,) if isinstance(records, Records) else records.pools()
            _write_array(file, np.int64, len(records) + 1, (indptr_of(records.sizes()),))
            _write_array(file, np.int32, int(records.sizes().sum()), (part.indices for part in parts))
    file.flush()
    return file


def read_request(descriptor: int) -> tuple[str, FitRequest]:
    """The generator's name and what to fit. Records stay in the file, of which all processes see the same pages."""
    file = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)  # has a position of its own, as the descriptor has not
    message = receive(file)
    assert message is not None
    (asked, tensors), n_codes = message, message[0]["n_codes"]
    train = _read_records(file, n_codes)
    holdout = _read_records(file, n_codes) if asked["holds_out"] else None
    groups = None if asked["groups"] is None else Groups.from_json(asked["groups"], range(n_codes))
    rules = None if asked["rules"] is None else Rules.from_json(asked["rules"], groups or Groups(n_codes))
    checkpoint = None if asked["checkpoint"] is None else Checkpoint(unpack_tensors(tensors), asked["checkpoint"])
    request = FitRequest(
        train, holdout, asked["settings"], asked["seed"], checkpoint=checkpoint, groups=groups, rules=rules
    )
    if asked["families"] is not None:
        request = replace(request, families=np.array(asked["families"], dtype=np.int64))
    return asked["generator"], request


def _write_array(file: BinaryIO, kind: type, n: int, parts: Iterable[NDArray[Any]]) -> None:
    file.write(bytes(-file.tell() % ALIGNED))
    file.write(LENGTHS.pack(n, np.dtype(kind).itemsize))
    for part in parts:
        file.write(np.ascontiguousarray(part, dtype=kind).data)


def _read_records(file: mmap.mmap, n_codes: int) -> Records:
    return Records(_read_array(file, np.int64), _read_array(file, np.int32), n_codes)


def _read_array(file: mmap.mmap, kind: type) -> NDArray[Any]:
    file.seek(-file.tell() % ALIGNED, os.SEEK_CUR)
    n, size = LENGTHS.unpack(file.read(LENGTHS.size))
    start = file.tell()
    file.seek(n * size, os.SEEK_CUR)
    return np.frombuffer(file, kind, n, start) if n else np.zeros(0, kind)
