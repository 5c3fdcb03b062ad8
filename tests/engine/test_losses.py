"""The bound, checked on codes few enough to enumerate every record, every x_t and every t."""

import itertools
import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ehr.records import Records
from worker.engine.denoisers import Denoiser
from worker.engine.losses import ImportanceTimes, PowerTimes, TimeSampler, elbo_terms, held_out_elbo
from worker.engine.noise import NOISES, Noise, UniformNoise, noise_named

N = 3
EVERY = torch.tensor(list(itertools.product([0, 1], repeat=N)), dtype=torch.uint8)  # (2^N, N), every x_0
EVERY_NOISE = pytest.mark.parametrize("name", [kind.name for kind in NOISES])

# Two kinds of patients: the codes are independent in each, and so correlated in the mixture.
WEIGHTS = torch.tensor([0.7, 0.3], dtype=torch.float64)
CODES = torch.tensor([[0.05, 0.1, 0.3], [0.9, 0.6, 0.5]], dtype=torch.float64)


def mixture(weights: Tensor, codes: Tensor) -> Tensor:
    """P(x_0) of every record of `EVERY`, (2^N,)."""
    return weights @ torch.where(EVERY == 1, codes[:, None], 1 - codes[:, None]).prod(-1)


CORRELATED = mixture(WEIGHTS, CODES)
INDEPENDENT = mixture(torch.ones(1, dtype=torch.float64), WEIGHTS[None] @ CODES)  # the same prevalences


def entropy(joint: Tensor) -> float:
    return -(joint * joint.log()).sum().item()


def noise_for(name: str, joint: Tensor, timesteps: int) -> Noise:
    return noise_named(name).create(joint @ EVERY.double(), timesteps)


def every_x_t(noise: Noise) -> Tensor:
    """Every x_t, in the order of its digits, (S^N, N)."""
    return torch.tensor(list(itertools.product(range(noise.n_states), repeat=N)), dtype=torch.uint8)


def place(x_t: Tensor, noise: Noise) -> Tensor:
    """The row of each x_t in `every_x_t`, (B,)."""
    return (x_t.long() * noise.n_states ** torch.arange(N - 1, -1, -1)).sum(1)


def likelihood(noise: Noise, t: int) -> Tensor:
    """q(x_t | x_0) of every x_0 and x_t, (2^N, S^N)."""
    q = noise.q_probability(EVERY, torch.tensor([t])).unsqueeze(1)  # (2^N, 1, N, S)
    chosen = every_x_t(noise).long()[None, :, :, None].expand(len(EVERY), -1, -1, 1)
    return q.expand(-1, chosen.shape[1], -1, -1).gather(-1, chosen).squeeze(-1).prod(-1)


def _terms(
    denoiser: Callable[..., Tensor], noise: Noise, x_start: Tensor, x_t: Tensor, t: Tensor, auxiliary_weight: float = 0
) -> tuple[Tensor, Tensor]:
    return elbo_terms(denoiser(x_t, t, x_start.sum(1)), noise, x_start, x_t, t, auxiliary_weight)


class ExactDenoiser(Denoiser):
    """log-odds of p(x_0 | x_t) by Bayes' rule over every record; told the size, of p(x_0 | x_t, size)."""

    name = "exact"

    def __init__(self, noise: Noise, joint: Tensor, sized: bool = False) -> None:
        super().__init__()
        self.noise, self.sized = noise, sized
        sizes = EVERY.sum(1)
        self.sizes = torch.zeros(N + 1, dtype=torch.float64).index_add(0, sizes, joint)
        tables = []
        for size in range(N + 1):
            prior = joint * (sizes == size) if sized else joint
            tables.append(torch.stack([self._table(noise, prior, t) for t in range(noise.timesteps + 1)]))
        self.table = torch.stack(tables)  # (sizes, T + 1, S^N, N)

    @staticmethod
    def _table(noise: Noise, prior: Tensor, t: int) -> Tensor:
        both = likelihood(noise, t) * prior[:, None]  # (2^N, S^N)
        present, absent = both.T @ EVERY.double(), both.T @ (1 - EVERY.double())
        # What cannot be seen has no posterior; what is certain is certain to 40 nats.
        return torch.where(present + absent > 0, (present.log() - absent.log()).clamp(-40, 40), 0.0)

    def forward(self, x_t: Tensor, t: Tensor, size: Tensor | None = None) -> Tensor:
        return self.table[size if self.sized else 0, t, place(x_t, self.noise)]

    @property
    def size_log_prior(self) -> Tensor | None:
        return self.sizes.log() if self.sized else None


class Perturbed(Denoiser):
    """The exact denoiser with an error on every one of its logits."""

    name = "perturbed"

    def __init__(self, exact: ExactDenoiser, seed: int, scale: float = 1.0) -> None:
        super().__init__()
        self.noise, self.exact = exact.noise, exact
        draws = torch.randn(exact.table.shape[1:], generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        self.error = scale * draws  # (T + 1, S^N, N)

    def forward(self, x_t: Tensor, t: Tensor, size: Tensor | None = None) -> Tensor:
        return self.exact(x_t, t, size) + self.error[t, place(x_t, self.noise)]


def exact_bound(denoiser: Denoiser, noise: Noise) -> Tensor:
    """The negative ELBO of every record of `EVERY`, nothing drawn, (2^N,)."""
    x_t = every_x_t(noise)
    x_start = EVERY.repeat_interleave(len(x_t), 0)  # every pair of x_0 and x_t
    total = noise.prior_kl(EVERY)
    if denoiser.size_log_prior is not None:
        total = total - denoiser.size_log_prior[EVERY.sum(1)]
    for t in range(1, noise.timesteps + 1):
        l_t, _ = _terms(denoiser, noise, x_start, x_t.repeat(len(EVERY), 1), torch.full((len(x_start),), t))
        total = total + (likelihood(noise, t) * l_t.view(len(EVERY), -1)).sum(1)
    return total


def model_probability(denoiser: Denoiser, noise: Noise) -> Tensor:
    """p_theta(x_0) of every record of `EVERY`, by walking the whole reverse chain from x_T ~ pi, (2^N,)."""
    x = every_x_t(noise)
    codes = torch.arange(N)
    probability = noise.pi[codes, x.long()].prod(-1)  # (S^N,)
    for t in range(noise.timesteps, 0, -1):
        now, before = torch.full((len(x),), t), torch.full((len(x),), t - 1)
        step = noise.p_posterior(denoiser(x, now, torch.zeros(len(x)).long()), x, now, before)  # (S^N, N, S)
        probability = probability @ step[:, codes, x.long()].prod(-1)  # (S^N, S^N): from row to column
    is_record = (x <= 1).all(1)
    return probability[is_record]


@lru_cache
def gap(name: str, timesteps: int) -> float:
    """How far the exact denoiser's mean bound lies above the entropy of the correlated codes, nats."""
    noise = noise_for(name, CORRELATED, timesteps)
    return (CORRELATED @ exact_bound(ExactDenoiser(noise, CORRELATED), noise)).item() - entropy(CORRELATED)


# ---- the bound


@pytest.mark.parametrize("timesteps", [1, 2, 6])
@pytest.mark.parametrize("scale", [0.0, 1.0, 3.0])
@EVERY_NOISE
def test_the_bound_holds_for_every_record(name: str, scale: float, timesteps: int) -> None:
    """-log p_theta(x_0) <= the negative ELBO, record by record, for good denoisers and bad ones."""
    noise = noise_for(name, CORRELATED, timesteps)
    denoiser = Perturbed(ExactDenoiser(noise, CORRELATED), seed=timesteps, scale=scale)
    p = model_probability(denoiser, noise)
    assert p.sum().item() == pytest.approx(1, abs=1e-9)
    slack = exact_bound(denoiser, noise) + p.log()
    assert slack.min() > -1e-9
    assert slack.max() < 5  # a bound, not just a large number


@pytest.mark.parametrize("timesteps", [1, 2, 8, 32])
@EVERY_NOISE
def test_the_bound_is_tight_for_independent_codes(name: str, timesteps: int) -> None:
    """With independent codes the reverse step is exact, so all that is lost is KL(q(x_T) || pi)."""
    noise = noise_for(name, INDEPENDENT, timesteps)
    bound = INDEPENDENT @ exact_bound(ExactDenoiser(noise, INDEPENDENT), noise)
    prevalence = INDEPENDENT @ EVERY.double()
    present, absent = (noise.q_probability(torch.full((1, N), x), torch.tensor([timesteps]))[0] for x in (1, 0))
    q = prevalence[:, None] * present + (1 - prevalence[:, None]) * absent  # q(x_T), (N, S)
    unlearned = (q * torch.where(q > 0, q / noise.pi.clamp(min=1e-300), 1.0).log()).sum().item()
    assert bound.item() - entropy(INDEPENDENT) == pytest.approx(unlearned, abs=1e-6)
    if name != "uniform":
        assert unlearned == pytest.approx(0, abs=1e-12)


@EVERY_NOISE
def test_the_gap_closes_as_steps_grow(name: str) -> None:
    """A reverse step treats codes as independent; what that loses vanishes as the steps become small."""
    gaps = [gap(name, timesteps) for timesteps in (1, 2, 8, 32, 128)]
    assert all(fine < 0.9 * coarse for coarse, fine in itertools.pairwise(gaps))
    assert gaps[-1] < 0.01 * gaps[0]
    assert gaps[-2] / gaps[-1] == pytest.approx(4, rel=0.02)  # in the limit, as 1/T


def test_one_step_of_absorbing_noise_is_the_independent_model() -> None:
    """All codes are revealed at once from nothing: the gap is what independence costs, the total correlation."""
    assert gap("absorbing", 1) == pytest.approx(entropy(INDEPENDENT) - entropy(CORRELATED), abs=1e-9)


@pytest.mark.parametrize("seed", range(4))
@EVERY_NOISE
def test_a_wrong_denoiser_has_a_larger_bound(name: str, seed: int) -> None:
    noise = noise_for(name, CORRELATED, 6)
    exact = ExactDenoiser(noise, CORRELATED)
    best = (CORRELATED @ exact_bound(exact, noise)).item()
    bounds = [(CORRELATED @ exact_bound(Perturbed(exact, seed, scale), noise)).item() for scale in (0.1, 0.3, 1.0)]
    assert best < bounds[0] < bounds[1] < bounds[2]


@EVERY_NOISE
def test_each_term_is_least_for_the_exact_denoiser(name: str) -> None:
    """The gradient of every L_t, averaged over records and x_t, is 0 at p(x_0 | x_t)."""
    noise = noise_for(name, CORRELATED, 6)
    exact, x_t = ExactDenoiser(noise, CORRELATED), every_x_t(noise)
    x_start = EVERY.repeat_interleave(len(x_t), 0)
    exact.table.requires_grad_()
    for t in range(1, 7):
        l_t, _ = _terms(exact, noise, x_start, x_t.repeat(len(EVERY), 1), torch.full((len(x_start),), t))
        weight = likelihood(noise, t) * CORRELATED[:, None]
        (gradient,) = torch.autograd.grad((weight * l_t.view(len(EVERY), -1)).sum(), exact.table)
        assert gradient.abs().max() < 1e-9


@EVERY_NOISE
def test_the_bound_holds_for_a_denoiser_that_is_told_the_size(name: str) -> None:
    gaps = []
    for timesteps in (1, 4, 16):
        noise = noise_for(name, CORRELATED, timesteps)
        bound = CORRELATED @ exact_bound(ExactDenoiser(noise, CORRELATED, sized=True), noise)
        gaps.append(bound.item() - entropy(CORRELATED))
    assert gaps[0] > gaps[1] > gaps[2] > 0


# ---- its estimate


@pytest.mark.parametrize("sized", [False, True], ids=["", "sized"])
@EVERY_NOISE
def test_held_out_elbo_estimates_the_exact_bound(name: str, sized: bool) -> None:
    noise = noise_for(name, CORRELATED, 8)
    denoiser = ExactDenoiser(noise, CORRELATED, sized=sized)
    drawn = torch.multinomial(CORRELATED, 6_000, replacement=True, generator=torch.Generator().manual_seed(1))
    records = Records.from_dense(EVERY[drawn].numpy())
    exact = exact_bound(denoiser, noise)[drawn].mean().item()
    elbo = held_out_elbo(denoiser, noise, records, torch.Generator().manual_seed(2), draws=4, batch_size=1_000)
    assert 0 < elbo.standard_error < 0.05
    assert abs(elbo.value - exact) < 4 * elbo.standard_error
    # the spread of the estimate is what it says: records differ, and so do draws
    again = held_out_elbo(denoiser, noise, records, torch.Generator().manual_seed(3), draws=4, batch_size=1_000)
    assert 0 < abs(elbo.value - again.value) < 4 * math.hypot(elbo.standard_error, again.standard_error)


def test_held_out_elbo_pays_for_what_survives_to_the_end() -> None:
    """A process cut short leaves much of the record in x_T, and a bound without its price would beat the entropy."""
    noise = UniformNoise(torch.full((N,), 0.5), torch.tensor([1.0, 0.8, 0.6]))
    denoiser = ExactDenoiser(noise, CORRELATED)
    drawn = torch.multinomial(CORRELATED, 6_000, replacement=True, generator=torch.Generator().manual_seed(1))
    exact = exact_bound(denoiser, noise)[drawn].mean().item()
    elbo = held_out_elbo(denoiser, noise, Records.from_dense(EVERY[drawn].numpy()), torch.Generator().manual_seed(2))
    assert abs(elbo.value - exact) < 4 * elbo.standard_error
    assert noise.prior_kl(EVERY).min() > 40 * elbo.standard_error
    assert exact > entropy(CORRELATED)


def test_held_out_elbo_is_seeded_and_leaves_the_mode_alone() -> None:
    noise = noise_for("absorbing", CORRELATED, 8)
    denoiser = ExactDenoiser(noise, CORRELATED)
    records = Records.from_dense(EVERY.numpy())
    first, second = (held_out_elbo(denoiser, noise, records, torch.Generator().manual_seed(5)) for _ in range(2))
    assert first == second
    assert denoiser.training
    denoiser.eval()
    held_out_elbo(denoiser, noise, records, torch.Generator().manual_seed(5))
    assert not denoiser.training
    one = held_out_elbo(denoiser, noise, records.take([3]), torch.Generator().manual_seed(5))
    assert one.standard_error == math.inf  # one record says nothing about others


@EVERY_NOISE
def test_the_auxiliary_term_is_a_cross_entropy_on_x_0(name: str) -> None:
    noise = noise_for(name, CORRELATED, 5)
    denoiser = Perturbed(ExactDenoiser(noise, CORRELATED), seed=0)
    x_start = EVERY.repeat(5, 1)
    t = torch.arange(1, 6).repeat_interleave(len(EVERY))
    x_t = noise.q_sample(x_start, t, torch.Generator().manual_seed(0))
    l_t, objective = _terms(denoiser, noise, x_start, x_t, t, auxiliary_weight=0.3)
    logits = denoiser(x_t, t, x_start.sum(1))
    cross_entropy = F.binary_cross_entropy_with_logits(logits, x_start.double(), reduction="none").sum(1)
    torch.testing.assert_close(objective, l_t + 0.3 / 5 * cross_entropy)
    torch.testing.assert_close(l_t, noise.posterior_kl(logits, x_start, x_t, t).sum(1))
    plain, same = _terms(denoiser, noise, x_start, x_t, t)
    assert torch.equal(plain, l_t)
    assert torch.equal(same, l_t)


# ---- which t to train on


def trained(timesteps: int) -> ImportanceTimes:
    """A sampler that has seen enough losses to be far from uniform."""
    times = ImportanceTimes(timesteps)
    t = torch.arange(1, timesteps + 1).repeat(12)
    times.update(t, (t.double() - 2.3) ** 2)
    return times


SAMPLERS = pytest.mark.parametrize("sampler", [TimeSampler, PowerTimes, trained])


@SAMPLERS
@pytest.mark.parametrize("timesteps", [1, 7, 100])
def test_times_come_from_the_table_evenly(sampler: type[TimeSampler], timesteps: int) -> None:
    times, n = sampler(timesteps), 256
    assert times.probability.sum().item() == pytest.approx(1, abs=1e-12)
    assert times.probability.min() > 0
    t, p = times.draw(n, torch.Generator().manual_seed(0))
    assert t.min() >= 1
    assert t.max() <= timesteps
    assert torch.equal(p, times.probability[t - 1])
    # stratified: an interval of probability p holds n * p of the n strata, give or take one at each end
    count = torch.bincount(t - 1, minlength=timesteps)
    assert torch.all((count - n * times.probability).abs() <= 2)
    cumulative = (count.cumsum(0) - n * times.probability.cumsum(0)).abs()
    assert torch.all(cumulative <= 1 + 1e-6)


def test_a_batch_of_t_steps_holds_each_of_them_once() -> None:
    t, _ = TimeSampler(64).draw(64, torch.Generator().manual_seed(3))
    assert sorted(t.tolist()) == list(range(1, 65))
    assert t.tolist() != sorted(t.tolist())


@SAMPLERS
def test_dividing_by_p_estimates_the_sum_over_t(sampler: type[TimeSampler]) -> None:
    times, batches = sampler(20), 400
    l_t = 1 / torch.arange(1, 21, dtype=torch.float64) + 0.1
    generator = torch.Generator().manual_seed(1)
    estimates, first = [], []
    for _ in range(batches):
        t, p = times.draw(16, generator)
        estimates.append((l_t[t - 1] / p).mean().item())
        first.append((l_t[t[0] - 1] / p[0]).item())
    total = l_t.sum().item()
    for values in (estimates, first):  # no row of the batch may be partial to some t
        error = np.std(values, ddof=1) / math.sqrt(batches)
        assert abs(np.mean(values) - total) < 4 * error
    assert np.std(estimates) < np.std(first) / math.sqrt(16)  # what stratifying is for


def test_power_times_fall_with_the_root_of_t() -> None:
    probability = PowerTimes(100).probability
    assert (probability[0] / probability[99]).item() == pytest.approx(10)
    assert (probability[3] / probability[15]).item() == pytest.approx(2)


def test_importance_is_uniform_until_every_t_was_seen_more_than_ten_times() -> None:
    times = ImportanceTimes(4)
    every = torch.arange(1, 5)
    uniform = torch.full((4,), 0.25, dtype=torch.float64)
    for _ in range(10):
        times.update(every, every.double())
    torch.testing.assert_close(times.probability, uniform)
    times.update(every[:3].repeat(5), every[:3].repeat(5).double())
    torch.testing.assert_close(times.probability, uniform)
    times.update(every[3:], every[3:].double())
    torch.testing.assert_close(times.probability, 0.99 * every.double() / 10 + 0.01 / 4)


def test_importance_converges_to_the_root_mean_square_of_the_loss() -> None:
    """Not to the mean: a loss that is seldom large deserves more draws than one that is always middling."""
    times, generator = ImportanceTimes(3), torch.Generator().manual_seed(0)
    root = torch.tensor([1.0, 2.0, math.sqrt(0.1) * 10], dtype=torch.float64)
    for _ in range(20):
        t = torch.arange(1, 4).repeat(3_000)
        rare = torch.where(torch.rand(len(t), generator=generator) < 0.1, 10.0, 0.0)
        times.update(t, torch.where(t == 3, rare, t.double()))
    expected = 0.99 * root / root.sum() + 0.01 / 3
    torch.testing.assert_close(times.probability, expected, rtol=0.05, atol=0)


def test_importance_forgets_with_decay_nine_tenths() -> None:
    times = ImportanceTimes(1)
    times.update(torch.ones(20).long(), torch.full((20,), 3.0))
    torch.testing.assert_close(times.mean_square, torch.tensor([9.0], dtype=torch.float64))
    times.update(torch.ones(1).long(), torch.zeros(1))
    torch.testing.assert_close(times.mean_square, torch.tensor([0.9 * 9], dtype=torch.float64))
    times.update(torch.ones(3).long(), torch.zeros(3))
    torch.testing.assert_close(times.mean_square, torch.tensor([0.9**4 * 9], dtype=torch.float64))


def test_importance_goes_on_from_its_state() -> None:
    times, other = trained(6), ImportanceTimes(6)
    other.load({name: value.clone() for name, value in times.state().items()})
    assert torch.equal(other.probability, times.probability)
    draws = [sampler.draw(32, torch.Generator().manual_seed(4))[0] for sampler in (times, other)]
    assert torch.equal(draws[0], draws[1])
    for sampler in (times, other):
        sampler.update(draws[0], draws[0].double() ** 1.5)
    assert torch.equal(other.probability, times.probability)
    assert torch.equal(other.seen, times.seen)


def test_loading_takes_a_copy() -> None:
    times, other = trained(6), ImportanceTimes(6)
    other.load(times.state())
    before = other.probability.clone()
    times.update(torch.full((50,), 2), torch.full((50,), 99.0))
    other.update(torch.ones(0).long(), torch.ones(0))
    assert torch.equal(other.probability, before)
    assert other.seen[1] == 12
