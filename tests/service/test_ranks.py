"""One training in two processes: the same model as one makes, through lost processes, deploys and cancels."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model_store.bundles import load_bundle
from model_store.files import unpack_arrays
from model_store.repositories import ModelRepository
from tests.service.fixtures import NewUrl, new_stand
from tests.service.servers import wait_until
from tests.service.stand import OWNER, Stand, Worker, long_csv
from worker.ranks.parent import device_of, environment_of

EPOCHS = 40
# dropout is drawn by each process for its own rows: without it, two processes follow the path of one
SETTINGS: dict[str, Any] = {
    "denoiser": {"kind": "sparse", "width": 16, "blocks": 1, "dropout": 0.0, "input_dropout": 0.0},
    "timesteps": 50,
    "training": {"epochs": EPOCHS, "batch_size": 64, "holdout_draws": 1},
}
TOGETHER = {"TRAIN_PROCESSES": "2"}


@pytest.fixture(scope="module")
def ward(new_url: NewUrl) -> Iterator[tuple[Stand, str]]:
    """A stand with a dataset."""
    with new_stand(new_url("sqlite")) as stand:
        worker = stand.worker()
        dataset_id = stand.succeed(stand.ingest(long_csv(600), may_be_attacked=False))["dataset_id"]
        worker.kill()
        yield stand, dataset_id


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


def weights_and_curve(stand: Stand, model_id: str) -> tuple[dict[str, Any], list[dict[str, float]]]:
    with stand.database.read_scope() as session:
        row = ModelRepository(session).get(OWNER, model_id)
    return unpack_arrays(load_bundle(stand.store, row.prefix, row.manifest_hash).weights), row.details["curve"]


def test_a_lost_process_and_a_deploy_change_nothing(ward: tuple[Stand, str]) -> None:
    """Stopped in two ways at two places, two trainings end in the same bits, and close to what one process makes."""
    stand, dataset_id = ward
    worker = stand.worker(**TOGETHER)
    lost = stand.train(dataset_id, settings=SETTINGS)
    os.kill(began(stand, worker, lost)[1], signal.SIGKILL)
    first = stand.succeed(lost)["model_id"]
    assert stand.job(lost).attempt == 1  # the worker itself was not lost
    assert "a training process was lost" in worker.log.read_text()

    moved = stand.train(dataset_id, settings=SETTINGS)
    began(stand, worker, moved)
    worker.process.terminate()
    worker.process.wait(60)
    assert "job handed over" in worker.log.read_text()
    assert ranks_of(worker) == []
    other = stand.worker(**TOGETHER)
    second = stand.succeed(moved)["model_id"]
    other.kill()

    stand.worker()
    alone = stand.succeed(stand.train(dataset_id, settings=SETTINGS))["model_id"]
    (a, of_a), (b, of_b), (_, of_c) = (weights_and_curve(stand, each) for each in (first, second, alone))
    assert all(np.array_equal(a[name], b[name]) for name in a) and of_a == of_b
    held_out = [[point["held_out"] for point in curve] for curve in (of_a, of_c)]
    assert held_out[0][-1] < held_out[0][0] - 0.1  # it did learn
    np.testing.assert_allclose(*held_out, rtol=1e-3)
    stand.workers[-1].kill()


def test_a_cancel_ends_all_processes(ward: tuple[Stand, str]) -> None:
    stand, dataset_id = ward
    worker = stand.worker(**TOGETHER)
    endless = {**SETTINGS, "training": {**SETTINGS["training"], "epochs": 100_000}}
    job_id = stand.train(dataset_id, settings=endless)
    began(stand, worker, job_id)
    stand.cancel(job_id)
    assert stand.wait(job_id).state == "cancelled"
    wait_until(lambda: ranks_of(worker) == [], "the end of all processes")
    wait_until(lambda: stand.blobs(f"checkpoints/{job_id}") == [], "removal of checkpoints")
    assert list((stand.folder / "scratch").iterdir()) == []
    worker.kill()


def test_a_process_that_is_always_lost_is_a_failure(ward: tuple[Stand, str]) -> None:
    stand, dataset_id = ward
    worker = stand.worker(**TOGETHER, MAX_ATTEMPTS="1", CHECKPOINT_SECONDS="600")
    endless = {**SETTINGS, "training": {**SETTINGS["training"], "epochs": 100_000}}
    job_id = stand.train(dataset_id, settings=endless)
    wait_until(lambda: "train" in str(stand.job(job_id).progress), "the first steps")
    os.kill(ranks_of(worker)[0], signal.SIGKILL)
    job = stand.wait(job_id)
    assert job.state == "failed" and job.error is not None
    assert job.error["type"] == "training-failed" and "signal 9" in job.error["detail"]
    assert ranks_of(worker) == []
    worker.kill()


def test_what_processes_cannot_do_is_told_as_one_would(ward: tuple[Stand, str]) -> None:
    stand, dataset_id = ward
    worker = stand.worker(**TOGETHER)
    odd = {**SETTINGS, "training": {**SETTINGS["training"], "batch_size": 63}}
    job = stand.wait(stand.train(dataset_id, settings=odd))
    assert job.error == {"type": "bad-data", "detail": "a batch of 63 records cannot be shared evenly by 2 processes"}
    worker.kill()


def test_each_process_has_its_gpu_and_its_share_of_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    monkeypatch.setattr("torch.get_num_threads", lambda: 6)
    assert [device_of(rank, "cuda") for rank in range(4)] == ["cuda:0", "cuda:1", "cuda:2", "cuda:3"]
    assert device_of(1, "cpu") == "cpu"
    environment = environment_of(4, {"OMP_NUM_THREADS": "6", "HOME": "/"})
    assert (environment["OMP_NUM_THREADS"], environment["HOME"]) == ("1", "/")
