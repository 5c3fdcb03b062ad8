"""Folders of files with a manifest that names the sha256 of each: what bundles, datasets and checkpoints share.

Tensors and arrays are safetensors: a header of names and shapes, then bytes. Nothing here can run code.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ehr.canonical_json import to_json
from ehr.errors import CorruptError
from model_store.blobs import BlobStore

Arrays = dict[str, NDArray[Any]]
MANIFEST = "manifest.json"
CDM = "cdm.json"  # ehr.formats.cdm.SourceCdm, of datasets, models and cohorts whose records came from an OMOP CDM


def hash_arrays(arrays: Mapping[str, NDArray[Any]]) -> str:
    """One sha256 of named arrays, whatever file they lie in."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name}:{array.dtype.str}:{array.shape};".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def write_folder(
    store: BlobStore, folder: str, files: Mapping[str, bytes | Iterable[memoryview]], manifest: dict[str, Any]
) -> str:
    """Write the files, whole or in blocks as they come, then the manifest with their hashes; returns the manifest's own
    sha256, which covers all."""
    hashes = {name: _write(store, f"{folder}/{name}", data) for name, data in files.items()}
    data = to_json(manifest | {"files": hashes})
    store.write(f"{folder}/{MANIFEST}", data)
    return hashlib.sha256(data).hexdigest()


def _write(store: BlobStore, key: str, data: bytes | Iterable[memoryview]) -> str:
    """The hash of what was written."""
    digest = hashlib.sha256()
    with store.create(key) as file:
        for block in (data,) if isinstance(data, bytes) else data:
            digest.update(block)
            file.write(block)
    return digest.hexdigest()


def read_manifest(store: BlobStore, folder: str, sha256: str, what: str, version: int) -> dict[str, Any]:
    """The manifest, if its bytes are the ones that were written and its format is `what` of this version."""
    manifest = json.loads(store.read(f"{folder}/{MANIFEST}", sha256))
    if not isinstance(manifest, dict) or manifest.get("format") != what or manifest.get("version") != version:
        raise CorruptError(f"this is not a {what} of format version {version}")
    return manifest


def read_file(store: BlobStore, folder: str, hashes: Mapping[str, str], name: str) -> bytes:
    """A file of the folder; CorruptError if a byte differs from what the hashes of the manifest say."""
    if name not in hashes:
        raise CorruptError(f"the manifest knows no file {name}")
    return store.read(f"{folder}/{name}", hashes[name])


def pack_arrays(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    data: bytes = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    return data


def unpack_arrays(data: bytes) -> Arrays:
    """CorruptError if these are not safetensors."""
    try:
        arrays: Arrays = load(data)
    except (SafetensorError, ValueError, KeyError) as error:
        raise CorruptError(f"the file is not in safetensors format: {type(error).__name__}") from None
    return arrays
