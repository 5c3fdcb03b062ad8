"""The published GANs: their sizes are the published ones, who trains when, and what they refuse. What they learn is in
test_generators.py."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ehr.conditions import Condition
from ehr.errors import ConditionError, ConfigError, DataError, TrainingError
from ehr.generators import GENERATORS, GeneratorSpec
from ehr.generators.baseline import BaselineConfig
from ehr.generators.emr_wgan import EmrWganConfig
from ehr.generators.med_wgan import MedWganConfig
from tests.engine.test_generators import population
from worker.engine.generators import FitRequest, SampleRequest, generator_named
from worker.engine.generators.baselines.base import Baseline
from worker.engine.generators.baselines.emr_wgan import EmrWgan
from worker.engine.generators.baselines.med_wgan import MeanCritic, MedWgan
from worker.engine.generators.baselines.wgan import Wgan, gradient_penalty

TINY: dict[str, Any] = {"epochs": 2, "batch_size": 50, "noise_width": 8}


def briefly(name: str) -> Baseline:
    """Trained for a few steps, in a few small layers."""
    kind = generator_named(name)
    assert issubclass(kind, Baseline)
    settings = TINY | ({"width": 8, "layers": 2} if name == "emr-wgan" else {"critic_widths": [16, 8]})
    return kind.fit(FitRequest(population(200), None, settings))


def test_every_baseline_has_settings_that_need_no_mathematics() -> None:
    published = [spec for spec in GENERATORS if spec.settings is not None and issubclass(spec.settings, BaselineConfig)]
    assert [spec.name for spec in published] == ["med-wgan", "emr-wgan", "tabddpm", "ehrdiff", "tabsyn"]
    for spec in published:
        kind = generator_named(spec.name)
        assert issubclass(kind, Baseline) and kind.spec is spec


# --- how they train ---


def test_medwgans_autoencoder_learns_first_and_alone() -> None:
    settings = TINY | {"epochs": 4, "pretrain_share": 0.75, "pretrain_batch_size": 10}
    curve = MedWgan.fit(FitRequest(population(200), None, settings)).curve
    assert curve[0]["loss"] > curve[1]["loss"] > curve[2]["loss"]
    made = MedWgan(MedWganConfig(**settings), 367)
    before = weights_of(made)
    made.train_step(torch.from_numpy(population(50).to_dense()), made.optimisers(), 0, 10, torch.Generator())
    assert changed_parts(made, before) == {"encoder", "decoder"}


@pytest.mark.parametrize("cls", [MedWgan, EmrWgan])
def test_the_generator_steps_after_every_few_critic_steps(cls: type[Wgan]) -> None:
    settings = TINY | ({"pretrain_share": 0.1} if cls is MedWgan else {"width": 8, "layers": 2}) | {"critic_steps": 3}
    made = cls(cls.settings_of(settings), 367)
    x, optimisers, generator = torch.from_numpy(population(50).to_dense()), made.optimisers(), torch.Generator()
    steps = []
    for step in range(3, 9):
        before = weights_of(made)
        made.train_step(x, optimisers, step, 10, generator)
        steps.append("generator" in changed_parts(made, before))
    assert steps == [False, False, True, False, False, True]


def weights_of(made: Baseline) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in made.network.named_parameters()}


def changed_parts(made: Baseline, before: dict[str, Tensor]) -> set[str]:
    """The parts of the network with weights that differ from those before."""
    return {
        name.split(".")[0] for name, weight in made.network.named_parameters() if not torch.equal(weight, before[name])
    }


def test_averaged_weights_are_kept() -> None:
    settings = TINY | {"width": 8, "layers": 2, "learning_rate": 1e-2}
    last, newest, averaged = (
        EmrWgan.fit(FitRequest(population(200), None, settings | {"ema_decay": decay})).state().tensors
        for decay in (None, 0.0, 0.9)
    )
    assert all(torch.equal(last[name], newest[name]) for name in last)
    assert not torch.equal(last["generator.0.0.weight"], averaged["generator.0.0.weight"])


# --- their sizes and settings are the published ones ---

N = 1000


def layers(part: nn.Module) -> list[tuple[int, int]]:
    return [(layer.in_features, layer.out_features) for layer in part.modules() if isinstance(layer, nn.Linear)]


def weights(part: nn.Module) -> int:
    return sum(weight.numel() for weight in part.parameters())


def test_medwgan_has_its_published_size() -> None:
    network = MedWgan(MedWganConfig(), N).network
    assert layers(network.encoder) == [(N, 128)] and layers(network.decoder) == [(128, N)]
    assert layers(network.generator) == [(128, 128)] * 3
    assert layers(network.critic) == [(2 * N, 256), (256, 128), (128, 1)]
    assert weights(network.generator) == 3 * (128 * 128 + 2 * 128)  # without biases, with scale and shift of batch norm
    assert weights(network.critic) == 545_281
    assert (weights(network.encoder), weights(network.decoder)) == (128_128, 129_000)


def test_emrwgan_has_its_published_size() -> None:
    network = EmrWgan(EmrWganConfig(), N).network
    assert layers(network.generator) == [(128, 384)] + [(384, 384)] * 5 + [(384, N)]
    assert layers(network.critic) == [(N, 384)] + [(384, 384)] * 5 + [(384, 1)]
    assert sum(isinstance(layer, nn.BatchNorm1d) for layer in network.generator.modules()) == 6
    assert sum(isinstance(layer, nn.LayerNorm) for layer in network.critic.modules()) == 6
    assert (weights(network.generator), weights(network.critic)) == (1_178_344, 1_128_577)


def test_the_defaults_are_the_published_ones() -> None:
    med, emr = MedWganConfig(), EmrWganConfig()
    for config in (med, emr):
        assert (config.critic_steps, config.penalty, config.binarise) == (2, 10.0, "round")
    assert (med.learning_rate, med.weight_decay, med.batch_size, med.pretrain_batch_size) == (1e-3, 1e-3, 1000, 100)
    assert med.epochs * med.pretrain_share == pytest.approx(100) and med.epochs == 100 + 2 * 1000
    assert (emr.learning_rate, emr.weight_decay, emr.batch_size, emr.epochs) == (1e-4, 1e-5, 2000, 2 * 500)


# --- the pieces ---


def test_the_penalty_is_how_far_the_slope_is_from_one() -> None:
    critic = nn.Linear(4, 1)
    with torch.no_grad():
        critic.weight.copy_(torch.tensor([[1.0, 2.0, 2.0, 0.0]]))  # slope 3 everywhere
    penalty = gradient_penalty(critic, torch.zeros(5, 4), torch.ones(5, 4), torch.Generator())
    assert float(penalty.detach()) == pytest.approx(4.0)


def test_the_slope_is_held_between_real_and_made_records() -> None:
    """|x|^2 has the slope 2 |x|. On the way from |x| = 1 to |x| = 3 that is 2 + 4 u with u uniform in (0, 1), and the
    mean of (1 + 4 u)^2 is 1 + 4 + 16 / 3."""

    class Squares(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x**2).sum(1, keepdim=True)

    real, made = torch.full((20_000, 4), 0.5), torch.full((20_000, 4), 1.5)
    penalty = gradient_penalty(Squares(), real, made, torch.Generator().manual_seed(0))
    assert float(penalty.detach()) == pytest.approx(31 / 3, rel=0.02)  # 4 standard errors


def test_medwgans_critic_sees_the_whole_batch() -> None:
    critic = MeanCritic(3, MedWganConfig())
    record = torch.tensor([[1.0, 0.0, 0.0]])
    alone, among = critic(record.repeat(4, 1))[0], critic(torch.cat([record, torch.ones(3, 3)]))[0]
    assert not torch.equal(alone, among)


@pytest.mark.parametrize("name", ["med-wgan", "emr-wgan"])
def test_rounding_and_drawing_codes(name: str) -> None:
    made = briefly(name)
    assert isinstance(made, Wgan)
    rounded, drawn = (
        type(made)(made.settings.model_copy(update={"binarise": how}), made.n_codes) for how in ("round", "bernoulli")
    )
    for copy in (rounded, drawn):
        copy.network.load_state_dict(made.network.state_dict())
    probability = made._made(4000, torch.Generator().manual_seed(0)).detach().numpy()
    means = [copy.sample(SampleRequest(4000, seed=3)).prevalence() for copy in (rounded, drawn)]
    # two draws of the noise differ by chance: of 4,000 records by less than 5 standard errors
    np.testing.assert_allclose(means[0], (probability > 0.5).mean(0), atol=5 * np.sqrt(0.5 / 4000))
    np.testing.assert_allclose(means[1], probability.mean(0), atol=5 * np.sqrt(0.5 / 4000))


@pytest.mark.parametrize("name", ["med-wgan", "emr-wgan"])
def test_the_critic_is_not_saved(name: str) -> None:
    saved = briefly(name).state().tensors
    assert {weight.split(".")[0] for weight in saved} == {"generator"} | ({"decoder"} if name == "med-wgan" else set())


def test_what_a_gan_refuses() -> None:
    with pytest.raises(ConfigError, match="one network call"):
        briefly("emr-wgan").sample(SampleRequest(5, steps=2))
    with pytest.raises(DataError, match="single record"):
        EmrWgan.fit(FitRequest(population(1), None, TINY))
    beyond_all_bounds = EmrWganConfig.of(TINY | {"width": 8}).model_copy(update={"learning_rate": 1e30})
    with pytest.raises(TrainingError, match="lower learning_rate"):
        EmrWgan.fit(FitRequest(population(200), None, beyond_all_bounds))


# --- rejection ---


class Coins(Baseline):
    """Codes of known probabilities, and how many records were drawn."""

    spec = GeneratorSpec("coins", "known probabilities", f"{__name__}:Coins", BaselineConfig, ("rejection",))
    probabilities = torch.tensor([0.5, 0.1, 0.002])
    drawn = 0

    def build(self) -> nn.Module:
        return nn.Identity()

    def optimisers(self) -> dict[str, torch.optim.Optimizer]:
        return {}

    def train_step(self, *_: Any) -> float:
        return 0.0

    def draw(self, rows: int, generator: torch.Generator, steps: int | None) -> Tensor:
        self.drawn += rows
        return torch.rand(rows, 3, generator=generator) < self.probabilities


def test_rejection_gives_the_conditional_law_and_draws_no_more_than_it_needs() -> None:
    coins = Coins(BaselineConfig(), 3)
    found = coins.sample(SampleRequest(4000, condition=Condition.of(3, all_of=[1])))
    np.testing.assert_allclose(found.prevalence(), [0.5, 1, 0.002], atol=0.03)
    assert 4000 / 0.1 * 0.9 < coins.drawn < 4000 / 0.1 * 1.2


def test_rejection_gives_up_early_on_what_is_too_rare() -> None:
    coins = Coins(BaselineConfig(), 3)
    with pytest.raises(ConditionError, match="too rare for this generator"):
        coins.sample(SampleRequest(100_000, condition=Condition.of(3, all_of=[2])))
    assert coins.drawn < 10_000
