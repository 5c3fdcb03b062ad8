"""Training: it learns, it resumes bit for bit, it runs in several processes, and it says what went wrong."""

import json
import math
import os
import socket
from datetime import timedelta

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors.torch import load, save

from ehr.errors import ConfigError, DataError, StateError, TrainingError, TrainingStopped
from ehr.records import Records
from worker.engine.checkpoints import Checkpoint
from worker.engine.generators import FitRequest
from worker.engine.generators.d3pm import D3PMGenerator
from worker.engine.generators.independent import IndependentGenerator
from worker.engine.population import simulated_population
from worker.engine.training import Hooks, TrainingRun, devices
from worker.engine.training.d3pm import D3PMLearner
from worker.engine.training.d3pm import Objective as D3PMObjective
from worker.failures import reason_and_detail

SMALL = {"kind": "sparse", "width": 32, "blocks": 1, "common_codes": 16, "dropout": 0.1}


def population(n: int, seed: int = 0) -> Records:
    return simulated_population().sample(n, np.random.default_rng(seed))


def settings(**training: object) -> dict[str, object]:
    defaults = {"batch_size": 100, "warmup_steps": 5, "evaluate_every": 1}
    return {"timesteps": 100, "denoiser": SMALL, "training": defaults | training}


@pytest.mark.parametrize("noise", ["uniform", "marginal", "absorbing"])
@pytest.mark.parametrize("schedule", ["cosine", "exponential"])
def test_ten_epochs_equal_four_then_six(noise: str, schedule: str) -> None:
    """A run that is stopped and resumed ends in the same weights, bit for bit, whatever the noise."""
    train, holdout = population(400), population(100, seed=1)
    request = {"noise": noise, **settings(epochs=10, schedule=schedule)}
    whole = D3PMGenerator.fit(FitRequest(train, holdout, request, seed=3))

    kept: list[Checkpoint] = []
    steps = iter(range(1, 4 * 4))  # four batches make an epoch
    hooks = Hooks(on_checkpoint=kept.append, should_stop=lambda: next(steps, None) is None)
    with pytest.raises(TrainingStopped):
        D3PMGenerator.fit(FitRequest(train, holdout, request, seed=3, hooks=hooks))
    assert kept[-1].values["step"] == 16
    stored = Checkpoint(load(save(kept[-1].tensors)), kept[-1].values)  # safetensors sorts by name
    resumed = D3PMGenerator.fit(FitRequest(train, holdout, request, seed=3, checkpoint=stored))
    for name, tensor in whole.state().tensors.items():
        assert torch.equal(tensor, resumed.state().tensors[name]), name
    assert whole.curve == resumed.curve


def test_resuming_in_the_middle_of_an_epoch_changes_nothing() -> None:
    train = population(350)
    request = settings(epochs=3, checkpoint_every=2)
    whole = D3PMGenerator.fit(FitRequest(train, None, request))
    kept: list[Checkpoint] = []
    D3PMGenerator.fit(FitRequest(train, None, request, hooks=Hooks(on_checkpoint=kept.append)))
    middle = next(c for c in kept if c.values["step"] % 3)  # three batches make an epoch
    resumed = D3PMGenerator.fit(FitRequest(train, None, request, checkpoint=middle))
    for name, tensor in whole.state().tensors.items():
        assert torch.equal(tensor, resumed.state().tensors[name]), name


def test_resuming_where_patience_has_ended_goes_on_to_settle() -> None:
    """The last checkpoint before training settles is as good as no interruption."""
    train, holdout = population(100), population(300, seed=1)
    request = settings(epochs=25, batch_size=50, learning_rate=5e-2, patience=2, ema_decay=0.5)
    kept: list[Checkpoint] = []
    whole = D3PMGenerator.fit(FitRequest(train, holdout, request, hooks=Hooks(on_checkpoint=kept.append)))
    steps = [checkpoint.values["step"] for checkpoint in kept]
    last = next(number for number, step in enumerate(steps[:-1]) if steps[number + 1] > step + 2)  # then it jumps
    resumed = D3PMGenerator.fit(FitRequest(train, holdout, request, checkpoint=kept[last]))
    assert whole.curve == resumed.curve
    for name, tensor in whole.state().tensors.items():
        assert torch.equal(tensor, resumed.state().tensors[name]), name


def test_the_order_of_a_checkpoints_tensors_does_not_matter() -> None:
    """A file format may sort them by name; resuming goes by name, too."""
    train = population(300)
    kept: list[Checkpoint] = []
    whole = D3PMGenerator.fit(FitRequest(train, None, settings(epochs=3), hooks=Hooks(on_checkpoint=kept.append)))
    shuffled = Checkpoint(dict(sorted(kept[0].tensors.items(), reverse=True)), kept[0].values)
    resumed = D3PMGenerator.fit(FitRequest(train, None, settings(epochs=3), checkpoint=shuffled))
    for name, tensor in whole.state().tensors.items():
        assert torch.equal(tensor, resumed.state().tensors[name]), name


def test_a_checkpoint_is_plain_tensors_and_json() -> None:
    kept: list[Checkpoint] = []
    D3PMGenerator.fit(FitRequest(population(200), None, settings(epochs=1), hooks=Hooks(on_checkpoint=kept.append)))
    loaded = load(save(kept[-1].tensors))
    assert set(loaded) == set(kept[-1].tensors)
    assert json.loads(json.dumps(kept[-1].values)) == kept[-1].values


def test_training_leaves_the_callers_random_numbers_alone() -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    D3PMGenerator.fit(FitRequest(population(200), None, settings(epochs=1)))
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("noise", ["marginal", "absorbing"])
def test_training_beats_independent_codes_on_held_out_records(noise: str) -> None:
    train, holdout, test = population(4000), population(300, seed=1), population(1500, seed=2)
    request = {"noise": noise, **settings(epochs=12, learning_rate=5e-3, evaluate_every=4)}
    generator = D3PMGenerator.fit(FitRequest(train, holdout, request))
    elbo = generator.held_out_elbo(test)
    independent = IndependentGenerator.fit(FitRequest(train)).log_loss()(test)[0]
    assert elbo.value < independent - 1.0
    assert generator.curve[-1]["held_out"] < generator.curve[0]["held_out"]


def test_products_are_short_numbers_where_the_cpu_multiplies_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is learned is as good; drawing and held-out losses stay in float32, so that all CPUs say the same."""
    train, test, value = population(1_000), population(500, seed=1), {}
    for able in (True, False):
        monkeypatch.setattr(devices, "multiplies_bfloat16", lambda able=able: able)
        seen = []
        forward = D3PMObjective.forward

        def watched(self, batch, forward=forward, seen=seen):  # type: ignore[no-untyped-def]
            seen.append(torch.is_autocast_enabled("cpu"))
            return forward(self, batch)

        with monkeypatch.context() as patch:
            patch.setattr(D3PMObjective, "forward", watched)
            generator = D3PMGenerator.fit(FitRequest(train, None, settings(epochs=6)))
        assert set(seen) == {able}
        assert all(weight.dtype == torch.float32 for weight in generator.denoiser.parameters())
        value[able] = generator.held_out_elbo(test).value
    assert abs(value[True] - value[False]) < 0.1


def test_early_stopping_keeps_the_best_weights() -> None:
    """Few records and many epochs overfit: training stops early and the best epoch's weights are what is kept."""
    train, holdout = population(150), population(500, seed=1)
    request = {
        "timesteps": 100,
        "denoiser": {"kind": "sparse", "width": 64, "blocks": 1},
        "training": {
            "epochs": 200,
            "batch_size": 50,
            "learning_rate": 1e-2,
            "patience": 5,
            "evaluate_every": 1,
            "ema_decay": 0.5,
            "restrain_rare": False,
        },
    }
    generator = D3PMGenerator.fit(FitRequest(train, holdout, request))
    epochs, values = (np.array([point[name] for point in generator.curve]) for name in ("epoch", "held_out"))
    settling = epochs > 184  # the last 8 %
    assert settling.sum() == 16
    stopped = values[~settling]
    assert len(stopped) < 100
    assert len(stopped) - 1 - int(np.argmin(stopped)) == 5
    kept = generator.held_out_elbo(holdout, seed=0, draws=2).value
    assert kept == pytest.approx(values.min(), rel=1e-6)


def test_training_settles_without_dropout_at_a_low_rate() -> None:
    seen: list[tuple[bool, float]] = []

    class Watched(D3PMLearner):
        def step(self, batch: Records, run: TrainingRun) -> float:
            loss = super().step(batch, run)
            seen.append((self.denoiser.training, self.optimiser.param_groups[0]["lr"]))
            return loss

    request = FitRequest(population(200), None, {"denoiser": SMALL, "training": {"epochs": 20, "batch_size": 100}})
    generator, _ = D3PMGenerator.prepare(request)
    config = generator.config.training
    learner = Watched(generator.denoiser, generator.noise, config, generator.device)
    TrainingRun(learner, request.train, learner.plan(200), 0, Hooks()).to_the_end()
    dropout, rates = zip(*seen, strict=True)
    assert dropout == (True,) * 36 + (False,) * 4  # 2 of 20 epochs of 2 steps
    assert max(rates[36:]) == pytest.approx(0.05 * config.learning_rate)
    assert list(rates[36:]) == sorted(rates[36:], reverse=True)


# --- several processes ---


def _train_in_process(rank: int, world: int, port: int, batch_size: int, out: str) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=120))
    generator = D3PMGenerator.fit(FitRequest(population(600), population(200, seed=1), _ddp_settings(batch_size)))
    if rank == 0:
        np.save(out, [point["held_out"] for point in generator.curve])
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # on a busy machine, gloo's threads abort a process that takes its time to end


def _ddp_settings(batch_size: int) -> dict[str, object]:
    denoiser = SMALL | {"dropout": 0.0, "input_dropout": 0.0}  # dropout differs between processes
    training = {"epochs": 5, "batch_size": batch_size, "evaluate_every": 1, "warmup_steps": 5}
    return {"timesteps": 100, "denoiser": denoiser, "training": training}


def test_two_processes_follow_the_path_of_one(tmp_path: object) -> None:
    """Two gloo processes with half the batch each reach the loss of one process with the whole batch."""
    alone = D3PMGenerator.fit(FitRequest(population(600), population(200, seed=1), _ddp_settings(100)))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    out = f"{tmp_path}/curve.npy"
    mp.spawn(_train_in_process, args=(2, port, 100, out), nprocs=2)
    together = np.load(out)
    expected = [point["held_out"] for point in alone.curve]
    assert expected[-1] < expected[0] - 0.05  # it did learn
    np.testing.assert_allclose(together, expected, rtol=1e-4)


def test_memory_that_is_not_there_is_told_apart() -> None:
    with pytest.raises(RuntimeError) as refused:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert reason_and_detail(refused.value)[0] == "out-of-memory"
    assert reason_and_detail(torch.OutOfMemoryError("CUDA out of memory"))[0] == "out-of-memory"
    assert reason_and_detail(MemoryError())[0] == "out-of-memory"
    assert reason_and_detail(RuntimeError("the patient's code"))[0] == "internal"


# --- bad input ---


def test_bad_input_is_refused_with_what_is_allowed() -> None:
    empty = Records.from_sets([], 5)
    with pytest.raises(DataError, match="nothing to learn from"):
        D3PMGenerator.fit(FitRequest(empty))
    with pytest.raises(DataError, match="nothing to learn from"):
        D3PMGenerator.fit(FitRequest(Records.from_sets([[], []], 5)))
    with pytest.raises(DataError, match="held-out records 4"):
        D3PMGenerator.fit(FitRequest(population(50), Records.from_sets([[1]], 4)))
    with pytest.raises(ConfigError, match="epochs"):
        D3PMGenerator.fit(FitRequest(population(50), None, {"training": {"epochs": 0}}))
    with pytest.raises(ConfigError, match="nonsense"):
        D3PMGenerator.fit(FitRequest(population(50), None, {"nonsense": 1}))


def test_a_loss_that_is_not_a_number_stops_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.engine.training.denoisers.learning_rate", lambda config, run: 1e30)
    request = settings(epochs=5, gradient_clip=None, warmup_steps=0)
    with pytest.raises(TrainingError, match="lower learning_rate"):
        D3PMGenerator.fit(FitRequest(population(300), None, request))


def test_a_checkpoint_of_another_run_is_refused() -> None:
    kept: list[Checkpoint] = []
    train = population(200)
    D3PMGenerator.fit(FitRequest(train, None, settings(epochs=1), hooks=Hooks(on_checkpoint=kept.append)))
    with pytest.raises(StateError, match="seed"):
        D3PMGenerator.fit(FitRequest(train, None, settings(epochs=2), seed=9, checkpoint=kept[-1]))
    other = {"denoiser": SMALL | {"width": 48}, "timesteps": 100}
    with pytest.raises(StateError, match="another network"):
        D3PMGenerator.fit(FitRequest(train, None, other, checkpoint=kept[-1]))


def test_progress_counts_every_batch() -> None:
    seen = []
    D3PMGenerator.fit(FitRequest(population(300), None, settings(epochs=2), hooks=Hooks(on_progress=seen.append)))
    assert [p.step for p in seen] == [1, 2, 3, 4, 5, 6]
    assert {p.total_steps for p in seen} == {6}
    assert [p.epoch for p in seen] == [1, 1, 1, 2, 2, 2]
    assert all(math.isfinite(p.loss) for p in seen)


@pytest.mark.parametrize(("records", "steps"), [(40, 1), (640, 10), (10_000, 50)])
def test_few_records_get_small_batches_unless_told_otherwise(records: int, steps: int) -> None:
    """A thousand records in batches of a thousand would be one step an epoch, and nothing would be learned."""
    seen = []
    request = {"timesteps": 20, "denoiser": SMALL, "training": {"epochs": 1}, "calibration_rounds": 0}
    D3PMGenerator.fit(FitRequest(population(records), None, request, hooks=Hooks(on_progress=seen.append)))
    assert seen[-1].total_steps == steps
