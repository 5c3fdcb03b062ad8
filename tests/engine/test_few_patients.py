"""What few patients have taught is restrained: laws of the rows, and that nothing else changes."""

import numpy as np
import pytest
import torch

from ehr.codes.families import families
from ehr.generators.d3pm import PRESETS, D3PMConfig, SparseConfig, TrainingConfig
from ehr.records import Records
from worker.engine.denoisers.few_patients import FewPatients
from worker.engine.generators import FitRequest, State
from worker.engine.generators.d3pm import D3PMGenerator
from worker.engine.generators.restraint import restrain

RARE = 3  # code that two patients have


def records() -> Records:
    rng = np.random.default_rng(0)
    sets = [[code for code in (0, 1, 2, 4) if rng.random() < 0.5] for _ in range(400)]
    return Records.from_sets([*sets, [0, RARE], [1, RARE]], 5)


def few() -> FewPatients:
    return FewPatients.of(records(), torch.device("cpu"))


def test_a_rare_row_lies_in_the_first_direction_of_common_ones_and_common_rows_stay() -> None:
    table = torch.randn(5, 6, generator=torch.Generator().manual_seed(1))
    kept = few().outputs(table, 40)
    counts = few().counts.double().unsqueeze(1)
    first = torch.linalg.svd(table.double() * counts.sqrt())[2][0]
    own = kept[RARE].double() - first * (kept[RARE].double() @ first)
    assert own.norm() < 1e-5 and kept[RARE].norm() > 1e-3  # two patients pay for one direction
    common = few().counts >= 80
    assert torch.equal(kept[common], table[common])


def test_the_more_patients_a_code_has_the_more_of_its_own_it_keeps() -> None:
    table = torch.randn(5, 6, generator=torch.Generator().manual_seed(1))
    counts = torch.tensor([400.0, 400.0, 400.0, 30.0, 400.0])
    some = FewPatients(counts, torch.zeros(5, 5), torch.zeros(5, 5), len(records()), records())
    away = [float((some.outputs(table, restraint)[RARE] - table[RARE]).norm()) for restraint in (40, 25, 20, 15)]
    assert away == sorted(away, reverse=True) and away[1] < away[0] and away[-1] == 0


def test_a_link_counts_as_far_as_patients_have_both_codes() -> None:
    kept = few().links(torch.ones(5, 5))
    assert kept[0, RARE] < 0.01 < 0.8 < kept[0, 1] < 1
    assert torch.equal(kept, kept.T)


def test_training_restrains_by_default_and_older_settings_stay_readable() -> None:
    assert PRESETS["best"].training.restrain_rare and PRESETS["fast"].training.restrain_rare
    train = records()
    small = D3PMConfig(denoiser=SparseConfig(width=16, blocks=1), training=TrainingConfig(epochs=1), drawing_width=None)
    generator = D3PMGenerator.fit(FitRequest(train, train.take(range(100)), small))
    state = generator.state()
    older = {name: value for name, value in state.config["settings"]["training"].items() if name != "restrain_rare"}
    settings = state.config["settings"] | {"training": older}
    assert D3PMGenerator.from_state(State(state.tensors, state.config | {"settings": settings})).config == small


def test_restraint_takes_from_members_not_from_held_out_records() -> None:
    x = np.random.default_rng(3).random((2_000, 60)) < np.geomspace(0.4, 0.02, 60)
    drawn = Records.from_dense(x.astype(np.uint8))
    train, holdout, test = (drawn.take(range(*part)) for part in ((0, 300), (300, 1_000), (1_000, 2_000)))
    config = D3PMConfig(
        denoiser=SparseConfig(width=64, blocks=1, dropout=0.0, input_dropout=0.0),
        training=TrainingConfig(epochs=60, restrain_rare=False, patience=None),
    )
    generator = D3PMGenerator.fit(FitRequest(train, None, config))
    before = [generator.held_out_elbo(each).value for each in (train, test)]
    assert restrain(generator, train, holdout) is not None
    after = [generator.held_out_elbo(each).value for each in (train, test)]
    assert after[0] > before[0]  # training records surprise it more,
    assert after[1] <= before[1] * 1.002  # others do not


@pytest.mark.parametrize("noise", ["uniform", "absorbing"])
def test_every_noise_can_be_trained_with_restraint(noise: str) -> None:
    train = records()
    small = D3PMConfig(
        noise=noise, denoiser=SparseConfig(width=16, blocks=1), training=TrainingConfig(epochs=1), timesteps=20
    )
    assert D3PMGenerator.fit(FitRequest(train, None, small)).state().tensors


def test_a_rare_row_begins_with_what_its_family_says() -> None:
    table = torch.randn(5, 6, generator=torch.Generator().manual_seed(1))
    table[[0, 1]] += 5.0  # kin of the rare code, both common
    kin = families(["ICD10CM:E10", "ICD10CM:E11", "ICD10CM:J44", "ICD10CM:E84", "RXNORM:1"])
    expected = FewPatients.of(records(), torch.device("cpu"), families=kin).usual(table.double(), 40)
    assert expected[RARE].mean() > 3 and expected[RARE].mean() > expected[4].mean()
    other = table.clone()
    other[RARE] += 100.0  # what two patients have taught is no part of it
    assert torch.equal(FewPatients.of(records(), torch.device("cpu"), families=kin).usual(other.double(), 40), expected)
    assert torch.equal(few().usual(table.double(), 40), torch.zeros(5, 6, dtype=torch.float64))


def test_families_share_what_codes_begin_with_where_that_means_something() -> None:
    system, one, two, three = families(["ICD9DX:250", "ICD9DX:251", "ICD9DX:278", "ICD9PX:25", "SNOMED:250", "HTN"])
    assert system.tolist() == [0, 0, 0, 1, 2, 3] == one.tolist()
    assert two.tolist() == [0, 0, 1, 2, 3, 4]
    assert len(set(three[[0, 1, 2]].tolist())) == 3 and three[4] != three[0]
    assert families([]).shape == (4, 0)
