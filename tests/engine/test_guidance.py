"""Conditions and the guidance towards them: the paper's formula, its closed forms, and what it does to records."""

import itertools
import math
from collections.abc import Callable, Iterable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ehr.conditions import Condition
from ehr.errors import ConditionError
from ehr.records import Records
from worker.engine.guidance import ClassifierEnergy, ConditionEnergy, LangevinGuidance
from worker.engine.noise import NOISES, Noise
from worker.engine.sampling import Guide, ancestral_sample

LAW = settings(deadline=None, max_examples=80, derandomize=True)
EVERY_NOISE = pytest.mark.parametrize("kind", NOISES, ids=lambda kind: kind.name)
T = torch.ones(1, dtype=torch.int64)  # Langevin steps do not depend on the time


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def gaussian(shape: tuple[int, ...], scale: float, seed: int = 0) -> Tensor:
    return scale * torch.randn(shape, generator=seeded(seed), dtype=torch.float64)


def guide_logits(guidance: LangevinGuidance, logits: Tensor, seed: int = 0) -> Tensor:
    return guidance(logits, torch.zeros(logits.shape, dtype=torch.uint8), T, seeded(seed))


@st.composite
def conditions(draw: st.DrawFn, n_codes: int = 6) -> Condition:
    """Any condition that does not contradict itself; its parts may overlap."""
    codes = st.frozensets(st.integers(0, n_codes - 1), max_size=3)
    all_of = draw(codes)
    none_of = draw(codes) - all_of
    groups = draw(st.lists(st.frozensets(st.integers(0, n_codes - 1), min_size=1, max_size=4), max_size=3))
    return Condition(n_codes, all_of, tuple(group for group in groups if not group <= none_of), none_of)


# ---- conditions


@LAW
@given(conditions(), st.lists(st.frozensets(st.integers(0, 5)), max_size=30))
def test_satisfied_by_is_the_definition(condition: Condition, sets: list[frozenset[int]]) -> None:
    expected = [
        condition.all_of <= codes and not codes & condition.none_of and all(codes & group for group in condition.any_of)
        for codes in sets
    ]
    satisfied = condition.satisfied_by(Records.from_sets(sets, 6))
    assert satisfied.dtype == bool
    assert satisfied.tolist() == expected


def test_an_empty_condition_asks_for_nothing() -> None:
    records = Records.from_sets([{0}, set(), {1, 2}], 3)
    assert Condition.of(3).is_empty
    assert Condition.of(3).satisfied_by(records).all()
    for asked in (Condition.of(3, all_of=[0]), Condition.of(3, any_of=[[0]]), Condition.of(3, none_of=[0])):
        assert not asked.is_empty
        assert not asked.satisfied_by(records).all()


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"all_of": [1, 3], "none_of": [3, 1]}, r"codes \[1, 3\] are both required \(all_of\) and forbidden"),
        ({"all_of": [5]}, "code 5 is outside the vocabulary: codes run from 0 to 4"),
        ({"none_of": [-1]}, "code -1 is outside the vocabulary: codes run from 0 to 4"),
        ({"any_of": [[0], [2, 9]]}, "code 9 is outside the vocabulary"),
        ({"any_of": [[0], []]}, "a group of any_of is empty: no record could satisfy it"),
        ({"any_of": [[2, 1]], "none_of": [1, 2, 3]}, r"every code of the any_of group \[1, 2\] is forbidden"),
    ],
)
def test_impossible_conditions_are_refused(parts: dict[str, Iterable[object]], message: str) -> None:
    with pytest.raises(ConditionError, match=message):
        Condition.of(5, **parts)  # type: ignore[arg-type]


# ---- energies


@LAW
@given(conditions(), st.floats(0.1, 10), st.integers(0, 1000))
def test_condition_energy_is_the_log_probability_of_the_condition(c: Condition, scale: float, seed: int) -> None:
    """For parts that share no code: codes are independent given the logits, so sum over every record."""
    parts = (c.all_of, c.none_of, *c.any_of)
    logits = gaussian((1, 6), min(scale, 3), seed)
    energy = ConditionEnergy(c)(logits).item()
    if sum(map(len, parts)) == len(frozenset().union(*parts)):
        every = np.array(list(itertools.product([0, 1], repeat=6)))
        q = torch.sigmoid(logits).numpy()
        p = np.where(every == 1, q, 1 - q).prod(1)
        assert energy == pytest.approx(math.log(p[c.satisfied_by(Records.from_dense(every))].sum()), abs=1e-9)
    else:  # parts that share a code are scored one by one
        each = [Condition.of(6, all_of=c.all_of), Condition.of(6, none_of=c.none_of)]
        each += [Condition.of(6, any_of=[group]) for group in c.any_of]
        assert energy == pytest.approx(sum(ConditionEnergy(part)(logits).item() for part in each), abs=1e-9)


@LAW
@given(conditions(), st.floats(0.1, 12), st.floats(-8, 8), st.integers(0, 1000))
def test_gradient_is_that_of_the_energy(condition: Condition, scale: float, shift: float, seed: int) -> None:
    energy = ConditionEnergy(condition)
    logits = (gaussian((3, 6), scale, seed) + shift).requires_grad_()
    (expected,) = torch.autograd.grad(energy(logits).sum(), logits)
    gradient = energy.gradient(logits.detach())
    torch.testing.assert_close(gradient, expected, rtol=1e-7, atol=1e-9)
    named = condition.all_of.union(condition.none_of, *condition.any_of)
    assert torch.all(gradient[:, [code for code in range(6) if code not in named]] == 0)


@pytest.mark.parametrize("logit", [-45.0, -30.0, -18.0, -1.0, 1.0, 18.0, 30.0, 45.0])
def test_energies_survive_certainty_in_float32(logit: float) -> None:
    """Log-odds of -30 are what a visible absent code has; energy and both its gradients must stay finite there."""
    energy = ConditionEnergy(Condition.of(4, all_of=[0], any_of=[[1, 2]], none_of=[3]))
    logits = torch.full((1, 4), logit, requires_grad=True)
    value = energy(logits)
    (automatic,) = torch.autograd.grad(value.sum(), logits)
    exact = logits.detach().double().requires_grad_()
    torch.testing.assert_close(value.double(), energy(exact), rtol=1e-4, atol=1e-6)
    (expected,) = torch.autograd.grad(energy(exact).sum(), exact)
    torch.testing.assert_close(energy.gradient(logits.detach()).double(), expected, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(automatic.double(), expected, rtol=1e-4, atol=1e-6)


# ---- the Langevin steps


def paper_langevin(guidance: LangevinGuidance, logits: Tensor, seed: int) -> Tensor:
    """y <- y - eta grad[lambda KL(p(x_0 | y) || p(x_0 | y0)) - strength V(y)] + sqrt(2 eta tau) noise, y (B, N, 2)."""
    generator = seeded(seed)
    y = torch.stack([0.3 - logits / 3, 0.3 + 2 * logits / 3], dim=-1)  # any y with these log-odds
    start = torch.log_softmax(y, dim=-1)
    for _ in range(guidance.iterations):
        y = y.detach().requires_grad_()
        log_p = torch.log_softmax(y, dim=-1)
        kl = (log_p.exp() * (log_p - start)).sum()
        objective = guidance.kl_weight * kl - guidance.strength * guidance.energy(y[..., 1] - y[..., 0]).sum()
        (gradient,) = torch.autograd.grad(objective, y)
        y = y - guidance.eta * gradient
        if guidance.temperature > 0:
            noise = torch.randn(y.shape, generator=generator)
            y = y + math.sqrt(2 * guidance.eta * guidance.temperature) * noise
    return (y[..., 1] - y[..., 0]).detach()


@settings(LAW, max_examples=40)
@given(
    condition=conditions(),
    strength=st.floats(0.1, 5),
    eta=st.floats(0.01, 0.5),
    kl_weight=st.floats(0, 2),
    temperature=st.sampled_from([0.0, 1e-3, 0.3]),
    iterations=st.integers(0, 12),
    seed=st.integers(0, 1000),
)
def test_closed_form_autograd_and_paper_agree(
    condition: Condition,
    strength: float,
    eta: float,
    kl_weight: float,
    temperature: float,
    iterations: int,
    seed: int,
) -> None:
    energy = ConditionEnergy(condition)
    options = (strength, eta, kl_weight, temperature, iterations)
    logits = gaussian((4, 6), 3, seed)
    closed = guide_logits(LangevinGuidance(energy, *options), logits, seed)
    automatic = guide_logits(LangevinGuidance(lambda odds: energy(odds), *options), logits, seed)
    torch.testing.assert_close(closed, automatic, rtol=1e-6, atol=1e-8)
    paper = paper_langevin(LangevinGuidance(energy, *options), logits, seed)
    torch.testing.assert_close(closed, paper, rtol=1e-5, atol=1e-5)  # the noise is float32


@pytest.mark.parametrize("logit", [-6.0, -2.0, 0.0, 3.0])
def test_one_code_is_shifted_by_the_closed_form_and_no_other(logit: float) -> None:
    """The paper's own setting: `code k is present`, eta = 0.1, lambda = 0.01, ten steps, no noise."""
    logits = torch.full((2, 5), logit, dtype=torch.float64)
    guided = guide_logits(LangevinGuidance(ConditionEnergy(Condition.of(5, all_of=[3])), temperature=0), logits)
    expected = logit
    for _ in range(10):
        q = 1 / (1 + math.exp(-expected))
        expected = expected + 2 * 0.1 * (1 - q) - 2 * 0.1 * 0.01 * q * (1 - q) * (expected - logit)
    torch.testing.assert_close(guided[:, 3], torch.full((2,), expected, dtype=torch.float64), rtol=1e-12, atol=0)
    others = [0, 1, 2, 4]
    assert torch.equal(guided[:, others], logits[:, others])
    assert expected < logit + 2.0  # at most iterations * 2 * eta: why the paper's guidance is weak


def test_the_defaults_are_the_papers() -> None:
    guidance = LangevinGuidance(ConditionEnergy(Condition.of(1)))
    assert (guidance.eta, guidance.kl_weight, guidance.iterations) == (0.1, 0.01, 10)
    assert guidance.temperature > 0  # the noise is live unless someone turns it off


def test_the_kl_pulls_back_towards_the_network() -> None:
    logits = torch.full((1, 1), -1.0)
    shifts = [
        (guide_logits(LangevinGuidance(ConditionEnergy(Condition.of(1, [0])), 1.0, 0.1, pull, 0.0), logits) + 1).item()
        for pull in (0.0, 1.0, 10.0)
    ]
    assert shifts[0] > shifts[1] > shifts[2] > 0


@pytest.mark.parametrize(("iterations", "eta", "temperature"), [(10, 0.1, 1e-3), (1, 0.1, 1.0), (20, 0.03, 0.5)])
def test_langevin_noise_is_live(iterations: int, eta: float, temperature: float) -> None:
    """Without gradients the steps are a random walk: each adds two independent draws of variance 2 eta tau to l."""
    logits = gaussian((20_000, 5), 2)
    flat = LangevinGuidance(lambda odds: 0 * odds.sum(1), 1.0, eta, 0.0, temperature, iterations)
    walked, other = (guide_logits(flat, logits, seed) - logits for seed in (1, 2))
    n = walked.numel()
    expected = math.sqrt(2 * iterations * 2 * eta * temperature)
    assert walked.std().item() == pytest.approx(expected, rel=5 / math.sqrt(2 * n))
    assert abs(walked.mean().item()) < 5 * expected / math.sqrt(n)
    assert not torch.equal(walked, other)
    for pair in (torch.stack([walked.flatten(), other.flatten()]), walked[:, :2].T):  # seeds and codes are independent
        assert abs(torch.corrcoef(pair)[0, 1].item()) < 5 / math.sqrt(pair.shape[1])
    cold = LangevinGuidance(flat.energy, 1.0, eta, 0.0, 0.0, iterations)
    assert torch.equal(guide_logits(cold, logits), logits)


def test_the_default_guidance_is_noisy() -> None:
    guidance = LangevinGuidance(ConditionEnergy(Condition.of(5, all_of=[3])))
    logits = torch.zeros(2_000, 5)
    first, second = (guide_logits(guidance, logits, seed) for seed in (1, 2))
    assert not torch.equal(first, second)
    assert torch.equal(first, guide_logits(guidance, logits, 1))
    spread = math.sqrt(2 * 10 * 2 * 0.1 * guidance.temperature)
    assert first[:, 0].std().item() == pytest.approx(spread, rel=0.1)


def test_strength_zero_draws_nothing_and_changes_nothing() -> None:
    generator, logits = seeded(3), torch.randn(4, 5, generator=seeded())
    before = generator.get_state()
    guidance = LangevinGuidance(ConditionEnergy(Condition.of(5, all_of=[3])), strength=0.0, temperature=1.0)
    assert torch.equal(guidance(logits, torch.zeros(4, 5), T, generator), logits)
    assert torch.equal(generator.get_state(), before)


def test_guidance_does_not_touch_what_it_is_given() -> None:
    logits = gaussian((3, 5), 1)
    before = logits.clone()
    for energy in (ConditionEnergy(Condition.of(5, [3])), ClassifierEnergy(lambda x: x.sum(1))):
        guided = guide_logits(LangevinGuidance(energy), logits)
        assert torch.equal(logits, before)
        assert not guided.requires_grad


# ---- what it does to records

# Two kinds of patients over six codes; codes 0, 1 and 2 belong to the rarer kind.
WEIGHTS = torch.tensor([0.85, 0.15], dtype=torch.float64)
CODES = torch.tensor([[0.02, 0.1, 0.05, 0.3, 0.2, 0.03], [0.6, 0.7, 0.4, 0.35, 0.2, 0.04]], dtype=torch.float64)
PREVALENCE = WEIGHTS @ CODES
N, STEPS, RECORDS = 6, 16, 4_000


def exact_denoiser(noise: Noise) -> Callable[[Tensor, Tensor], Tensor]:
    """log-odds of p(x_0 | x_t) for the mixture above."""

    def denoise(x_t: Tensor, t: Tensor) -> Tensor:
        absent, present = (noise.q_probability(torch.full((1, N), x_0), t[:1])[0] for x_0 in (0, 1))  # (N, S)
        codes = torch.arange(N)
        given_absent, given_present = absent[codes, x_t.long()], present[codes, x_t.long()]  # (B, N)
        on = CODES[:, None] * given_present  # (2, B, N)
        total = on + (1 - CODES[:, None]) * given_absent
        kind = torch.softmax(WEIGHTS.log()[:, None] + total.log().sum(-1), dim=0)  # (2, B)
        return torch.logit((kind[..., None] * on / total).sum(0), eps=1e-12)

    return denoise


def sample(kind: type[Noise], guide: Guide | None, seed: int = 0, n: int = RECORDS) -> Tensor:
    noise = kind.create(PREVALENCE, STEPS)
    return ancestral_sample(exact_denoiser(noise), noise, n, STEPS, seeded(seed), guide)


def langevin(iterations: int = 10, strength: float = 1.0, **parts: Iterable[object]) -> LangevinGuidance:
    condition = Condition.of(N, **parts)  # type: ignore[arg-type]
    return LangevinGuidance(ConditionEnergy(condition), strength=strength, iterations=iterations)


def prevalence(x: Tensor) -> Tensor:
    return x.double().mean(0)


def standard_error(p: float, n: int = RECORDS) -> float:
    return math.sqrt(p * (1 - p) / n)


@EVERY_NOISE
def test_strength_zero_is_unguided_bit_for_bit(kind: type[Noise]) -> None:
    unguided = sample(kind, None, n=500)
    assert torch.equal(sample(kind, langevin(strength=0.0, all_of=[0]), n=500), unguided)
    assert not torch.equal(sample(kind, langevin(strength=1.0, all_of=[0]), n=500), unguided)


@EVERY_NOISE
def test_guidance_raises_what_is_asked_for_and_its_company(kind: type[Noise]) -> None:
    shares = [prevalence(sample(kind, None))]
    shares += [prevalence(sample(kind, langevin(iterations, all_of=[0]))) for iterations in (4, 10, 30)]
    asked = [share[0].item() for share in shares]
    # unguided it is the truth; then each step up is far outside sampling error
    assert asked[0] == pytest.approx(PREVALENCE[0].item(), abs=5 * standard_error(asked[0]))
    for less, more in itertools.pairwise(asked):
        assert more - less > 5 * math.hypot(standard_error(less), standard_error(more))
    # codes 1 and 2 come with code 0 though V does not name them; code 4 has nothing to do with it
    for companion in (1, 2):
        assert shares[-1][companion] - shares[0][companion] > 5 * standard_error(0.5)
    assert abs(shares[-1][4] - shares[0][4]) < 5 * standard_error(0.2) * math.sqrt(2)


@EVERY_NOISE
def test_none_of_lowers_and_any_of_raises_the_union(kind: type[Noise]) -> None:
    plain = sample(kind, None)
    without = sample(kind, langevin(none_of=[1, 3]))
    for code in (1, 3):
        assert prevalence(plain)[code] - prevalence(without)[code] > 5 * standard_error(0.3)
    group = [0, 2, 5]
    union, guided = (x[:, group].any(1).double().mean().item() for x in (plain, sample(kind, langevin(any_of=[group]))))
    assert guided - union > 5 * math.hypot(standard_error(union), standard_error(guided))
    stronger = sample(kind, langevin(strength=3.0, any_of=[group]))[:, group].any(1).double().mean().item()
    assert stronger - guided > 5 * math.hypot(standard_error(stronger), standard_error(guided))


@EVERY_NOISE
def test_a_classifier_guides_through_every_code_it_reads(kind: type[Noise]) -> None:
    weight = torch.tensor([0.0, 2.0, 1.5, 0.0, -2.0, 0.0], dtype=torch.float64)

    def log_probability(x: Tensor) -> Tensor:
        return F.logsigmoid(x @ weight - 1)

    plain = sample(kind, None)
    guided = sample(kind, LangevinGuidance(ClassifierEnergy(log_probability), strength=3.0))
    before, after = (log_probability(x.double()).exp() for x in (plain, guided))
    error = math.hypot(before.std().item(), after.std().item()) / math.sqrt(RECORDS)
    assert (after.mean() - before.mean()).item() > 5 * error
    change = prevalence(guided) - prevalence(plain)
    assert change[1] > 5 * standard_error(0.3)
    assert change[4] < -5 * standard_error(0.2)


def test_classifier_energy_reads_the_expected_record() -> None:
    logits = gaussian((3, N), 2)
    seen = []
    energy = ClassifierEnergy(lambda x: seen.append(x) or x.sum(1))  # type: ignore[func-returns-value]
    torch.testing.assert_close(energy(logits), torch.sigmoid(logits).sum(1))
    torch.testing.assert_close(seen[0], torch.sigmoid(logits))
