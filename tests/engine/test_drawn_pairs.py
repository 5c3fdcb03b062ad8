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
    """Codes 0 and 1 exclude each other, 2 and 3 mostly come together, all others by themselves."""
    rng = np.random.default_rng(0)
    x = rng.random((n, CODES)) < 0.3
    x[:, 1] &= ~x[:, 0]
    x[:, 3] = np.where(rng.random(n) < 0.8, x[:, 2], x[:, 3])
    return Records.from_dense(x.astype(np.uint8))


def untrained(train: Records, pairwise: bool = True) -> D3PMGenerator:
    """Draws every code by itself."""
    denoiser = SparseConfig(width=16, blocks=1, pairwise=pairwise)
    config = D3PMConfig(denoiser=denoiser, training=TrainingConfig(epochs=1))
    return D3PMGenerator.prepare(FitRequest(train, None, config))[0]


def together(cohort: Records) -> np.ndarray:
    return pair_counts(cohort, None) / len(cohort)


def moved(real: list[list[float]], n_real: int, drawn: list[list[float]], n_drawn: int) -> np.ndarray:
    one, other = (np.array(each, dtype=np.float32) for each in (real, drawn))
    return pairs.shifts(one, n_real, other, n_drawn)


def test_chance_moves_nothing_and_more_than_chance_does() -> None:
    real = [[1_000.0, 50.0], [50.0, 500.0]]
    assert not moved(real, 10_000, [[503.0, 28.0], [28.0, 253.0]], 5_000).any()
    shift = moved(real, 10_000, [[1_000.0, 200.0], [200.0, 500.0]], 10_000)
    assert -2 < shift[1, 0] < shift[0, 1] < -1 and shift[0, 0] == shift[1, 1] == 0
    small = moved([[9_000.0, 3_000.0], [3_000.0, 9_000.0]], 30_000, [[9_000.0, 2_600.0], [2_600.0, 9_000.0]], 30_000)
    assert not small.any()  # certain, but what blocks leave behind
    assert moved([[2_000.0]], 10**7, [[8.0]], 50_000) == 0  # ten were to be expected


def test_what_most_of_a_few_patients_have_is_certain() -> None:
    """41 of 50 who had a rare disease had its drug; of 49 who were drawn one has it. And none of 50 had another."""
    shift = moved([[50.0, 41.0], [41.0, 46.0]], 57_000, [[49.0, 1.0], [1.0, 36.0]], 57_000)
    assert (shift[[0, 1], [1, 0]] > 4).all()
    shift = moved([[50.0, 0.0], [0.0, 900.0]], 57_000, [[50.0, 14.0], [14.0, 900.0]], 57_000)
    assert (shift[[0, 1], [1, 0]] < -3).all()


def test_a_link_is_not_moved_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a link does not help, because its codes are drawn side by side."""
    monkeypatch.setattr(pairs, "FEWEST", 1_000)
    train = records(1_200)
    generator = untrained(train)
    monkeypatch.setattr(pairs, "shifts", lambda real, *_: np.full_like(real, 5.0))
    before = generator.denoiser.state_dict()["pairwise.weight"].clone()
    pairs.calibrate_pairs(generator, FewPatients.of(train, torch.device("cpu")), seed=0)
    moved = generator.denoiser.state_dict()["pairwise.weight"] - before
    assert float(moved.max()) == pytest.approx(pairs.FARTHEST)


def test_a_rare_disease_gets_its_drug_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "FEWEST", 1_000)
    rng = np.random.default_rng(1)
    x = rng.random((4_000, CODES)) < 0.3
    x[:, 6] = rng.random(4_000) < 0.015
    x[:, 7] = np.where(x[:, 6], rng.random(4_000) < 0.9, rng.random(4_000) < 0.002)
    train = Records.from_dense(x.astype(np.uint8))
    generator = untrained(train)

    def share() -> float:
        both = pair_counts(generator.sample(SampleRequest(8_000, seed=5)), None)
        return float(both[6, 7] / both[6, 6])

    before = share()
    pairs.calibrate_pairs(generator, FewPatients.of(train, torch.device("cpu")), seed=0)
    assert before < 0.1 and share() > 0.3


def test_drawn_pairs_become_as_common_as_real_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "FEWEST", 1_000)
    train = records()
    generator, wanted = untrained(train), together(train)
    before = together(generator.sample(SampleRequest(3_000, seed=5)))
    pairs.calibrate_pairs(generator, FewPatients.of(train, torch.device("cpu")), seed=0)
    after = together(generator.sample(SampleRequest(3_000, seed=5)))
    for one, other in ((0, 1), (2, 3)):
        # a third to three fifths of the difference is left, depending on the seed
        assert abs(after[one, other] - wanted[one, other]) < 0.7 * abs(before[one, other] - wanted[one, other])
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
