"""Model bundles: `weights.safetensors` and `manifest.json`. Loads on a CPU wherever it was trained.

The manifest holds the generator's config, the vocabulary and its hash, the data's hash, the seed, the training curve,
the versions of the libraries and the sha256 of every file. bfloat16 has no NumPy type, so tensors travel as bytes.
"""

import platform
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, BinaryIO

from ehr.errors import CorruptError
from ehr.vocabulary import Vocabulary
from model_store.blobs import BlobStore
from model_store.files import MANIFEST, read_file, read_manifest, write_folder

FORMAT, VERSION = "ehr-d3pm model", 1
WEIGHTS = "weights.safetensors"
LIBRARIES = ("ehr-d3pm", "torch", "numpy", "scipy", "safetensors")


@dataclass(frozen=True)
class Bundle:
    """A model at rest. `weights` are safetensors bytes, `config` the generator's own JSON."""

    weights: bytes
    config: dict[str, Any]
    vocabulary: Vocabulary
    details: dict[str, Any]  # dataset, data hash, seed, settings, split, curve


def library_versions() -> dict[str, str]:
    """What made a result: for the manifest of models and cohorts."""
    versions = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def save_bundle(store: BlobStore, folder: str, bundle: Bundle) -> str:
    """Write a bundle; returns the sha256 of its manifest."""
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "config": bundle.config,
        "vocabulary": list(bundle.vocabulary.codes),
        "vocabulary_hash": bundle.vocabulary.hash,
        "libraries": library_versions(),
        **bundle.details,
    }
    return write_folder(store, folder, {WEIGHTS: bundle.weights}, manifest)


def load_manifest(store: BlobStore, folder: str, manifest_hash: str) -> dict[str, Any]:
    """The manifest alone, verified; CorruptError if it was changed."""
    return read_manifest(store, folder, manifest_hash, FORMAT, VERSION)


def load_bundle(store: BlobStore, folder: str, manifest_hash: str) -> Bundle:
    """The bundle, if every byte is as it was written; CorruptError otherwise."""
    manifest = load_manifest(store, folder, manifest_hash)
    weights = read_file(store, folder, manifest, WEIGHTS)
    known = {"format", "version", "config", "vocabulary", "vocabulary_hash", "libraries", "files"}
    details = {name: value for name, value in manifest.items() if name not in known}
    return Bundle(weights, manifest["config"], vocabulary_in(manifest), details)


def zip_bundle(store: BlobStore, folder: str, manifest_hash: str, target: BinaryIO) -> None:
    """Write the bundle as one zip file, after verifying it."""
    manifest = load_manifest(store, folder, manifest_hash)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for name in _file_names(manifest):
            data = store.read(f"{folder}/{name}", manifest["files"].get(name))
            archive.writestr(zipfile.ZipInfo(name), data)  # a fixed date: the same bundle is the same zip


def _file_names(manifest: dict[str, Any]) -> Iterator[str]:
    yield MANIFEST
    yield from sorted(manifest["files"])


def vocabulary_in(manifest: dict[str, Any]) -> Vocabulary:
    """The codes a model knows."""
    vocabulary = Vocabulary(tuple(manifest["vocabulary"]))
    if vocabulary.hash != manifest["vocabulary_hash"]:
        raise CorruptError("the vocabulary is not the one its hash belongs to")
    return vocabulary
