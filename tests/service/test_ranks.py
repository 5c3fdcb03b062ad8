"""One training in two processes: the same model as one makes, through lost processes, deploys and cancels."""

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import worker.ranks.parent as parent
from ehr.codes.families import families
from ehr.errors import TrainingError
from ehr.records import Records
from model_store.bundles import load_bundle
from model_store.datasets import load_dataset
from model_store.files import unpack_arrays
from model_store.repositories import DatasetRepository, ModelRepository
from runtime.settings import Settings
from tests.service.fixtures import NewUrl, new_stand
from tests.service.servers import wait_until
from tests.service.stand import OWNER, Stand, Worker, long_csv
from worker.engine.checkpoints import Checkpoint
from worker.engine.generators import FitRequest
from worker.engine.generators.d3pm import D3PMGenerator
from worker.ranks.parent import RankLostError, device_of, environment_of

EPOCHS = 12
# Dropout is drawn by each process for its own rows, and contexts are dealt evenly: without the one, and with 18 and 6
# of the other in a batch of 60, two processes follow the path of one.
SETTINGS: dict[str, Any] = {
    "denoiser": {"kind": "sparse", "width": 16, "blocks": 1, "dropout": 0.0, "input_dropout": 0.0},
    "timesteps": 50,
    "training": {"epochs": EPOCHS, "batch_size": 60, "holdout_draws": 1, "evaluate_every": 1},
}
TOGETHER = {"TRAIN_PROCESSES": "2"}


@dataclass
class Ward:
    """A stand with a worker that trains in two processes, a dataset, and a model that lost one of them on its way."""

    stand: Stand
    worker: Worker
    dataset_id: str
    model_id: str
    job_id: str


@pytest.fixture(scope="module")
def ward(new_url: NewUrl) -> Iterator[Ward]:
    with new_stand(new_url("sqlite")) as stand:
        worker = stand.worker(**TOGETHER)
        dataset_id = stand.succeed(stand.ingest(long_csv(600), may_be_attacked=False))["dataset_id"]
        lost = stand.train(dataset_id, settings=SETTINGS)
        os.kill(began(stand, worker, lost)[1], signal.SIGKILL)
        model_id = stand.succeed(lost)["model_id"]
        yield Ward(stand, worker, dataset_id, model_id, lost)


def ranks_of(worker: Worker) -> list[int]:
    """The processes that train for a worker."""
    found = []
    for place in Path("/proc").iterdir():
        try:
            is_rank = place.name.isdigit() and b"worker.ranks.rank" in (place / "cmdline").read_bytes().split(b"\0")
            if is_rank and os.getsid(int(place.name)) == worker.process.pid:
                found.append(int(place.name))
        except OSError:
            continue  # it has ended
    return sorted(found)


def began(stand: Stand, worker: Worker, job_id: str) -> list[int]:
    """Wait until two processes train and something of it is kept."""
    wait_until(lambda: (stand.job(job_id).checkpoint or {}).get("step", 0) > 20, "a checkpoint")
    ranks = ranks_of(worker)
    assert len(ranks) == 2
    return ranks


def weights_and_details(stand: Stand, model_id: str) -> tuple[dict[str, Any], dict[str, Any]]:
    with stand.database.read_scope() as session:
        row = ModelRepository(session).get(OWNER, model_id)
    return unpack_arrays(load_bundle(stand.store, row.prefix, row.manifest_hash).weights), row.details


def test_a_training_that_lost_a_process_follows_the_path_of_one(ward: Ward) -> None:
    assert ward.stand.job(ward.job_id).attempt == 1  # the worker itself was not lost
    assert "a training process was lost" in ward.worker.log.read_text()
    with ward.stand.database.read_scope() as session:
        row = DatasetRepository(session).get(OWNER, ward.dataset_id)
    dataset = load_dataset(ward.stand.store, row.prefix, row.manifest_hash)
    splits = dataset.split("train"), dataset.split("holdout")
    _, details = weights_and_details(ward.stand, ward.model_id)
    known = {"groups": dataset.groups, "rules": dataset.rules, "families": families(dataset.vocabulary.codes)}
    request = FitRequest(*splits, details["settings"], **known, device="cpu")
    alone = D3PMGenerator.fit(request)
    together, expected = ([point["held_out"] for point in each] for each in (details["curve"], alone.curve))
    assert together[-1] < together[0]  # it did learn
    np.testing.assert_allclose(together, expected, rtol=1e-3)


def test_a_cancel_ends_all_processes(ward: Ward) -> None:
    endless = {**SETTINGS, "training": {**SETTINGS["training"], "epochs": 100_000}}
    job_id = ward.stand.train(ward.dataset_id, settings=endless)
    began(ward.stand, ward.worker, job_id)
    ward.stand.cancel(job_id)
    assert ward.stand.wait(job_id).state == "cancelled"
    wait_until(lambda: ranks_of(ward.worker) == [], "the end of all processes")
    wait_until(lambda: ward.stand.blobs(f"checkpoints/{job_id}") == [], "removal of checkpoints")
    assert list((ward.stand.folder / "scratch").iterdir()) == []


def test_a_deploy_changes_nothing(ward: Ward) -> None:
    """Stopped in two ways at two places, two trainings end in the same bits."""
    stand, worker = ward.stand, ward.worker
    moved = stand.train(ward.dataset_id, settings=SETTINGS)
    began(stand, worker, moved)
    worker.process.terminate()
    worker.process.wait(120)
    assert "job handed over" in worker.log.read_text()
    assert ranks_of(worker) == []
    stand.worker(**TOGETHER, STREAM_BYTES="0")
    after = stand.succeed(moved)["model_id"]
    (a, of_a), (b, of_b) = (weights_and_details(stand, each) for each in (after, ward.model_id))
    assert all(np.array_equal(a[name], b[name]) for name in b) and of_a["curve"] == of_b["curve"]


class Lost:
    """Processes of which one is always lost."""

    starts = 0

    def __init__(self, *_: Any) -> None:
        Lost.starts += 1

    def __enter__(self) -> "Lost":
        return self

    def __exit__(self, *_: object) -> None: ...

    def listen(self, *_: Any) -> None:
        raise RankLostError("process 1 of 2 that trained ended with signal 9")


@pytest.mark.parametrize(("steps", "starts"), [([None, None, None], 3), ([10, 20, 20, 20], 4)])
def test_a_process_that_is_always_lost_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, steps: list[int | None], starts: int
) -> None:
    """After as many times in a row without getting further as a job has attempts."""
    left = iter(steps)

    class Kept:
        def newest(self) -> Checkpoint | None:
            step = next(left)
            return None if step is None else Checkpoint({}, {"step": step})

    monkeypatch.setattr(parent, "Ranks", Lost)
    Lost.starts = 0
    request = FitRequest(Records.from_sets([[0], [1]], 2))
    with pytest.raises(TrainingError, match="signal 9"):
        parent.fit_together(2, "d3pm", request, Kept(), Settings(max_attempts=3))  # type: ignore[arg-type]
    assert Lost.starts == starts


def test_each_process_has_its_gpu_and_its_share_of_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    monkeypatch.setattr("torch.get_num_threads", lambda: 6)
    assert [device_of(rank, "cuda") for rank in range(4)] == ["cuda:0", "cuda:1", "cuda:2", "cuda:3"]
    assert device_of(1, "cpu") == "cpu"
    environment = environment_of(4, {"OMP_NUM_THREADS": "6", "HOME": "/"})
    assert (environment["OMP_NUM_THREADS"], environment["HOME"]) == ("1", "/")
