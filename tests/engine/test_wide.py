"""Wide vocabularies: nothing of N x N numbers, and what is kept instead agrees with it."""

import itertools

import numpy as np
import pytest
import torch

from ehr.generators.d3pm import D3PMConfig, SparseConfig, TrainingConfig
from ehr.records import Records
from worker.engine.denoisers import SparseDenoiser, build_denoiser, in_order
from worker.engine.denoisers.few_patients import FewPatients
from worker.engine.denoisers.sparse_reading import SparseReading
from worker.engine.generators import FitRequest, SampleRequest, from_state
from worker.engine.generators.d3pm import D3PMGenerator
from worker.engine.metrics import cmd
from worker.engine.noise import HIDDEN, AbsorbingNoise, Noise, UniformNoise
from worker.engine.population import simulated_population

CODES, PAIRED = 30, 8


def records(n: int, seed: int = 0) -> Records:
    """Codes that go together, one that all have and some that nobody has."""
    rng = np.random.default_rng(seed)
    sick = rng.random((n, 1)) < 0.4
    x = rng.random((n, CODES)) < np.where(sick, 0.3, 0.1)
    x[:, 3], x[:, 20:22] = True, False
    return Records.from_dense(x)


def test_the_distance_of_wide_correlations_is_that_of_whole_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    for a, b in ((records(90), records(70, 1)), (records(40), records(40)), (records(25, 3), records(300, 4))):
        whole = cmd.measure(a, b, a, np.random.default_rng(0))
        with monkeypatch.context() as patched:
            patched.setattr(cmd, "WIDE", 5)
            patched.setattr(cmd, "ROWS", 7)  # does not divide the number of codes
            wide = cmd.measure(a, b, a, np.random.default_rng(0))
        assert (wide.value, wide.low, wide.high) == pytest.approx((whole.value, whole.low, whole.high), abs=1e-6)


def networks(noise: type[Noise]) -> tuple[SparseDenoiser, SparseDenoiser]:
    """One with weights for pairs of common codes, and one with weights for all pairs, the others 0."""
    prevalence = torch.from_numpy(records(200).prevalence())
    sizes = torch.full((20,), 0.05)
    config = SparseConfig(width=16, blocks=1, common_codes=6)
    made = noise.create(prevalence, 10)
    some = build_denoiser(config.model_copy(update={"pairwise_codes": PAIRED}), made, prevalence, sizes)
    every = build_denoiser(config, made, prevalence, sizes)
    assert isinstance(some, SparseDenoiser) and isinstance(every, SparseDenoiser)
    assert some.pairwise is not None and some.paired is not None and every.pairwise is not None
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in some.parameters():
            weight += 0.1 * torch.randn(weight.shape, generator=generator)
        same = {name: value for name, value in some.state_dict().items() if name not in ("pairwise.weight", "paired")}
        every.load_state_dict(same, strict=False)
        every.pairwise.weight.zero_()
        every.pairwise.weight[some.paired.unsqueeze(1), some.paired] = some.pairwise.weight
    assert len(some.paired) == PAIRED and set(some.paired.tolist()) == set(prevalence.argsort()[-PAIRED:].tolist())
    return some.eval(), every.eval()


@pytest.mark.parametrize("noise", [AbsorbingNoise, UniformNoise])
def test_weights_of_common_pairs_are_those_of_all_pairs_with_zeros(noise: type[Noise]) -> None:
    some, every = networks(noise)
    x = torch.from_numpy(records(12, 5).to_dense(np.uint8))
    t = torch.arange(12) % 10 + 1
    x_t = some.noise.q_sample(x, t, torch.Generator().manual_seed(1))
    torch.testing.assert_close(some(x_t, t, x.sum(1)), every(x_t, t, x.sum(1)))
    if not some.noise.reveals:
        return
    for codes in (torch.arange(CODES), torch.tensor([29, 4, 3]), torch.tensor([21])):
        read = [each.reading(torch.full_like(x, HIDDEN), x.sum(1)) for each in (some, every)]
        for reading in read:
            reading.reveal(torch.arange(0, 12), x[:, :12] == 1)
        torch.testing.assert_close(read[0].logits(codes), read[1].logits(codes))


def test_links_are_restrained_by_the_patients_of_their_own_codes() -> None:
    train, cpu = records(400), torch.device("cpu")
    paired = [1, 4, 9]
    some, every = FewPatients.of(train, cpu, paired), FewPatients.of(train, cpu)
    assert torch.equal(some.together, every.together[paired][:, paired])
    assert torch.equal(some.counts, every.counts)


def test_a_wide_model_learns_is_stored_and_draws() -> None:
    train = simulated_population().sample(300, np.random.default_rng(0))
    denoiser = SparseConfig(width=16, blocks=1, pairwise_codes=40)
    config = D3PMConfig(timesteps=20, denoiser=denoiser, training=TrainingConfig(epochs=2, batch_size=100))
    generator = D3PMGenerator.fit(FitRequest(train, None, config))
    assert generator.state().tensors["denoiser/pairwise.weight"].shape == (40, 40)
    loaded = from_state(generator.state())
    request = SampleRequest(50, seed=3)
    assert np.array_equal(loaded.sample(request).indices, generator.sample(request).indices)


@torch.no_grad()
@pytest.mark.parametrize("ordered", [False, True])
def test_rare_codes_are_seldom_asked_for_the_sake_of_sizes(monkeypatch: pytest.MonkeyPatch, ordered: bool) -> None:
    """At the first and the fifth call all codes are asked; at others the rare ones count as they did then."""
    network = networks(AbsorbingNoise)[1]
    rare = network.prevalence.argsort(descending=True, stable=True)[12:]
    network.out.bias[rare] -= 2  # so that together they are a third of a record, as in a wide vocabulary
    x = torch.from_numpy(records(40, 5).to_dense(np.uint8))
    hidden, order = torch.full_like(x, HIDDEN), torch.randperm(CODES, generator=torch.Generator().manual_seed(1))
    every = SparseReading(network, hidden, x.sum(1))
    monkeypatch.setattr(in_order, "ALWAYS_ASKED", 12)
    blocks = network.arranged(list(order.reshape(6, -1)))
    some = SparseReading(network, hidden, x.sum(1), order=torch.cat(blocks) if ordered else None)
    assert not every.any_seldom and 10 < int((some.seldom > 0).sum()) <= CODES - 12
    apart = []
    for codes in blocks:
        assert (some.in_order is not None and some.in_order.first(codes) >= 0) == ordered
        exact, told = every.logits(codes), some.logits(codes)
        apart.append(float((torch.sigmoid(exact) - torch.sigmoid(told)).abs().mean()))
        for reading in (every, some):
            reading.reveal(codes, x[:, codes] == 1)
        torch.testing.assert_close(some.seldom_mass, (some.x == HIDDEN).float() @ some.seldom)
    if not ordered:  # in order, what rare codes add up to is shifted without looking at each
        assert apart[0] < 1e-6 and apart[5] < 1e-6
    assert 0 < max(apart) < 0.003
    some.keep(torch.arange(3))
    assert len(some.seldom_rate) == 3


@torch.no_grad()
def test_what_is_read_anew_is_what_a_new_reading_says() -> None:
    """The same codes are present, others are hidden again; and a code is added."""
    order = torch.randperm(CODES, generator=torch.Generator().manual_seed(1))
    for network, known_order in itertools.product(networks(AbsorbingNoise), (None, order)):
        x = torch.from_numpy(records(40, 5).to_dense(np.uint8))
        every = torch.arange(CODES)
        reading = SparseReading(network, torch.full_like(x, HIDDEN), x.sum(1) + 1, order=known_order)
        reading.reveal(every, x == 1)
        rows = torch.tensor([3, 8, 30])
        known = torch.where(x[rows] == 1, x[rows], HIDDEN)
        known[:, 5] = x[rows, 5]
        again, new = reading.anew(known, rows), network.reading(known, x.sum(1)[rows] + 1)
        torch.testing.assert_close(again.logits(every), new.logits(every))
        torch.testing.assert_close(again.every(), new.logits(every))
        codes = torch.tensor([int((row == HIDDEN).nonzero()[2]) for row in known])
        again.add(torch.arange(3), codes)
        known[torch.arange(3), codes] = 1
        assert torch.equal(again.x, known)
        new = network.reading(known, x.sum(1)[rows] + 1)
        torch.testing.assert_close(again.logits(every), new.logits(every))
        for name in ("hidden_codes", "hidden_mass", "seldom_mass", "present", "sum"):
            torch.testing.assert_close(getattr(again, name), getattr(new, name))
