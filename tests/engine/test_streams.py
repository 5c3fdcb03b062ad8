"""Records that are read in pieces: the same records, each once an epoch, in an order that a resumed run finds again."""

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import ehr.streams
from ehr.errors import CorruptError, TrainingStopped
from ehr.groups import Group, Groups
from ehr.records import Records
from ehr.streams import RecordStream, keeping
from ehr.vocabulary import Vocabulary
from model_store.blobs import open_store
from model_store.datasets import StoredDataset, data_hash, load_dataset, save_dataset
from worker.engine.checkpoints import Checkpoint
from worker.engine.denoisers.few_patients import FewPatients
from worker.engine.generators import FitRequest
from worker.engine.generators.d3pm import D3PMGenerator
from worker.engine.generators.independent import IndependentGenerator
from worker.engine.population import simulated_population
from worker.engine.training import Hooks

N = 530
SETTINGS = {
    "timesteps": 20,
    "denoiser": {"kind": "sparse", "width": 16, "blocks": 1},
    "training": {"epochs": 4, "batch_size": 60, "evaluate_every": 1},
}


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ehr.streams, "CHUNK", 16)
    monkeypatch.setattr(ehr.streams, "POOL", 5)


class File:
    """Counts what is read of it."""

    def __init__(self, records: Records) -> None:
        self.records, self.reads = records, list[tuple[int, int]]()

    def read(self, start: int, stop: int) -> NDArray[np.int32]:
        self.reads.append((start, stop))
        return self.records.indices[start:stop]

    def stream(self, rows: NDArray[np.int64]) -> RecordStream:
        return RecordStream(self.records.indptr, self.read, self.records.n_codes, rows.astype(np.int32))


@pytest.fixture
def file() -> File:
    return File(simulated_population().sample(N, np.random.default_rng(0)))


@pytest.fixture
def rows() -> NDArray[np.int64]:
    """Of which some chunks have none."""
    chosen = np.flatnonzero(np.random.default_rng(1).random(N) < 0.8)
    return chosen[(chosen < 100) | (chosen > 150)]


def same(a: Records, b: Records) -> bool:
    return np.array_equal(a.indptr, b.indptr) and np.array_equal(a.indices, b.indices)


def test_a_stream_says_what_the_records_say(file: File, rows: NDArray[np.int64]) -> None:
    stream, held = file.stream(rows), file.records.take(rows)
    assert len(stream) == len(held) and np.array_equal(stream.sizes(), held.sizes())
    assert np.array_equal(stream.prevalence(), held.prevalence())
    assert same(Records.concatenate(list(stream.pools())), held)
    for some in (np.arange(40), np.array([3, 77, len(rows) - 1]), np.zeros(0, dtype=np.int64)):
        assert same(stream.take(some), held.take(some))
    both = [FewPatients.of(each, torch.device("cpu"), [3, 5, 8]) for each in (stream, held)]
    assert torch.equal(both[0].together, both[1].together) and torch.equal(both[0].counts, both[1].counts)
    assert same(both[0].some, both[1].some)
    common = np.argsort(-held.prevalence())[:3]
    groups = Groups(held.n_codes, (Group("a", tuple(common.tolist()), "at most one"),))
    kept = keeping(stream, groups)
    assert isinstance(kept, RecordStream) and 0 < len(kept) < len(held)
    assert same(Records.concatenate(list(kept.pools())), groups.keeping(held))


def ids(records: Records) -> list[bytes]:
    return [records.take([row]).indices.tobytes() for row in range(len(records))]


def test_an_epoch_sees_every_record_once_and_reads_every_chunk_once(file: File, rows: NDArray[np.int64]) -> None:
    stream, size = file.stream(rows), 50
    per_epoch = len(rows) // size
    batches = list(stream.batches(7, 0, size, 0, per_epoch))
    assert [len(batch) for batch in batches] == [size] * per_epoch
    assert len(file.reads) == len(set(file.reads)) <= stream.n_chunks
    assert max(stop - start for start, stop in file.reads) < len(file.records.indices) / 20
    of_file = {row: each for row, each in zip(rows.tolist(), ids(file.records.take(rows)), strict=True)}
    seen, there = [each for batch in batches for each in ids(batch)], list(of_file.values())
    assert all(seen.count(each) <= there.count(each) for each in set(seen))
    again, other = (list(stream.batches(7, epoch, size, 0, per_epoch)) for epoch in (0, 1))
    assert all(same(a, b) for a, b in zip(batches, again, strict=True))
    assert not any(same(a, b) for a, b in zip(batches, other, strict=True))
    neighbours = np.diff([rows.tolist().index(row) for row in _rows_of(batches[0], of_file)])
    assert np.abs(neighbours).max() > 3 * ehr.streams.CHUNK  # a batch comes from all over the file


def _rows_of(batch: Records, of_file: dict[int, bytes]) -> list[int]:
    return [next(row for row, each in of_file.items() if each == one) for one in ids(batch)]


@pytest.mark.parametrize("first", [1, 3, 6, 7])
def test_a_resumed_epoch_goes_on_where_it_was(file: File, rows: NDArray[np.int64], first: int) -> None:
    stream = file.stream(rows)
    whole = list(stream.batches(3, 2, 50, 0, len(rows) // 50))
    file.reads.clear()
    rest = list(stream.batches(3, 2, 50, first, len(rows) // 50))
    assert len(rest) == len(whole) - first
    assert all(same(a, b) for a, b in zip(whole[first:], rest, strict=True))
    assert first < 5 or len(file.reads) < stream.n_chunks  # what was seen is not read again


def test_training_on_a_stream_learns_and_resumes(file: File, rows: NDArray[np.int64]) -> None:
    holdout = simulated_population().sample(100, np.random.default_rng(5))
    whole = D3PMGenerator.fit(FitRequest(file.stream(rows), holdout, SETTINGS))
    kept: list[Checkpoint] = []
    steps = iter(range(9))
    stopping = Hooks(on_checkpoint=kept.append, should_stop=lambda: next(steps, None) is None)
    with pytest.raises(TrainingStopped):
        D3PMGenerator.fit(FitRequest(file.stream(rows), holdout, SETTINGS, hooks=stopping))
    resumed = D3PMGenerator.fit(FitRequest(file.stream(rows), holdout, SETTINGS, checkpoint=kept[-1]))
    assert all(torch.equal(tensor, resumed.state().tensors[name]) for name, tensor in whole.state().tensors.items())
    held = D3PMGenerator.fit(FitRequest(file.records.take(rows), holdout, SETTINGS))
    ends = [generator.curve[-1]["held_out"] for generator in (whole, held)]
    assert ends[0] == pytest.approx(ends[1], rel=0.02) and ends[0] < whole.curve[0]["held_out"]
    alike = [IndependentGenerator.fit(FitRequest(each)) for each in (file.stream(rows), file.records.take(rows))]
    assert np.array_equal(alike[0].prevalence, alike[1].prevalence)


def test_a_large_dataset_stays_in_its_file(tmp_path: Path, file: File) -> None:
    store = open_store(f"file://{tmp_path}")
    position = np.random.default_rng(2).random(N).astype(np.float32)
    vocabulary = Vocabulary(tuple(simulated_population().vocabulary))
    dataset = StoredDataset(file.records, position, vocabulary, 0.2, 0.1, data_hash(file.records, position))
    manifest_hash = save_dataset(store, "datasets/d", dataset, {})
    held, left = (load_dataset(store, "datasets/d", manifest_hash, most) for most in (None, 0))
    assert held.read is None and left.read is not None and isinstance(held.to_learn_from(), Records)
    stream = left.to_learn_from(0.3)
    assert isinstance(stream, RecordStream)
    assert same(Records.concatenate(list(stream.pools())), held.split("train", 0.3))
    for name in ("train", "holdout", "test"):
        assert same(left.split(name), held.split(name))
    blob = next(tmp_path.rglob("records.safetensors"))
    data = bytearray(blob.read_bytes())
    data[-5] ^= 1
    blob.unlink()
    blob.write_bytes(bytes(data))
    with pytest.raises(CorruptError):
        load_dataset(store, "datasets/d", manifest_hash, 0)
