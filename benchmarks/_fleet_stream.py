"""Training on ten million records of a thousand codes that stay in the store: the most memory it takes.

`python -m benchmarks._fleet_stream FOLDER MANIFEST_HASH STEPS` trains in a process of its own, whose peak is that of
nothing else.
"""

import hashlib
import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from benchmarks._harness import Figures, peak_rss_gib, progress_bar, show, timed
from ehr.canonical_json import to_json
from ehr.records import Records, indptr_of
from ehr.vocabulary import Vocabulary
from model_store.blobs import open_store
from model_store.datasets import RECORDS, load_dataset
from model_store.files import MANIFEST
from model_store.manifests import DatasetManifest

FULL, QUICK = (10_000_000, 1_000), (40_000, 200)  # records, codes
STEPS = 200  # of 1,953 batches of an epoch: two of its eight pools, and more than half of the third
BLOCK, CODES_PER_RECORD, SPECIALTIES = 100_000, 10, 40
HEADER = 1024
DATASET = "datasets/large"
# A batch is large and the network small: what is measured is memory, and chunks shall be seen in bearable time.
SETTINGS: dict[str, Any] = {
    "denoiser": {"kind": "sparse", "width": 128, "blocks": 1},
    "training": {"epochs": 1, "batch_size": 4096},
}


def stream(figures: Figures, quick: bool) -> None:
    """`stream.peak_rss_gib`: from loading the dataset to weights that are ready, with some of an epoch's batches."""
    records, codes = QUICK if quick else FULL
    with tempfile.TemporaryDirectory(prefix="ehrbench") as folder, progress_bar("records written") as progress:
        with timed() as writing:
            manifest_hash = write_dataset(Path(folder), records, codes, progress)
        size = (Path(folder) / DATASET / RECORDS).stat().st_size
        command = [sys.executable, "-m", "benchmarks._fleet_stream", folder, manifest_hash, str(STEPS)]
        done = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    show(
        "training on records that stay in the store",
        ["records", "codes", "file, GiB", "written in, s", "batches of", "seconds", "records / s", "peak, GiB"],
        [
            [
                f"{records:,}",
                f"{codes:,}",
                f"{size / 2**30:.2f}",
                f"{writing[0]:.0f}",
                f"{done['steps']:,} of {done['of']:,}",
                f"{done['seconds']:.0f}",
                f"{done['records'] / done['seconds']:,.0f}",
                f"{done['peak_gib']:.2f}",
            ]
        ],
    )
    figures.add("stream.peak_rss_gib", done["peak_gib"], "GiB")
    figures.add("stream.records_per_second", done["records"] / done["seconds"], "records/s")


def write_dataset(folder: Path, records: int, codes: int, progress: Any) -> str:
    """A dataset as an ingestion leaves it, written in blocks; the hash of its manifest."""
    path = folder / DATASET / RECORDS
    path.parent.mkdir(parents=True)
    rng = np.random.default_rng(0)
    order = np.stack([rng.permutation(codes) for _ in range(SPECIALTIES)])
    sizes = []
    with path.open("wb") as file:
        file.write(bytes(8 + HEADER))
        for first in range(0, records, BLOCK):
            n = min(BLOCK, records - first)
            place = (codes * rng.random((n, CODES_PER_RECORD)) ** 2.5).astype(np.int64)
            specialty = np.sort(rng.integers(0, SPECIALTIES, n))  # as files are: neighbours are alike
            drawn = np.where(rng.random(place.shape) < 0.3, place, order[specialty[:, None], place])
            block = Records.from_pairs(np.repeat(np.arange(n), CODES_PER_RECORD), drawn.ravel(), n, codes)
            file.write(block.indices.tobytes())
            sizes.append(block.sizes())
            progress(first + n, records)
        indptr = indptr_of(np.concatenate(sizes))
        file.write(indptr.tobytes())
        file.write(((rng.permutation(records) + 0.5) / records).astype(np.float32).tobytes())
        _write_header(file, int(indptr[-1]), records)
    with path.open("rb") as written:
        digest = hashlib.file_digest(written, "sha256").hexdigest()
    vocabulary = Vocabulary(tuple(f"SIM:{number:04d}" for number in range(codes)))
    shares = {"test_share": 0.1, "holdout_share": 0.1}
    manifest = DatasetManifest.of(vocabulary, data_hash=digest, shown_counts=[None] * codes, summary={}, **shares)
    data = to_json(manifest.stored() | {"files": {RECORDS: digest}})
    (folder / DATASET / MANIFEST).write_bytes(data)
    return hashlib.sha256(data).hexdigest()


def _write_header(file: BinaryIO, n_indices: int, records: int) -> None:
    ends = np.cumsum([0, 4 * n_indices, 8 * (records + 1), 4 * records]).tolist()
    arrays = (("indices", "I32", n_indices), ("indptr", "I64", records + 1), ("position", "F32", records))
    header = {
        name: {"dtype": kind, "shape": [n], "data_offsets": [ends[place], ends[place + 1]]}
        for place, (name, kind, n) in enumerate(arrays)
    }
    file.seek(0)
    file.write(struct.pack("<Q", HEADER) + json.dumps(header).encode().ljust(HEADER))


def train(folder: str, manifest_hash: str, steps: int) -> None:
    from ehr.errors import TrainingStopped
    from ehr.streams import RecordStream
    from runtime.settings import Settings
    from worker.engine.generators import FitRequest
    from worker.engine.generators.d3pm import D3PMGenerator
    from worker.engine.training import Hooks, TrainingProgress

    made: list[TrainingProgress] = []

    def on_progress(progress: TrainingProgress) -> None:
        made[:] = [progress]

    most = min(Settings().stream_bytes, (Path(folder) / DATASET / RECORDS).stat().st_size - 1)
    dataset = load_dataset(open_store(f"file://{folder}"), DATASET, manifest_hash, most)
    learned_from = dataset.to_learn_from()
    assert isinstance(learned_from, RecordStream)
    hooks = Hooks(on_progress, should_stop=lambda: bool(made) and made[0].step >= steps)
    request = FitRequest(learned_from, dataset.split("holdout"), SETTINGS, device="cpu", hooks=hooks)
    with timed() as seconds:
        _, run = D3PMGenerator.prepare(request)
        try:
            run.to_the_end()
        except TrainingStopped:
            run.learner.finish(run)  # what ends a training takes memory, too
    result = {
        "peak_gib": peak_rss_gib(),
        "seconds": seconds[0],
        "steps": run.step,
        "of": run.per_epoch,
        "records": run.step * run.plan.batch_size,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    train(sys.argv[1], sys.argv[2], int(sys.argv[3]))
