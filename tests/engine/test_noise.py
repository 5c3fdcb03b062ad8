"""The forward process and its reverse, checked against explicit transition matrices: every law by brute force."""

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from ehr.errors import ConfigError
from worker.engine import schedules
from worker.engine.noise import CERTAIN, HIDDEN, NOISES, AbsorbingNoise, MarginalNoise, Noise, UniformNoise, noise_named
from worker.engine.tables import Tables

Floats = NDArray[np.float64]

LAW = settings(deadline=None, max_examples=60, derandomize=True)
EVERY_NOISE = pytest.mark.parametrize("kind", NOISES, ids=lambda kind: kind.name)
PREVALENCE = torch.tensor([0.5, 0.2, 0.03, 0.001, 0.9], dtype=torch.float64)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@st.composite
def processes(draw: st.DrawFn) -> tuple[Noise, Floats]:
    """A small noise of any kind on its own schedule, and its pi written down by hand, (N, S)."""
    kind = draw(st.sampled_from(NOISES))
    prevalence = draw(st.lists(st.floats(0.0005, 0.9995), min_size=1, max_size=4))
    noise = kind.create(torch.tensor(prevalence, dtype=torch.float64), draw(st.integers(1, 7)))
    if kind is AbsorbingNoise:
        return noise, np.tile([0.0, 0.0, 1.0], (len(prevalence), 1))
    present = np.full(len(prevalence), 0.5) if kind is UniformNoise else np.array(prevalence)
    return noise, np.stack([1 - present, present], axis=-1)


def one_step(noise: Noise, pi: Floats, t: int) -> Floats:
    """Q_t, P(state at t | state at t - 1) of every code, (N, S, S)."""
    alpha = (noise.abar[t] / noise.abar[t - 1]).item()
    matrix: Floats = alpha * np.eye(pi.shape[1]) + (1 - alpha) * pi[:, None, :]
    return matrix


def many_steps(noise: Noise, pi: Floats, u: int, t: int) -> Floats:
    """P(state at t | state at u) by multiplying the steps between them, (N, S, S)."""
    product = np.tile(np.eye(pi.shape[1]), (len(pi), 1, 1))
    for step in range(u + 1, t + 1):
        product = product @ one_step(noise, pi, step)
    return product


def pairs(noise: Noise) -> list[tuple[int, int]]:
    """Every u < t."""
    return [(u, t) for t in range(1, noise.timesteps + 1) for u in range(t)]


def everywhere(noise: Noise, state: int) -> Tensor:
    """One record whose codes are all in `state`, (1, N)."""
    return torch.full((1, noise.n_codes), state, dtype=torch.uint8)


def at(t: int) -> Tensor:
    return torch.tensor([t])


def bayes(noise: Noise, pi: Floats, x_0: int, x_t: int, u: int, t: int) -> Floats:
    """q(x_u = s | x_t, x_0) of every code from the matrices, (N, S); 0 where x_t cannot come from x_0."""
    joint = many_steps(noise, pi, 0, u)[:, x_0, :] * many_steps(noise, pi, u, t)[:, :, x_t]
    total = joint.sum(-1, keepdims=True)
    return np.divide(joint, total, out=np.zeros_like(joint), where=total > 0)


def reachable(noise: Noise, x_start: Tensor, t: Tensor, seed: int = 0) -> Tensor:
    """An x_t that x_start can come to, with every state about equally often, (B, N)."""
    if noise.reveals:
        hidden = torch.rand(x_start.shape, generator=generator(seed)) < 0.5
        hidden |= (t == noise.timesteps).unsqueeze(-1)
        return torch.where(hidden, HIDDEN, x_start.to(torch.uint8)).to(torch.uint8)
    return torch.randint(0, 2, x_start.shape, generator=generator(seed), dtype=torch.uint8)


def log_ratio(q: Tensor, p: Tensor) -> Tensor:
    """log q / p where q > 0, else 0: the integrand of a KL."""
    return torch.where(q > 0, q, 1.0).log() - torch.where(q > 0, p, 1.0).log()


def plain_kl(noise: Noise, logits: Tensor, x_start: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
    """KL(q(x_{t-1} | x_t, x_0) || p(x_{t-1} | x_t)) per code from the two tables, (B, N); give it float64 logits."""
    q = noise.q_posterior(x_start, x_t, t, t - 1)
    p = noise.p_posterior(logits, x_t, t, t - 1)
    return (q * log_ratio(q, p)).sum(-1)


# ---- schedules


@pytest.mark.parametrize("timesteps", [1, 2, 7, 50, 500, 1000])
@pytest.mark.parametrize("schedule", [schedules.cosine, schedules.linear])
def test_schedules_start_clean_and_only_lose(schedule: Callable[[int], Tensor], timesteps: int) -> None:
    abar = schedule(timesteps)
    assert abar.shape == (timesteps + 1,)
    assert abar.dtype == torch.float64
    assert abar[0] == 1
    assert torch.all(abar.diff() < 0)
    assert abar[-1] >= 0


def test_cosine_is_the_root_of_the_squared_cosine() -> None:
    abar = schedules.cosine(500)
    assert abar[250].item() == pytest.approx(0.70, abs=0.005)
    f = [math.cos((t / 500 + 0.008) / 1.008 * math.pi / 2) ** 2 for t in range(501)]
    np.testing.assert_allclose(abar[:500].numpy(), np.sqrt(np.array(f[:500]) / f[0]), rtol=1e-10)
    # the last step would lose everything, and is held at alpha = sqrt(0.001)
    assert (abar[500] / abar[499]).item() == pytest.approx(math.sqrt(0.001))


@pytest.mark.parametrize("timesteps", [1, 3, 500])
def test_linear_is_linear(timesteps: int) -> None:
    expected = [1 - t / timesteps for t in range(timesteps + 1)]
    np.testing.assert_allclose(schedules.linear(timesteps).numpy(), expected, atol=1e-15)


def test_each_noise_has_its_schedule() -> None:
    for kind, schedule in ((UniformNoise, schedules.cosine), (MarginalNoise, schedules.cosine)):
        assert torch.equal(kind.create(PREVALENCE, 9).abar, schedule(9))
    absorbing = AbsorbingNoise.create(PREVALENCE, 9)
    assert torch.equal(absorbing.abar, schedules.linear(9))
    assert absorbing.abar[-1] == 0


@LAW
@given(timesteps=st.integers(1, 1000), data=st.data())
def test_strided_times_walk_from_the_end_to_the_start(timesteps: int, data: st.DataObject) -> None:
    steps = data.draw(st.integers(1, timesteps))
    times = schedules.strided_times(timesteps, steps)
    assert len(times) == steps + 1
    assert times[0] == timesteps
    assert times[-1] == 0
    strides = -np.diff(times)
    assert strides.min() >= 1
    assert strides.max() - strides.min() <= 1  # as even as integers allow


@pytest.mark.parametrize("steps", [-3, 0, 101])
def test_strided_times_say_what_is_allowed(steps: int) -> None:
    with pytest.raises(ConfigError, match=rf"between 1 and the 100 .* not {steps}$"):
        schedules.strided_times(100, steps)


# ---- the forward process


@LAW
@given(processes())
def test_one_step_of_the_engine_is_a_transition_matrix(process: tuple[Noise, Floats]) -> None:
    noise, pi = process
    for t in range(1, noise.timesteps + 1):
        alpha = (noise.abar[t] / noise.abar[t - 1]).reshape(1, 1)
        rows = [noise._kernel(everywhere(noise, state), alpha)[0].numpy() for state in range(noise.n_states)]
        matrix = np.stack(rows, axis=1)  # (N, S, S)
        assert matrix.min() >= 0
        np.testing.assert_allclose(matrix.sum(-1), 1, atol=1e-12)
        np.testing.assert_allclose(matrix, one_step(noise, pi, t), atol=1e-12)


@LAW
@given(processes())
def test_q_is_repeated_one_step_noising(process: tuple[Noise, Floats]) -> None:
    noise, pi = process
    for t in range(noise.timesteps + 1):
        for x_0 in (0, 1):
            q = noise.q_probability(everywhere(noise, x_0), at(t))[0]
            assert q.dtype == torch.float64
            np.testing.assert_allclose(q.numpy(), many_steps(noise, pi, 0, t)[:, x_0], atol=1e-12)


def test_marginal_noise_leaves_prevalences_where_they_are() -> None:
    noise = MarginalNoise.create(PREVALENCE, 20)
    present, absent = (noise.q_probability(everywhere(noise, x_0), at(13))[0, :, 1] for x_0 in (1, 0))
    torch.testing.assert_close(PREVALENCE * present + (1 - PREVALENCE) * absent, PREVALENCE)


@pytest.mark.parametrize("t", [1, 3, 6, 10])
@EVERY_NOISE
def test_q_sample_draws_from_q(kind: type[Noise], t: int) -> None:
    noise, n = kind.create(PREVALENCE, 10), 40_000
    x_start = torch.tensor([1, 0, 1, 0, 1], dtype=torch.uint8)
    x_t = noise.q_sample(x_start.expand(n, -1), torch.full((n,), t), generator(t))
    assert x_t.dtype == torch.uint8
    _assert_frequencies(x_t, noise.q_probability(x_start[None], at(t))[0])


@EVERY_NOISE
def test_q_sample_takes_a_time_for_each_record(kind: type[Noise]) -> None:
    noise, n = kind.create(PREVALENCE, 10), 40_000
    t = torch.tensor([2, 8]).repeat(n)
    x_t = noise.q_sample(torch.ones(2 * n, 5, dtype=torch.uint8), t, generator())
    for row in (0, 1):
        _assert_frequencies(x_t[row::2], noise.q_probability(everywhere(noise, 1), t[row : row + 1])[0])


@EVERY_NOISE
def test_q_sample_noises_codes_independently(kind: type[Noise]) -> None:
    noise, n = kind.create(torch.full((6,), 0.4), 10), 20_000
    x_t = noise.q_sample(torch.ones(n, 6, dtype=torch.uint8), torch.full((n,), 5), generator())
    correlation = np.corrcoef((x_t == 1).numpy().T) - np.eye(6)
    assert np.abs(correlation).max() < 5 / math.sqrt(n)


@EVERY_NOISE
def test_prior_sample_draws_from_pi(kind: type[Noise]) -> None:
    noise = kind.create(PREVALENCE, 10)
    _assert_frequencies(noise.prior_sample(40_000, generator()), noise.pi)


def _assert_frequencies(drawn: Tensor, probability: Tensor) -> None:
    """The rows of `drawn` (B, N) are draws from `probability` (N, S): no share is more than 5 standard errors off."""
    share = torch.stack([(drawn == s).double().mean(0) for s in range(probability.shape[1])], dim=-1)
    error = (probability * (1 - probability) / len(drawn)).sqrt()
    never, always = probability < 1e-12, probability > 1 - 1e-12
    assert torch.all(share[never] == 0)
    assert torch.all(share[always] == 1)
    z = ((share - probability) / error)[~never & ~always]
    assert torch.all(z.abs() < 5)


# ---- the reverse step


@LAW
@given(processes())
def test_q_posterior_is_bayes_rule(process: tuple[Noise, Floats]) -> None:
    noise, pi = process
    for u, t in pairs(noise):
        for x_0 in (0, 1):
            for x_t in range(noise.n_states):
                q = noise.q_posterior(everywhere(noise, x_0), everywhere(noise, x_t), at(t), at(u))[0].numpy()
                np.testing.assert_allclose(q, bayes(noise, pi, x_0, x_t, u, t), atol=1e-10)


@LAW
@given(processes(), st.floats(-12, 12))
def test_p_posterior_is_the_mixture(process: tuple[Noise, Floats], logit: float) -> None:
    noise, pi = process
    p_present = 1 / (1 + math.exp(-logit))
    logits = torch.full((1, noise.n_codes), logit, dtype=torch.float64)
    for u, t in pairs(noise):
        for x_t in range(noise.n_states):
            known = noise.reveals and x_t != HIDDEN  # a visible code is known, whatever the network says
            if known and noise.abar[t] == 0:
                continue  # at T nothing is visible
            weight = x_t if known else p_present
            mixture = weight * bayes(noise, pi, 1, x_t, u, t) + (1 - weight) * bayes(noise, pi, 0, x_t, u, t)
            p = noise.p_posterior(logits, everywhere(noise, x_t), at(t), at(u))[0].numpy()
            np.testing.assert_allclose(p, mixture, atol=1e-10)
            np.testing.assert_allclose(p.sum(-1), 1, atol=1e-10)


@pytest.mark.parametrize("kind", [UniformNoise, MarginalNoise], ids=lambda kind: kind.name)
def test_p_posterior_is_not_bayes_rule_at_the_mean(kind: type[Noise]) -> None:
    """Bayes' rule is not linear in x_0: a rare code that is on in x_t must go off, and the plug-in form keeps it on."""
    noise = kind.create(torch.tensor([0.01]), 10)
    t, u, x_t, p_present = 6, 1, 1, 0.1
    logits = torch.logit(torch.tensor([[p_present]], dtype=torch.float64))
    p = noise.p_posterior(logits, everywhere(noise, x_t), at(t), at(u))[0, 0, 1].item()

    pi = noise.pi.numpy()
    from_u = many_steps(noise, pi, u, t)[0, :, x_t]
    mean = many_steps(noise, pi, 0, u)[0]
    plug_in = from_u * (p_present * mean[1] + (1 - p_present) * mean[0])
    plug_in = (plug_in / plug_in.sum())[1]
    mixture = p_present * bayes(noise, pi, 1, x_t, u, t)[0, 1] + (1 - p_present) * bayes(noise, pi, 0, x_t, u, t)[0, 1]

    assert p == pytest.approx(mixture, rel=1e-9)
    assert plug_in > 2 * p


@pytest.mark.parametrize(("t", "u"), [(10, 0), (10, 9), (10, 4), (7, 2), (2, 1), (1, 0)])
@EVERY_NOISE
def test_p_sample_draws_from_p_posterior(kind: type[Noise], t: int, u: int) -> None:
    noise, n = kind.create(PREVALENCE, 10), 40_000
    logits = torch.tensor([-3.0, 0.4, 2.0, -0.7, 5.0])
    for x_t in range(noise.n_states):
        if noise.reveals and t == 10 and x_t != HIDDEN:
            continue
        drawn = noise.p_sample(logits.expand(n, -1), everywhere(noise, x_t).expand(n, -1), at(t), at(u), generator(t))
        assert drawn.dtype == torch.uint8
        expected = noise.p_posterior(logits[None].double(), everywhere(noise, x_t), at(t), at(u))[0]
        _assert_frequencies(drawn, expected)


@EVERY_NOISE
def test_p_sample_takes_a_time_for_each_record(kind: type[Noise]) -> None:
    noise, n = kind.create(PREVALENCE, 10), 40_000
    t, u = torch.tensor([9, 4]).repeat(n), torch.tensor([3, 2]).repeat(n)
    logits, x_t = torch.full((1, 5), 0.3), everywhere(noise, noise.n_states - 1)
    drawn = noise.p_sample(logits.expand(2 * n, -1), x_t.expand(2 * n, -1), t, u, generator())
    for row in (0, 1):
        expected = noise.p_posterior(logits.double(), x_t, t[row : row + 1], u[row : row + 1])[0]
        _assert_frequencies(drawn[row::2], expected)


@EVERY_NOISE
def test_p_sample_draws_codes_independently(kind: type[Noise]) -> None:
    noise, n = kind.create(torch.full((6,), 0.4), 10), 20_000
    x_t = everywhere(noise, noise.n_states - 1).expand(n, -1)
    drawn = noise.p_sample(torch.zeros(n, 6), x_t, at(8), at(3), generator())
    correlation = np.corrcoef((drawn == 1).numpy().T) - np.eye(6)
    assert np.abs(correlation).max() < 5 / math.sqrt(n)


# ---- the terms of the bound


def _kl_case(noise: Noise, rows: int, spread: float, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(logits float32, x_start, x_t, t), random; t covers 2 .. T."""
    source = generator(seed)
    shape = (rows, noise.n_codes)
    logits = spread * (2 * torch.rand(shape, generator=source) - 1)
    x_start = torch.randint(0, 2, shape, generator=source, dtype=torch.uint8)
    t = torch.randint(2, noise.timesteps + 1, (rows,), generator=source)
    return logits, x_start, reachable(noise, x_start, t, seed), t


@pytest.mark.parametrize("timesteps", [2, 8, 500])
@EVERY_NOISE
def test_posterior_kl_is_the_kl_of_the_two_posteriors(kind: type[Noise], timesteps: int) -> None:
    noise = kind.create(PREVALENCE, timesteps)
    logits, x_start, x_t, t = _kl_case(noise, 4_000, 8.0, timesteps)
    kl = noise.posterior_kl(logits, x_start, x_t, t)
    assert kl.dtype == torch.float32
    expected = plain_kl(noise, logits.double(), x_start, x_t, t)
    error = (kl - expected).abs()
    assert torch.all(error <= 1e-3 * expected + 1e-11)
    # the sum over many codes and times, which is what the bound is made of
    assert kl.double().sum().item() == pytest.approx(expected.sum().item(), rel=1e-6)


@EVERY_NOISE
def test_posterior_kl_of_a_billionth_is_still_exact(kind: type[Noise]) -> None:
    """At T = 500 a good denoiser leaves KLs of 1e-9 nats: plain logarithms in float32 would leave only rounding."""
    noise = kind.create(PREVALENCE, 500)
    logits, x_start, x_t, t = _kl_case(noise, 20_000, 8.0, 1)
    if noise.reveals:
        logits = 16 * (2 * x_start.float() - 1) + logits / 8
    expected = plain_kl(noise, logits.double(), x_start, x_t, t)
    small = (expected > 3e-10) & (expected < 3e-9)
    assert small.sum() > 100
    kl = noise.posterior_kl(logits, x_start, x_t, t)
    relative = ((kl - expected) / expected)[small]
    assert relative.abs().max() < 0.02
    assert relative.mean().abs() < 1e-3


@EVERY_NOISE
def test_posterior_kl_does_not_forgive_certainty_that_is_wrong(kind: type[Noise]) -> None:
    noise = kind.create(PREVALENCE, 500)
    logits, x_start, x_t, t = _kl_case(noise, 4_000, 3.0, 2)
    t = torch.randint(2, 20, t.shape, generator=generator(3))
    logits = logits - 20 * (2 * x_start.float() - 1)  # sure of the opposite
    expected = plain_kl(noise, logits.double(), x_start, x_t, t)
    torch.testing.assert_close(noise.posterior_kl(logits, x_start, x_t, t).double(), expected, rtol=1e-3, atol=1e-9)


@pytest.mark.parametrize("timesteps", [1, 2, 500])
@EVERY_NOISE
def test_posterior_kl_at_one_is_the_decoder_term(kind: type[Noise], timesteps: int) -> None:
    noise = kind.create(PREVALENCE, timesteps)
    logits, x_start, _, _ = _kl_case(kind.create(PREVALENCE, 2), 1_000, 12.0, 0)
    t = torch.ones(len(logits), dtype=torch.int64)
    x_t = reachable(noise, x_start, t)
    p = noise.p_posterior(logits.double(), x_t, t, t - 1)  # p(x_0 | x_1)
    expected = -p.gather(-1, x_start.long().unsqueeze(-1)).squeeze(-1).log()
    torch.testing.assert_close(noise.posterior_kl(logits, x_start, x_t, t).double(), expected, rtol=1e-4, atol=1e-9)


@EVERY_NOISE
def test_posterior_kl_has_the_gradient_of_the_kl(kind: type[Noise]) -> None:
    noise = kind.create(PREVALENCE, 20)
    logits, x_start, x_t, t = _kl_case(noise, 500, 6.0, 4)
    t[:100] = 1
    x_t[:100] = reachable(noise, x_start[:100], t[:100])
    logits.requires_grad_()
    (gradient,) = torch.autograd.grad(noise.posterior_kl(logits, x_start, x_t, t).sum(), logits)
    exact = logits.detach().double().requires_grad_()
    (expected,) = torch.autograd.grad(plain_kl(noise, exact, x_start, x_t, t).sum(), exact)
    torch.testing.assert_close(gradient.double(), expected, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("extreme", [0.0, 15.0, 40.0, 1e4])
@pytest.mark.parametrize("timesteps", [1, 2, 500])
@EVERY_NOISE
def test_posterior_kl_is_finite_with_finite_gradients(kind: type[Noise], timesteps: int, extreme: float) -> None:
    noise = kind.create(torch.tensor([0.0, 1e-6, 0.3, 1.0]), timesteps)
    t = torch.tensor([1, 1, min(2, timesteps), min(2, timesteps), timesteps, timesteps])
    x_start = torch.tensor([[0, 1, 0, 1], [1, 0, 1, 0]], dtype=torch.uint8).repeat(3, 1)
    for sign in (-1, 1):
        for x_t in [reachable(noise, x_start, t, seed) for seed in range(4)]:
            logits = torch.full(x_start.shape, sign * extreme, requires_grad=True)
            kl = noise.posterior_kl(logits, x_start, x_t, t)
            kl.sum().backward()
            assert torch.isfinite(kl).all()
            assert logits.grad is not None
            assert torch.isfinite(logits.grad).all()


@LAW
@given(processes())
def test_prior_kl_is_the_kl_to_pi(process: tuple[Noise, Floats]) -> None:
    noise, pi = process
    final = many_steps(noise, pi, 0, noise.timesteps)
    x_start = torch.stack([torch.zeros(noise.n_codes), torch.ones(noise.n_codes)]).to(torch.uint8)
    for x_0 in (0, 1):
        q = final[:, x_0]
        expected = (q * np.log(np.where(q > 0, q, 1) / np.where(q > 0, pi, 1))).sum()
        assert noise.prior_kl(x_start)[x_0].item() == pytest.approx(expected, abs=1e-9)


def test_prior_kl_matters_when_the_process_is_short() -> None:
    """With one step much of the record survives to T, and the bound has to pay for it."""
    noise = UniformNoise(torch.full((3,), 0.5), torch.tensor([1.0, 0.6]))
    expected = 3 * (0.8 * math.log(1.6) + 0.2 * math.log(0.4))
    assert noise.prior_kl(torch.ones(1, 3)).item() == pytest.approx(expected)


# ---- evidence, devices, names


@LAW
@given(processes())
def test_evidence_is_the_log_likelihood_ratio(process: tuple[Noise, Floats]) -> None:
    noise, pi = process
    for t in range(noise.timesteps + 1):
        q = many_steps(noise, pi, 0, t)
        for x_t in range(noise.n_states):
            if q[0, :2, x_t].sum() == 0:
                continue  # this state cannot be seen at t
            with np.errstate(divide="ignore"):
                ratio = np.clip(np.log(q[:, 1, x_t]) - np.log(q[:, 0, x_t]), -CERTAIN, CERTAIN)
            evidence = noise.evidence(everywhere(noise, x_t), at(t))
            assert evidence.dtype == torch.float32
            np.testing.assert_allclose(evidence[0].numpy(), ratio, rtol=1e-5, atol=1e-5)


@EVERY_NOISE
def test_prior_and_evidence_give_the_posterior_of_one_code(kind: type[Noise]) -> None:
    """What the sparse denoiser starts from: log-odds of the prevalence plus the evidence is Bayes' rule for x_0."""
    noise = kind.create(PREVALENCE, 10)
    x_t = everywhere(noise, noise.n_states - 1)
    given_present, given_absent = (
        noise.q_probability(everywhere(noise, x_0), at(4))[0, :, noise.n_states - 1] for x_0 in (1, 0)
    )
    joint = PREVALENCE * given_present
    expected = joint / (joint + (1 - PREVALENCE) * given_absent)
    actual = torch.sigmoid(torch.logit(PREVALENCE) + noise.evidence(x_t, at(4)).double())[0]
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-7)


@EVERY_NOISE
def test_codes_nobody_or_everybody_has_stay_finite(kind: type[Noise]) -> None:
    noise = kind.create(torch.tensor([0.0, 1.0]), 500)
    t = torch.arange(1, 501)
    for x_0 in (0, 1):
        x_start = torch.full((500, 2), x_0, dtype=torch.uint8)
        assert torch.isfinite(noise.prior_kl(x_start)).all()
        for x_t in range(noise.n_states):
            assert torch.isfinite(noise.evidence(torch.full((500, 2), x_t, dtype=torch.uint8), t)).all()


@EVERY_NOISE
def test_moving_keeps_every_value(kind: type[Noise]) -> None:
    noise = kind.create(PREVALENCE, 10)
    moved = noise.to("cpu")
    assert moved is not noise
    assert type(moved) is kind
    assert_same(moved, noise)
    assert {value.device.type for value in tensors_of(noise.to("meta"))} == {"meta"}
    assert noise.abar.device.type == "cpu"


def assert_same(moved: Tables, tables: Tables) -> None:
    assert vars(moved).keys() == vars(tables).keys()
    for name, value in vars(tables).items():
        other = vars(moved)[name]
        if isinstance(value, Tables):
            assert_same(other, value)
        else:
            assert torch.equal(other, value) if isinstance(value, Tensor) else other == value


def tensors_of(tables: Tables) -> Iterator[Tensor]:
    for value in vars(tables).values():
        if isinstance(value, Tables):
            yield from tensors_of(value)
        elif isinstance(value, Tensor):
            yield value


def test_noises_are_found_by_name() -> None:
    assert [noise_named(name) for name in ("uniform", "marginal", "absorbing")] == list(NOISES)
    with pytest.raises(ConfigError, match="unknown noise 'gaussian'; known: uniform, marginal, absorbing"):
        noise_named("gaussian")
