"""Pairs of codes in drawn records: what differs by more than chance is moved, and nothing else."""

import numpy as np
import pytest
import torch

from ehr.errors import TrainingStopped
from ehr.generators.d3pm import D3PMConfig, SparseConfig, TrainingConfig
from ehr.records import Records
from worker.engine.denoisers.few_patients import FewPatients, pair_counts
from worker.engine.generators import FitRequest, SampleRequest
from worker.engine.generators import drawn_pairs as pairs
from worker.engine.generators.d3pm import D3PMGenerator
from worker.engine.training import Hooks

CODES = 8


def records(n: int = 4_000) -> Records:
    """Codes 0 and 1 exclude each other, 2 and 3 often come together, all others by themselves."""
    rng = np.random.default_rng(0)
    x = rng.random((n, CODES)) < 0.3
    x[:, 1] &= ~x[:, 0]
    x[:, 3] = np.where(rng.random(n) < 0.3, x[:, 2], x[:, 3])
    return Records.from_dense(x.astype(np.uint8))


def untrained(train: Records, pairwise: bool = True) -> D3PMGenerator:
    """Draws every code by itself."""
    denoiser = SparseConfig(width=16, blocks=1, pairwise=pairwise)
    config = D3PMConfig(denoiser=denoiser, training=TrainingConfig(epochs=1))
    return D3PMGenerator.prepare(FitRequest(train, None, config))[0]


def together(cohort: Records) -> np.ndarray:
    return pair_counts(cohort, None) / len(cohort)


def test_chance_moves_nothing_and_more_than_chance_does() -> None:
    real = np.array([[1_000.0, 50.0], [50.0, 500.0]])
    assert not pairs.shifts(real, 10_000, real / 2 + 3, 5_000).any()
    drawn = np.array([[1_000.0, 200.0], [200.0, 500.0]])
    moved = pairs.shifts(real, 10_000, drawn, 10_000)
    assert -2 < moved[0, 1] == moved[1, 0] < -1 and moved[0, 0] == moved[1, 1] == 0
    never = pairs.shifts(np.zeros((1, 1)), 10**6, np.full((1, 1), 10_000.0), 10**4)
    assert never[0, 0] == -pairs.FARTHEST
    few_drawn = pairs.shifts(np.full((1, 1), 2_000.0), 10**7, np.full((1, 1), 8.0), 50_000)
    assert few_drawn[0, 0] == 0  # ten were to be expected


def test_drawn_pairs_become_as_common_as_real_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "FEWEST", 1_000)
    train = records()
    generator, wanted = untrained(train), together(train)
    before = together(generator.sample(SampleRequest(3_000, seed=5)))
    pairs.calibrate_pairs(generator, FewPatients.of(train, torch.device("cpu")), seed=0)
    after = together(generator.sample(SampleRequest(3_000, seed=5)))
    for one, other in ((0, 1), (2, 3)):
        assert abs(after[one, other] - wanted[one, other]) < 0.4 * abs(before[one, other] - wanted[one, other])
    assert np.abs(after.diagonal() - wanted.diagonal()).max() < 0.05


def test_few_records_or_no_links_leave_the_network_as_it_is() -> None:
    train = records(1_000)
    for n, pairwise in ((1_000, True), (10_000, False)):
        generator = untrained(train, pairwise)
        before = {name: weight.clone() for name, weight in generator.denoiser.state_dict().items()}
        few = FewPatients.of(train, torch.device("cpu"))
        few = FewPatients(few.counts, few.seen, few.together, n, few.some)
        pairs.calibrate_pairs(generator, few, seed=0)
        assert all(torch.equal(weight, before[name]) for name, weight in generator.denoiser.state_dict().items())


def test_a_training_can_be_stopped_while_pairs_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "FEWEST", 1_000)
    train = records(1_200)
    few = FewPatients.of(train, torch.device("cpu"))
    with pytest.raises(TrainingStopped):
        pairs.calibrate_pairs(untrained(train), few, 0, Hooks(should_stop=lambda: True))
    told: list[tuple[int, int]] = []
    generator = untrained(train)
    pairs.calibrate_pairs(generator, few, 0, Hooks(on_calibration=lambda drawn, of: told.append((drawn, of))))
    in_all = generator.config.calibration_rounds * 1_200
    assert told == sorted(told) and told[-1] == (in_all, in_all) and {of for _, of in told} == {in_all}
