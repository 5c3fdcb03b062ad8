"""A bundle that another instance has made: a zip of which every byte is checked before anything of it is stored."""

import hashlib
import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, deserialize

from ehr.audits import ModelAudit, ReferenceFacts
from ehr.errors import CorruptError, DataError, EhrError, TooLargeError
from ehr.records import Records
from ehr.shareable import ModelReport
from model_store.blobs import BlobStore
from model_store.bundles import REFERENCE, ROW, WEIGHTS
from model_store.files import CDM, MANIFEST, unpack_arrays
from model_store.manifests import ModelManifest, vocabulary_in

KNOWN = (WEIGHTS, REFERENCE, CDM)  # nothing else can lie in a model's folder
LARGEST_MANIFEST = 1 << 28


@dataclass(frozen=True)
class ImportedBundle:
    """What a zip holds. `files` are verified as they are given out."""

    archive: zipfile.ZipFile
    manifest_bytes: bytes
    manifest: ModelManifest
    row: dict[str, Any]  # what the model's row knew besides: its name, and what its report said

    @property
    def manifest_hash(self) -> str:
        return hashlib.sha256(self.manifest_bytes).hexdigest()

    @property
    def generator(self) -> str:
        return str(self.manifest.config.get("generator"))

    def details(self) -> dict[str, Any]:
        """Of the model's row, as training would have written them."""
        of_row = ("dataset_id", "data_hash", "seed", "preset", "preset_reason", "settings", "test_share")
        names = (*of_row, "holdout_share", "curve", "costs", "reference", "audit", "vocabulary_hash")
        told = self.manifest.stored()
        report = {"report": self.row["report"]} if self.row.get("report") is not None else {}
        return {name: told[name] for name in names if name in told} | report

    def store(self, store: BlobStore, folder: str) -> None:
        """Write the files, each verified, then the manifest as it came; DataError if a byte is not what it says."""
        for name, sha256 in self.manifest.files.items():
            data = self.archive.read(name)
            if hashlib.sha256(data).hexdigest() != sha256:
                raise DataError(f"{name} is not what the bundle's manifest says")
            self._check(name, data)
            store.write(f"{folder}/{name}", data)
        store.write(f"{folder}/{MANIFEST}", self.manifest_bytes)

    def _check(self, name: str, data: bytes) -> None:
        if name == WEIGHTS:
            deserialize(data)  # type: ignore[no-untyped-call]
        if name == REFERENCE:
            arrays = unpack_arrays(data)
            Records(arrays["indptr"], arrays["indices"], len(self.manifest.vocabulary))


@contextmanager
def opened_bundle(path: Path, limit: int) -> Iterator[ImportedBundle]:
    """The bundle in a zip file of at most `limit` bytes, as long as the block runs; DataError if it is none."""
    try:
        with zipfile.ZipFile(path) as archive:
            sizes = {each.filename: each.file_size for each in archive.infolist()}
            if sum(sizes.values()) > limit:
                raise TooLargeError(f"the bundle inflates to more than {limit:,} bytes")
            if len(sizes) != len(archive.infolist()) or sizes.get(MANIFEST, LARGEST_MANIFEST) >= LARGEST_MANIFEST:
                raise DataError("this is not a model's bundle: it has no manifest.json, or a name twice")
            data = archive.read(MANIFEST)
            manifest = _manifest(json.loads(data))
            if unknown := sorted(set(sizes) - {MANIFEST, ROW, *manifest.files}):
                raise DataError(f"the manifest knows no file {unknown[0][:60]!r}")
            row = json.loads(archive.read(ROW)) if ROW in sizes else {}
            yield ImportedBundle(archive, data, manifest, _row(row))
    except CorruptError as error:
        raise DataError(str(error)) from None
    except EhrError:
        raise
    except (zipfile.BadZipFile, NotImplementedError, EOFError, RuntimeError) as error:
        raise DataError(f"the zip file cannot be read: {type(error).__name__}") from None
    except (SafetensorError, KeyError, ValueError) as error:  # of JSON, of what pydantic checks, of tensors
        raise DataError(f"the bundle is damaged or of another version: {type(error).__name__}") from None


def _manifest(told: Any) -> ModelManifest:
    if not isinstance(told, dict) or (told.get("format"), told.get("version")) != (
        ModelManifest.FORMAT,
        ModelManifest.VERSION,
    ):
        raise DataError(f"this is not an {ModelManifest.FORMAT} of format version {ModelManifest.VERSION}")
    manifest = ModelManifest.model_validate(told)
    vocabulary_in(manifest)
    ModelAudit.of({"audit": manifest.audit})
    ReferenceFacts.of({"reference": manifest.reference})
    if WEIGHTS not in manifest.files or not set(manifest.files) <= set(KNOWN):
        raise DataError(f"a bundle has {WEIGHTS}, and besides it at most {REFERENCE} and {CDM}")
    return manifest


def _row(told: Any) -> dict[str, Any]:
    if not isinstance(told, dict):
        raise DataError(f"{ROW} is not an object")
    ModelReport.of(told)
    name = "".join(character for character in str(told.get("name") or "") if character.isprintable())
    return {"name": name[:200], "report": told.get("report")}
