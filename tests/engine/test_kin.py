"""Codes are learned of together with their kin; afterwards every code's row stands alone."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load, save

from ehr.codes.families import families
from ehr.generators.d3pm import SparseConfig
from ehr.records import Records
from worker.engine.checkpoints import Checkpoint
from worker.engine.denoisers import SparseDenoiser
from worker.engine.denoisers.kin import NOBODY, Kin
from worker.engine.generators import FitRequest
from worker.engine.generators.d3pm import D3PMGenerator
from worker.engine.noise import HIDDEN, AbsorbingNoise
from worker.engine.population import simulated_population
from worker.engine.training import Hooks

SETTINGS: dict[str, Any] = {
    "timesteps": 100,
    "denoiser": {"kind": "sparse", "width": 32, "blocks": 1, "common_codes": 16},
    "drawing_width": None,
    "calibration_rounds": 0,
    "training": {"epochs": 3, "batch_size": 100, "warmup_steps": 5, "restrain_rare": False, "checkpoint_every": 2},
}
POPULATION = simulated_population()
KIN = families(POPULATION.vocabulary)


def fit(kin: NDArray[np.int64] | None = KIN, settings: dict[str, Any] = SETTINGS, **more: Any) -> D3PMGenerator:
    train = POPULATION.sample(350, np.random.default_rng(0))
    return D3PMGenerator.fit(FitRequest(train, None, settings, seed=3, families=kin, **more))


def same(a: D3PMGenerator, b: D3PMGenerator) -> bool:
    ours, theirs = a.state().tensors, b.state().tensors
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_family_is_several_codes_but_not_all() -> None:
    codes = ["ICD9DX:250", "ICD9DX:251", "ICD9DX:278", "ICD9DX:300", "SNOMED:1"]
    kin = Kin(torch.from_numpy(families(codes)), 3)
    system, one, two, three = kin.families.T.tolist()
    assert system[0] == system[3] != NOBODY == system[4]
    assert one[0] == one[2] != system[0] and one[3] == NOBODY
    assert two[0] == two[1] != NOBODY == two[2] and three == [NOBODY] * 5
    with torch.no_grad():
        kin.out.copy_(torch.arange(len(kin.out)).unsqueeze(1).expand(-1, 3))
    assert kin.rows(kin.out)[:, 0].tolist() == [system[0] + one[0] + two[0]] * 2 + [system[0] + one[0], system[0], 0]


@torch.no_grad()
def test_rows_that_have_taken_in_their_kin_say_the_same() -> None:
    n, generator = 30, torch.Generator().manual_seed(0)
    prevalence = torch.rand(n, generator=generator) * 0.3
    noise = AbsorbingNoise.create(prevalence, 100)
    network = SparseDenoiser(noise, prevalence, torch.full((n,), 1 / n), SparseConfig(width=16)).eval()
    network.lean_on(torch.arange(n).expand(2, -1) // torch.tensor([[10], [3]]))
    for weight in network.parameters():
        torch.nn.init.normal_(weight, std=0.3, generator=generator)
    assert network.kin is not None
    for table in (network.kin.present, network.kin.out):
        table[NOBODY] = 0
    x = torch.randint(0, HIDDEN + 1, (12, n), generator=generator).to(torch.uint8)
    t, size = torch.full((12,), 50), (x == 1).sum(1) + 3
    said, weights = network(x, t, size), dict(network.named_parameters())
    taken = network.kin.taken_in(weights)
    for name, value in taken.items():
        weights[name].copy_(value)
    torch.testing.assert_close(network(x, t, size), said)
    network.stand_alone()
    torch.testing.assert_close(network(x, t, size), said)
    read, hidden = network.reading(x, size).logits(torch.arange(n)), x == HIDDEN
    torch.testing.assert_close(read[hidden], said[hidden], atol=1e-4, rtol=1e-4)


def test_nothing_of_families_is_stored_and_a_stopped_training_goes_on() -> None:
    kept: list[Checkpoint] = []
    whole = fit(hooks=Hooks(on_checkpoint=kept.append))
    assert not [name for name in whole.state().tensors if "kin" in name]
    assert not same(whole, fit(kin=None))
    middle = next(each for each in kept if each.values["step"] % 3)  # three batches make an epoch
    stored = Checkpoint(load(save(middle.tensors)), middle.values)
    assert bool(stored.under("weights")["kin.present"].any())
    assert same(whole, fit(checkpoint=stored))


def test_a_training_that_began_without_kin_goes_on_without() -> None:
    """One of an earlier version, in the midst of a deploy."""
    kept: list[Checkpoint] = []
    whole = fit(kin=None, hooks=Hooks(on_checkpoint=kept.append))
    assert same(whole, fit(checkpoint=kept[1]))


@pytest.mark.parametrize("restrained", [False, True])
def test_a_rare_code_goes_with_what_its_kin_go_with(restrained: bool) -> None:
    """Each of twenty rare codes has five patients, all of whom have a third code; so have all of their kin."""
    rng, rare = np.random.default_rng(0), 20
    x = rng.random((2000, rare + 3)) < 0.1
    x[:, :rare] = False
    x[np.arange(100), np.arange(100) % rare] = True
    x[:, rare] = np.arange(2000) < 100
    codes = [f"ICD10CM:E{10 + n}" for n in range(rare)] + ["ICD10CM:Z00", "RXNORM:1", "RXNORM:2"]
    records = Records.from_dense(x[rng.permutation(2000)])
    training = SETTINGS["training"] | {"epochs": 12, "restrain_rare": restrained}
    says = []
    for kin in (None, families(codes)):
        request = FitRequest(records, None, SETTINGS | {"training": training}, families=kin)
        generator = D3PMGenerator.fit(request)
        given = generator.denoiser.given_each(torch.arange(rare + 3))
        assert given is not None
        says.append(float(given[:rare, rare].mean()))
    print(says)
    assert says[1] > says[0] + 0.1
