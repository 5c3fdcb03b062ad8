"""Model bundles: `weights.safetensors`, `reference.safetensors`, `manifest.json`, and `cdm.json` if the records came
from an OMOP CDM.

A bundle loads on a CPU wherever it was trained.

The manifest holds the generator's config, the vocabulary and its hash, the data's hash, the seed, the training curve,
the versions of the libraries and the sha256 of every file. bfloat16 has no NumPy type, so tensors travel as bytes. The
reference cohort, records that the model drew once, is CSR and only read where estimates are made.
"""

import platform
import zipfile
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from typing import Any, BinaryIO

from ehr.canonical_json import to_json
from ehr.errors import CorruptError
from ehr.histories import Histories
from ehr.records import Records
from ehr.vocabulary import Vocabulary
from model_store.arrays import arrays_of, histories_in
from model_store.blobs import BlobStore
from model_store.files import CDM, MANIFEST, pack_arrays, read_file, unpack_arrays, write_folder
from model_store.manifests import ModelManifest, stored_cdm, vocabulary_in

WEIGHTS = "weights.safetensors"
REFERENCE = "reference.safetensors"
ROW = "model.json"  # in a zip: what the model's row knows besides
LIBRARIES = ("ehr-d3pm", "torch", "numpy", "scipy", "safetensors")


@dataclass(frozen=True)
class Bundle:
    """A model at rest. `weights` are safetensors bytes."""

    weights: bytes
    manifest: ModelManifest
    cdm: bytes | None = None  # as the dataset has it: a cohort may be written when the dataset is gone

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


def save_bundle(store: BlobStore, folder: str, bundle: Bundle, reference: Records | Histories | None = None) -> str:
    """Write a bundle, with the records or patients that the model drew once if there are any; returns the sha256 of its
    manifest."""
    files = {WEIGHTS: bundle.weights} | ({} if bundle.cdm is None else {CDM: bundle.cdm})
    if reference is not None:
        files[REFERENCE] = pack_arrays(arrays_of(reference))
    return write_folder(store, folder, files, bundle.manifest.stored())


def load_bundle(store: BlobStore, folder: str, manifest_hash: str) -> Bundle:
    """The bundle, if every byte is as it was written; CorruptError otherwise."""
    manifest = ModelManifest.read(store, folder, manifest_hash)
    return Bundle(read_file(store, folder, manifest.files, WEIGHTS), manifest, stored_cdm(store, folder, manifest))


def load_reference(store: BlobStore, folder: str, manifest_hash: str) -> Records | Histories:
    """What the model drew once; CorruptError if that is nothing, or if a byte has changed."""
    manifest = ModelManifest.read(store, folder, manifest_hash)
    arrays = unpack_arrays(read_file(store, folder, manifest.files, REFERENCE))
    try:
        records = Records(arrays["indptr"], arrays["indices"], len(manifest.vocabulary))
        histories = histories_in(records, arrays)
        return records if histories is None else histories
    except KeyError as error:
        raise CorruptError(f"the reference cohort has no {error}") from None


def zip_bundle(
    store: BlobStore, folder: str, manifest_hash: str, target: BinaryIO, row: dict[str, Any] | None = None
) -> None:
    """Write the bundle as one zip file, after verifying it. `row`: what the model's row knows besides."""
    manifest = ModelManifest.read(store, folder, manifest_hash)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for name in (MANIFEST, *sorted(manifest.files)):
            data = store.read(f"{folder}/{name}", manifest.files.get(name))
            archive.writestr(zipfile.ZipInfo(name), data)  # a fixed date: the same bundle is the same zip
        if row is not None:
            archive.writestr(zipfile.ZipInfo(ROW), to_json(row))
