"""Model bundles: `weights.safetensors` and `manifest.json`. Loads on a CPU wherever it was trained.

The manifest holds the generator's config, the vocabulary and its hash, the data's hash, the seed, the training curve,
the versions of the libraries and the sha256 of every file. bfloat16 has no NumPy type, so tensors travel as bytes.
"""

import platform
import zipfile
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from typing import Any, BinaryIO

from ehr.vocabulary import Vocabulary
from model_store.blobs import BlobStore
from model_store.files import MANIFEST, read_file, write_folder
from model_store.manifests import ModelManifest, vocabulary_in

WEIGHTS = "weights.safetensors"
LIBRARIES = ("ehr-d3pm", "torch", "numpy", "scipy", "safetensors")


@dataclass(frozen=True)
class Bundle:
    """A model at rest. `weights` are safetensors bytes."""

    weights: bytes
    manifest: ModelManifest

    @cached_property
    def vocabulary(self) -> Vocabulary:
        return vocabulary_in(self.manifest)


def model_manifest(config: dict[str, Any], vocabulary: Vocabulary, **details: Any) -> ModelManifest:
    """`details`: dataset, data hash, seed, settings, split, curve."""
    return ModelManifest.of(vocabulary, config=config, libraries=library_versions(), **details)


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
    return write_folder(store, folder, {WEIGHTS: bundle.weights}, bundle.manifest.stored())


def load_bundle(store: BlobStore, folder: str, manifest_hash: str) -> Bundle:
    """The bundle, if every byte is as it was written; CorruptError otherwise."""
    manifest = ModelManifest.read(store, folder, manifest_hash)
    return Bundle(read_file(store, folder, manifest.files, WEIGHTS), manifest)


def zip_bundle(store: BlobStore, folder: str, manifest_hash: str, target: BinaryIO) -> None:
    """Write the bundle as one zip file, after verifying it."""
    manifest = ModelManifest.read(store, folder, manifest_hash)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for name in (MANIFEST, *sorted(manifest.files)):
            data = store.read(f"{folder}/{name}", manifest.files.get(name))
            archive.writestr(zipfile.ZipInfo(name), data)  # a fixed date: the same bundle is the same zip
