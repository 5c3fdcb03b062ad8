"""One contract for all blob backends, and what stored things refuse."""

import errno
import hashlib
import io
import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ehr.errors import CorruptError, NotFoundError, RequestError, StoreError, StoreFullError
from ehr.records import Records
from ehr.vocabulary import Vocabulary
from model_store import layout
from model_store.blobs import BlobStore, FileStore, S3Store, open_store, sha256_of
from model_store.blobs.s3_files import PART
from model_store.bundles import Bundle, load_bundle, model_manifest, save_bundle, zip_bundle
from model_store.cohorts import (
    cohort_manifest,
    effective_records,
    iter_blocks,
    pack_part,
    save_cohort_manifest,
)
from model_store.datasets import (
    StoredDataset,
    data_hash,
    load_dataset,
    positions,
    save_dataset,
    split_of,
    summarise,
)
from model_store.files import pack_arrays, read_file, read_manifest, unpack_arrays, write_folder
from model_store.ids import DATASET, JOB, MODEL, new_id
from model_store.manifests import CohortManifest, CohortPart, SourceModel
from tests.service.memory_store import MemoryStore
from worker.tasks.loading import BLOCK, tensor_blocks, unpack_tensors


@pytest.fixture(params=["file", "memory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    if request.param == "file":
        return FileStore(f"file://{tmp_path}/store")
    if request.param == "memory":
        return MemoryStore("memory://")
    s3: S3Store = request.getfixturevalue("s3_store")
    return s3


def replace(store: BlobStore, key: str, data: bytes) -> None:
    """What the store itself never does."""
    store.delete(key)
    store.write(key, data)


def test_a_blob_is_what_was_written(store: BlobStore) -> None:
    store.write("models/a/x.bin", b"one")
    store.check()
    store.write("models/a/y.bin", b"two")
    store.write("models/b/x.bin", b"three")
    assert store.read("models/a/x.bin") == b"one"
    assert store.exists("models/a/x.bin") and not store.exists("models/a/z.bin")
    assert sorted(store.list("models/a")) == ["models/a/x.bin", "models/a/y.bin"]
    assert list(store.list("nothing")) == []
    with store.local_path("models/a/y.bin") as path:
        assert path.read_bytes() == b"two"
    with store.open("models/b/x.bin") as file:
        file.seek(2)
        assert file.read() == b"ree"
    assert len(sha256_of(store, "models/a/x.bin")) == 64
    store.delete_folder("models", keep=["models/b"])
    assert list(store.list("models")) == ["models/b/x.bin"]
    store.delete("models/b/x.bin")
    store.delete("models/b/x.bin")
    with pytest.raises(StoreError):
        store.read("models/b/x.bin")


@pytest.mark.parametrize("size", [0, 1, PART, 2 * PART + 1])
def test_any_size_comes_back(store: BlobStore, size: int) -> None:
    data = np.random.default_rng(size).bytes(size)
    with store.create("models/a/x.bin") as file:
        for first in range(0, size, 3_000_000):
            assert file.write(data[first : first + 3_000_000]) > 0
    store.write("models/a/y.bin", data)
    assert sha256_of(store, "models/a/x.bin") == hashlib.sha256(data).hexdigest()
    assert store.read("models/a/y.bin", hashlib.sha256(data).hexdigest()) == data
    with store.local_path("models/a/y.bin") as path:
        assert path.read_bytes() == data and path.stat().st_size == size
    with store.open("models/a/x.bin") as file:
        assert file.seek(size // 2) == size // 2 and file.read(10) == data[size // 2 :][:10]
        assert file.seek(-min(size, 5), io.SEEK_END) == max(size - 5, 0) and file.read() == data[-5:]
        assert file.read(1) == b""


@pytest.mark.parametrize("size", [10, PART + 10])
def test_a_blob_is_written_once(store: BlobStore, size: int) -> None:
    store.write("models/a/x.bin", bytes(size))
    store.write("models/a/x.bin", bytes(size))  # the same bytes change nothing: a request may be repeated
    with pytest.raises(StoreError, match="other contents"):
        store.write("models/a/x.bin", bytes(size - 1) + b"1")
    assert store.read("models/a/x.bin") == bytes(size) and list(store.list("models")) == ["models/a/x.bin"]
    if isinstance(store, S3Store):
        assert list(store.unfinished("models")) == []


def test_a_write_that_fails_leaves_nothing(store: BlobStore) -> None:
    def half() -> None:
        with store.create("models/a/x.bin") as file:
            file.write(bytes(PART + 1))  # so that some of it has gone to a server already
            raise RuntimeError

    with pytest.raises(RuntimeError):
        half()
    assert list(store.list("models")) == []
    if isinstance(store, FileStore):
        assert [path for path in store.root.rglob("*") if path.is_file()] == []
    if isinstance(store, S3Store):
        assert list(store.unfinished("models")) == []


def test_tidying_a_folder_leaves_writers_of_what_stays_alone(store: BlobStore) -> None:
    store.write("models/m/a2/old.bin", b"old")
    with store.create("models/m/a2/new.bin") as file:
        file.write(b"new")
        store.delete_folder("models/m", keep=["models/m/a2"])
    assert sorted(store.list("models")) == ["models/m/a2/new.bin", "models/m/a2/old.bin"]


def test_what_a_killed_writer_left_goes_with_its_folder(tmp_path: Path) -> None:
    store = FileStore(f"file://{tmp_path}")
    for folder in ("models/m/a1", "models/m/a2"):
        store.write(f"{folder}/x.bin", b"x")
    (tmp_path / "models/m/a1/.tmp-0123").write_bytes(b"half")
    store.delete_folder("models/m", keep=["models/m/a2"])
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / "models/m/a2/x.bin"]


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileStore(f"file://{tmp_path}")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StoreFullError):
        store.write("models/a/x.bin", b"data")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    "key", ["../x", "/etc/passwd", "a/../b", "a//b", "", ".", "a/.tmp-1", "A", "a b", "a\x00", "a\\b", "x" * 300, "a\n"]
)
def test_no_other_name_reaches_the_store(store: BlobStore, key: str) -> None:
    for deed in (store.read, store.exists, store.delete, lambda k: store.write(k, b"")):
        with pytest.raises(StoreError):
            deed(key)
    with pytest.raises(NotFoundError):
        layout.model_folder(key)


def test_a_file_system_without_links_keeps_blobs_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("os.link", refused)
    store = FileStore(f"file://{tmp_path}")
    store.write("models/a/x.bin", b"data")
    assert store.read("models/a/x.bin") == b"data"
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["x.bin"]


def test_an_unknown_scheme_names_the_known_ones() -> None:
    with pytest.raises(RequestError, match=r"file://, s3://"):
        open_store("ftp://host/x")


# --- bundles ---

VOCABULARY = Vocabulary(("ICD9DX:001", "ICD9DX:002", "RX:9"))


def saved_bundle(store: BlobStore) -> tuple[str, str]:
    folder = layout.model_folder(new_id(MODEL), 1)
    weights = pack_arrays({"w": np.arange(6, dtype=np.float32).reshape(2, 3)})
    return folder, save_bundle(
        store, folder, Bundle(weights, model_manifest({"generator": "d3pm"}, VOCABULARY, seed=3))
    )


def test_a_bundle_comes_back_as_it_was(store: BlobStore) -> None:
    folder, manifest_hash = saved_bundle(store)
    bundle = load_bundle(store, folder, manifest_hash)
    assert bundle.vocabulary == VOCABULARY and bundle.manifest.seed == 3
    assert bundle.manifest == model_manifest({"generator": "d3pm"}, VOCABULARY, seed=3, files=bundle.manifest.files)
    assert unpack_arrays(bundle.weights)["w"].tolist() == [[0, 1, 2], [3, 4, 5]]
    first, second = io.BytesIO(), io.BytesIO()
    zip_bundle(store, folder, manifest_hash, first)
    zip_bundle(store, folder, manifest_hash, second)
    assert first.getvalue() == second.getvalue()
    with zipfile.ZipFile(first) as archive:
        assert archive.namelist() == ["manifest.json", "weights.safetensors"]
        assert json.loads(archive.read("manifest.json"))["libraries"]["torch"]


def test_tensors_in_blocks_are_what_safetensors_reads(store: BlobStore) -> None:
    tensors = {
        "large": torch.arange(BLOCK, dtype=torch.float32).reshape(-1, 8).T,
        "scalar": torch.tensor(0.5, dtype=torch.float64),
        "empty": torch.zeros(0, 4),
        "half": torch.ones(3, dtype=torch.bfloat16),
        "flags": torch.tensor([True, False, True]),
        "state": torch.arange(5, dtype=torch.uint8),
    }
    folder = layout.model_folder(new_id(MODEL), 1)
    sha256 = write_folder(store, folder, {"t.safetensors": tensor_blocks(tensors)}, {"format": "f", "version": 1})
    files = read_manifest(store, folder, sha256, "f", 1)["files"]
    read = unpack_tensors(read_file(store, folder, files, "t.safetensors"))
    assert read.keys() == tensors.keys()
    assert all(read[name].dtype == each.dtype and torch.equal(read[name], each) for name, each in tensors.items())


@pytest.mark.parametrize("name", ["manifest.json", "weights.safetensors"])
def test_a_flipped_byte_anywhere_is_refused(store: BlobStore, name: str) -> None:
    folder, manifest_hash = saved_bundle(store)
    good = store.read(f"{folder}/{name}")
    for position in {0, len(good) // 2, len(good) - 1}:
        bad = bytearray(good)
        bad[position] ^= 1
        replace(store, f"{folder}/{name}", bytes(bad))
        with pytest.raises(CorruptError):
            load_bundle(store, folder, manifest_hash)


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("a pickle in the store was run",))


def test_a_planted_pickle_never_runs(store: BlobStore) -> None:
    folder, manifest_hash = saved_bundle(store)
    planted = pickle.dumps(Bomb())
    replace(store, f"{folder}/weights.safetensors", planted)
    with pytest.raises(CorruptError):
        load_bundle(store, folder, manifest_hash)
    with pytest.raises(CorruptError):  # not even where nobody checks a hash
        unpack_arrays(planted)


# --- datasets and cohorts ---


def test_a_dataset_comes_back_and_splits_by_patient(store: BlobStore) -> None:
    rng = np.random.default_rng(0)
    n, patients = 400, np.arange(400) // 2
    indptr = np.arange(0, 2 * n + 1, 2)
    records = Records(indptr, np.tile(np.array([0, 1], dtype=np.int32), n), 3)
    position = positions(patients, 200)
    dataset = StoredDataset(records, position, VOCABULARY, 0.2, 0.1, data_hash(records, position))
    split = split_of(position, 0.2, 0.1)
    assert np.bincount(split).tolist() == [280, 40, 80]
    for patient in rng.integers(0, 200, 20):
        assert len(set(split[patients == patient])) == 1
    # another holdout share leaves the test split alone
    assert np.array_equal(split == 2, split_of(position, 0.2, 0.4) == 2)
    folder = layout.dataset_folder(new_id(DATASET), 1)
    manifest_hash = save_dataset(store, folder, dataset, summarise(records, VOCABULARY, split, 200))
    loaded = load_dataset(store, folder, manifest_hash)
    assert loaded.vocabulary == VOCABULARY and loaded.data_hash == dataset.data_hash
    assert len(loaded.split("train")) == 280 and len(loaded.split("train", 0.4)) == 160
    assert np.array_equal(loaded.split("test").indices, np.tile([0, 1], 80))


def test_small_cells_do_not_leave() -> None:
    n = 50  # code 0 in all but 5 records, code 1 in 7, code 2 in 20
    sets = [[c for c, has in enumerate((i >= 5, i < 7, i < 20)) if has] for i in range(n)]
    indptr = np.concatenate([[0], np.cumsum([len(s) for s in sets])])
    records = Records(indptr, np.array([c for s in sets for c in s], dtype=np.int32), 3)
    summary = summarise(records, VOCABULARY, split_of(positions(np.arange(n), n), 0.1, 0.1), n)
    assert summary["splits"] is None  # 5 test records: all three counts stay away, or the sum would give it away
    # the shown 20, and the middle of what the others may be: (50 - 5.5) and 5.5
    assert summary["codes_per_record"] == (20 + 44.5 + 5.5) / 50
    rarer = summarise(records, VOCABULARY, np.zeros(n), n)
    assert rarer["codes_per_record"] == summary["codes_per_record"]
    assert summary["records"] == 50
    assert summarise(records, VOCABULARY, np.zeros(n), 9)["patients"] is None


def test_a_cohort_comes_back_with_its_empty_records(store: BlobStore) -> None:
    job_id = new_id(JOB)
    records = Records(np.array([0, 2, 2, 3, 3]), np.array([0, 2, 1], dtype=np.int32), 3)
    data = pack_part(1024, records, VOCABULARY)
    assert data == pack_part(1024, records, VOCABULARY)
    blob = f"{layout.cohort_folder(job_id)}/parts/p0.parquet"
    store.write(blob, data)
    part = CohortPart(number=0, blob=blob, sha256=sha256_of(store, blob), first_record=1024, n_records=4)
    folder = f"{layout.cohort_folder(job_id)}/a1"
    manifest = cohort_manifest(SourceModel(id="m"), {"n": 4}, VOCABULARY, [part])
    manifest_hash = save_cohort_manifest(store, f"{folder}/manifest.json", manifest)
    (block,) = iter_blocks(store, CohortManifest.read(store, folder, manifest_hash))
    assert block.first_record == 1024
    assert block.records.indptr.tolist() == [0, 2, 2, 3, 3] and block.records.indices.tolist() == [0, 2, 1]
    assert effective_records(store, manifest) is None  # nothing was weighed
    store.write(f"{blob}2", pack_part(1028, records, VOCABULARY, effective=2.5))
    moved = {"blob": f"{blob}2", "sha256": sha256_of(store, f"{blob}2"), "first_record": 1028}
    weighed = part.model_copy(update=moved)
    assert effective_records(store, manifest.model_copy(update={"parts": (part, weighed)})) == 4 + 2.5
    replace(store, blob, data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(CorruptError):
        list(iter_blocks(store, manifest))
