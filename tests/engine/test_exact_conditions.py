"""Conditions and the block sampler, with the exact denoiser of codes few enough to enumerate every record."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from ehr.conditions import Condition, Target
from ehr.errors import ConditionError, ConfigError
from ehr.generators import CHUNK
from ehr.generators.d3pm import D3PMConfig, SparseConfig
from ehr.groups import Groups
from worker.engine import reveal
from worker.engine.blocks import RAMP, Ties, blocks_of, blocks_of_chunk
from worker.engine.conditioning import Starts
from worker.engine.contexts import Contexts
from worker.engine.denoisers import UNKNOWN_SIZE, Denoiser, SparseDenoiser
from worker.engine.generators import SampleRequest
from worker.engine.generators.d3pm import D3PMGenerator
from worker.engine.generators.protocol import Chunk, EffectiveSize
from worker.engine.groups import GroupTable
from worker.engine.noise import (
    ABSENT,
    HIDDEN,
    PRESENT,
    AbsorbingNoise,
    MarginalNoise,
    Noise,
    TwoStateNoise,
    UniformNoise,
)
from worker.engine.reveal import deal_offsets, reveal_sample
from worker.engine.smc import POPULATION, effective_records, twisted_sample

N = 6
EVERY = torch.tensor(list(itertools.product([0, 1], repeat=N)), dtype=torch.uint8)  # (64, N)
WEIGHTS = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)
CODES = torch.tensor(
    [[0.05, 0.1, 0.3, 0.02, 0.2, 0.1], [0.8, 0.6, 0.4, 0.1, 0.05, 0.3], [0.1, 0.7, 0.1, 0.9, 0.6, 0.5]],
    dtype=torch.float64,
)
JOINT = WEIGHTS @ torch.where(EVERY == 1, CODES[:, None], 1 - CODES[:, None]).prod(-1)  # P(x) of every record
SIZES = EVERY.sum(1)
RECORDS = 20_000


class Enumerated(Denoiser):
    """p(x_0 | x_t), and p(x_0 | x_t, size) when told the size, by Bayes' rule over every record."""

    name = "enumerated"

    def __init__(self, noise: Noise, sized: bool) -> None:
        super().__init__()
        self.noise, self.sized = noise, sized

    def _posterior(self, x_t: Tensor, t: Tensor) -> Tensor:
        q = self.noise.q_probability(EVERY, t[:1])  # (64, N, S)
        chosen = x_t.long()[:, None, :, None].expand(-1, len(EVERY), -1, -1)
        likelihood = q.expand(len(x_t), -1, -1, -1).gather(-1, chosen).squeeze(-1).prod(-1)  # (B, 64)
        return likelihood * JOINT

    def size_log_probability(self, x_known: Tensor) -> Tensor | None:
        weight = self._posterior(x_known, torch.ones(len(x_known), dtype=torch.long))
        by_size = torch.zeros(len(x_known), N + 1, dtype=torch.float64).index_add_(1, SIZES, weight)
        return by_size.log() if self.sized else None

    def forward(self, x_t: Tensor, t: Tensor, size: Tensor | None = None) -> Tensor:
        weight = self._posterior(x_t, t)
        if self.sized and size is not None:
            weight = weight * ((size.unsqueeze(1) == SIZES) | (size.unsqueeze(1) == UNKNOWN_SIZE))
        present, absent = weight @ EVERY.double(), weight @ (1 - EVERY.double())
        # What cannot happen together has no posterior; sampling in large blocks may ask for it.
        return torch.where(present + absent > 0, (present.log() - absent.log()).clamp(-40, 40), -40.0)

    @property
    def size_log_prior(self) -> Tensor | None:
        return torch.zeros(N + 1, dtype=torch.float64).index_add_(0, SIZES, JOINT).log() if self.sized else None


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def absorbing() -> Noise:
    return AbsorbingNoise.create(JOINT @ EVERY.double(), 100)


def truth(condition: Condition | None) -> Tensor:
    """P(x | condition) of every record."""
    met = torch.ones(len(EVERY), dtype=torch.bool)
    if condition is not None:
        met &= (EVERY[:, sorted(condition.all_of)] == 1).all(1) & (EVERY[:, sorted(condition.none_of)] == 0).all(1)
        for group in condition.any_of:
            met &= (EVERY[:, sorted(group)] == 1).any(1)
    p = JOINT * met
    return p / p.sum()


def distance(x: Tensor, expected: Tensor) -> float:
    """Total variation between the records drawn and what they should be."""
    place = (x.long() * 2 ** torch.arange(N - 1, -1, -1)).sum(1)
    share = torch.bincount(place, minlength=len(EVERY)).double() / len(x)
    return float(0.5 * (share - expected).abs().sum())


def sampling_noise(expected: Tensor, n: int) -> float:
    """The mean total variation of n independent draws."""
    return float((2 * expected * (1 - expected) / (np.pi * n)).sqrt().sum() / 2)


def draw(denoiser: Denoiser, condition: Condition | None, steps: int, n: int = RECORDS) -> tuple[Tensor, Tensor | None]:
    generator = seeded()
    x, size = Starts.under(denoiser, condition, "cpu").draw(n, generator)
    expected = JOINT @ EVERY.double()
    hidden = (x == HIDDEN).any(0).nonzero().squeeze(1)
    blocks = blocks_of(hidden, expected, Ties.seen_by(denoiser, expected), steps, np.random.default_rng(0))
    return reveal_sample(denoiser.reading(x, size), blocks, deal_offsets(N, 0, 0), generator), size


CONDITIONS = {
    "none": None,
    "one code": Condition.of(N, all_of=[3]),
    "two codes": Condition.of(N, all_of=[0, 3]),
    "without": Condition.of(N, none_of=[1, 2]),
    "any of": Condition.of(N, any_of=[[0, 3, 4]]),
    "two groups that overlap": Condition.of(N, any_of=[[0, 3], [3, 4, 5]]),
    "everything at once": Condition.of(N, all_of=[1], any_of=[[0, 2, 3]], none_of=[4]),
    "a group with a forbidden member": Condition.of(N, any_of=[[3, 4]], none_of=[4]),
}
EVERY_CONDITION = pytest.mark.parametrize("condition", CONDITIONS.values(), ids=CONDITIONS.keys())


# ---- noise that reveals


@pytest.mark.parametrize("sized", [True, False])
@EVERY_CONDITION
def test_one_code_at_a_time_is_exact_under_every_condition(condition: Condition | None, sized: bool) -> None:
    x, _ = draw(Enumerated(absorbing(), sized), condition, steps=100)
    expected = truth(condition)
    assert distance(x, expected) < 1.6 * sampling_noise(expected, RECORDS)


def test_setting_the_bit_would_be_caught() -> None:
    """The distance above tells a conditioned cohort from an unconditional one with the code set."""
    condition = Condition.of(N, all_of=[3])
    x, _ = draw(Enumerated(absorbing(), True), None, steps=100)
    x[:, 3] = 1
    expected = truth(condition)
    assert distance(x, expected) > 10 * sampling_noise(expected, RECORDS)


@pytest.mark.parametrize("steps", [1, 2, 3])
@EVERY_CONDITION
def test_in_few_calls_conditions_and_sizes_still_hold(condition: Condition | None, steps: int) -> None:
    x, size = draw(Enumerated(absorbing(), True), condition, steps)
    assert size is not None
    # Six codes in three blocks: now and then the last block has no room for what is left.
    assert (x.sum(1) == size).double().mean() > 0.97
    assert truth(condition)[(x.long() * 2 ** torch.arange(N - 1, -1, -1)).sum(1)].min() > 0


def test_sizes_inside_a_slice_are_those_of_the_slice() -> None:
    condition = Condition.of(N, all_of=[3])
    _, size = draw(Enumerated(absorbing(), True), condition, steps=1)
    assert size is not None
    expected = torch.zeros(N + 1, dtype=torch.float64).index_add_(0, SIZES, truth(condition))
    share = torch.bincount(size, minlength=N + 1).double() / len(size)
    assert (share - expected).abs().max() < 1e-3  # quantiles are spread evenly: far below sampling noise
    unconditional = torch.zeros(N + 1, dtype=torch.float64).index_add_(0, SIZES, JOINT)
    assert (expected - unconditional).abs().max() > 0.1


def test_more_codes_than_any_record_had_leave_no_room_for_others() -> None:
    noise = AbsorbingNoise.create(torch.full((8,), 0.2), 100)
    sizes = torch.tensor([0.5, 0.5, 0.0])
    denoiser = SparseDenoiser(noise, torch.full((8,), 0.2), sizes, SparseConfig(width=8, blocks=1)).eval()
    starts = Starts.under(denoiser, Condition.of(8, all_of=[0, 1, 2, 3, 4]), "cpu")
    reading, blocks = denoiser.reading(*starts.draw(50, seeded())), list(torch.arange(5, 8).split(1))
    drawn = reveal_sample(reading, blocks, deal_offsets(8, 0, 0), seeded())
    assert (drawn.sum(1) == 5).all()


class Forgetful(Denoiser):
    """Every record has one code: the first or the second, hardly ever the third. It does not see that it is missing."""

    name = "forgetful"

    def __init__(self) -> None:
        super().__init__()
        self.noise = AbsorbingNoise.create(torch.tensor([0.5, 0.5, 1e-3]), 100)

    def forward(self, x_t: Tensor, t: Tensor, size: Tensor | None = None) -> Tensor:
        return torch.logit(torch.tensor([0.5, 0.5, 1e-3])).expand(len(x_t), -1)

    @property
    def size_log_prior(self) -> Tensor | None:
        return torch.tensor([-40.0, 0.0])


def test_a_missing_code_is_not_looked_for_in_the_last_block_alone() -> None:
    """A quarter of the records get to the last block without a code: what is missing is one of the likely ones."""
    denoiser = Forgetful()
    x, size = torch.full((RECORDS, 3), HIDDEN, dtype=torch.uint8), torch.ones(RECORDS, dtype=torch.long)
    blocks = list(torch.arange(3).split(1))
    drawn = reveal_sample(denoiser.reading(x, size), blocks, deal_offsets(3, 0, 0), seeded())
    assert (drawn.sum(1) == 1).all()
    assert drawn[:, 2].double().mean() < 0.01


# ---- dealing


def test_dealing_keeps_each_record_s_probability_and_fixes_the_number() -> None:
    p = torch.rand(50, 3, generator=seeded(), dtype=torch.float64) * torch.tensor([0.03, 0.06, 0.01])
    rounds = 20_000
    hits, numbers = torch.zeros_like(p), []
    generator = seeded(1)
    for k in range(rounds):
        dealt = reveal._deal(p, deal_offsets(3, 7, k), generator)
        hits += dealt
        numbers.append(dealt.sum(0))
    standard_error = (p * (1 - p) / rounds).sqrt()
    assert ((hits / rounds - p).abs() / standard_error).max() < 4.5
    total = torch.stack(numbers).double()
    assert ((total - p.sum(0)).abs() < 1).all()
    # Over consecutive chunks the totals stay within a few records of what is expected; drawing would stray by dozens.
    assert (total.sum(0) - rounds * p.sum(0)).abs().max() < 12


def test_dealt_codes_do_not_meet_in_the_same_records() -> None:
    """Two codes with the same probabilities in one block: together as often as independent codes would be."""
    p = torch.full((1000, 2), 0.0015, dtype=torch.float64)
    generator, together, rounds = seeded(), 0, 4_000
    for k in range(rounds):
        together += int(reveal._deal(p, deal_offsets(2, 3, k), generator).all(1).sum())
    expected = rounds * 1000 * 0.0015**2
    assert abs(together - expected) < 5 * expected**0.5


def test_a_rare_code_s_number_hardly_varies_between_cohorts() -> None:
    noise = AbsorbingNoise.create(torch.full((40,), 1e-3), 100)
    config = SparseConfig(width=8, blocks=1, size_first=False)
    denoiser = SparseDenoiser(noise, torch.full((40,), 1e-3), torch.tensor([1.0]), config).eval()
    generator, totals = seeded(), torch.zeros(40)
    for chunk in range(20):
        x = torch.full((1024, 40), HIDDEN, dtype=torch.uint8)
        blocks = list(torch.randperm(40, generator=generator).split(10))
        totals += reveal_sample(denoiser.reading(x, None), blocks, deal_offsets(40, 1, chunk), generator).sum(0)
    assert totals.mean() == pytest.approx(20.48, abs=0.5)
    assert totals.var() < 0.25 * 20.48  # of independent draws it would be about 20


# ---- blocks


def test_blocks_hold_every_code_once_and_about_equally_many_expected_codes() -> None:
    expected = 0.4 / torch.arange(1, 901) ** 0.7
    ties = Ties(np.where(np.arange(900) < 300, np.arange(900), -1), np.zeros((300, 300)))
    blocks = blocks_of(torch.arange(900), expected, ties, 12, np.random.default_rng(0))
    assert sorted(torch.cat(blocks).tolist()) == list(range(900))
    sums = torch.stack([expected[codes].sum() for codes in blocks])
    assert len(blocks) == 12
    assert (sums / sums.mean() - 1).abs().max() < 0.3
    others = blocks_of(torch.arange(900), expected, ties, 12, np.random.default_rng(1))
    assert [set(a.tolist()) for a in blocks] != [set(b.tolist()) for b in others]


def test_of_two_chunks_each_reveals_first_what_the_other_reveals_last() -> None:
    expected, ties = torch.full((60,), 0.1), Ties.none(60)
    chunks = [blocks_of_chunk(torch.arange(60), expected, ties, 6, seed=3, chunk=chunk) for chunk in range(3)]
    first, second, third = ([set(codes.tolist()) for codes in blocks] for blocks in chunks)
    assert second == first[::-1]
    assert third != first


def test_blocks_grow_and_go_backwards_in_the_next_chunk() -> None:
    """Where little is known yet, little is drawn at once; what one chunk reveals late the next reveals early."""
    expected, ties = 0.4 / torch.arange(1, 901) ** 0.7, Ties.none(900)
    chunks = [blocks_of_chunk(torch.arange(900), expected, ties, 12, 3, chunk, ramp=RAMP) for chunk in range(2)]
    places = []
    for blocks in chunks:
        assert sorted(torch.cat(blocks).tolist()) == list(range(900))
        sums = torch.stack([expected[codes].sum() for codes in blocks])
        assert sums[0] < 0.6 * sums.mean() and sums[-1] > 1.4 * sums.mean()
        places.append(torch.cat([torch.full((len(codes),), number) for number, codes in enumerate(blocks)]))
        places[-1] = places[-1][torch.cat(blocks).argsort()].double()
    assert torch.corrcoef(torch.stack(places))[0, 1] < -0.9
    few = blocks_of_chunk(torch.arange(8), torch.full((8,), 0.3), Ties.none(8), 16, 3, 1, ramp=RAMP)
    assert [len(codes) for codes in few] == [1] * 8  # none shares its block with another


def test_codes_that_go_together_are_not_drawn_together() -> None:
    """The network's own ties: pairs (0, 1), (2, 3), ... of which each code makes the other likely."""
    n = 24
    prevalence = torch.full((n,), 0.1)
    config = SparseConfig(width=8, blocks=1, size_first=False)
    denoiser = SparseDenoiser(AbsorbingNoise.create(prevalence, 100), prevalence, torch.tensor([1.0]), config).eval()
    assert denoiser.pairwise is not None
    partner = torch.arange(n) ^ 1
    with torch.no_grad():
        denoiser.pairwise.weight[torch.arange(n), partner] = 4.0
    ties = Ties.seen_by(denoiser, prevalence)
    assert np.array_equal(ties.strength[ties.place][:, ties.place].argmax(1), partner.numpy())
    for seed in range(20):
        for codes in blocks_of(torch.arange(n), prevalence, ties, 4, np.random.default_rng(seed)):
            assert not set(codes.tolist()) & set(partner[codes].tolist())


# ---- what the network reads


@pytest.mark.parametrize("copies", [1, 3])  # records of which the same is known are read once
@pytest.mark.parametrize("size_first", [True, False])
@pytest.mark.parametrize("in_order", [False, True])  # the order is known, and what is known comes first in it
def test_reading_step_by_step_equals_reading_at_once(in_order: bool, size_first: bool, copies: int) -> None:
    n, rows, generator = 30, 17 * copies, seeded()
    prevalence = torch.rand(n, generator=generator) * 0.3
    noise = AbsorbingNoise.create(prevalence, 100)
    sizes = torch.full((n,), 1 / n)
    denoiser = SparseDenoiser(noise, prevalence, sizes, SparseConfig(width=16, common_codes=9, size_first=size_first))
    for weight in denoiser.parameters():
        torch.nn.init.normal_(weight, std=0.3, generator=generator)
    denoiser.eval()
    truth_ = (torch.rand(17, n, generator=generator) < 0.3).to(torch.uint8)
    x = torch.where(torch.rand(17, n, generator=generator) < 0.2, truth_, HIDDEN).to(torch.uint8)
    order = torch.randperm(n, generator=generator)
    if in_order:
        x = torch.where(torch.isin(torch.arange(n), order[:5]), x, HIDDEN).to(torch.uint8)
    truth_, x = truth_.repeat(copies, 1), x.repeat(copies, 1)
    size = truth_.sum(1)
    reading = denoiser.reading(x, size, order=order if in_order else None)
    t = torch.ones(rows, dtype=torch.long)
    with torch.no_grad():
        for codes in order.split(7):
            assert (
                torch.allclose(reading.logits(codes), denoiser(reading.x, t, size)[:, codes], atol=1e-4)
                or (reading.x[:, codes] != HIDDEN).any()
            )
            hidden = reading.x[:, codes] == HIDDEN
            expected = denoiser(reading.x, t, size)[:, codes]
            assert torch.allclose(reading.logits(codes)[hidden], expected[hidden], atol=1e-4)
            reading.reveal(codes, truth_[:, codes] == PRESENT)
            if len(size) > 10:
                keep = torch.arange(len(size) - 1)
                reading.keep(keep)
                size, t, truth_ = size[keep], t[keep], truth_[keep]
    assert torch.equal(reading.x, truth_)


# ---- noise that does not reveal


@pytest.mark.parametrize("kind", [UniformNoise, MarginalNoise], ids=lambda kind: kind.name)
@pytest.mark.parametrize("name", ["one code", "everything at once", "two groups that overlap"])
def test_twisted_samples_approach_the_conditional_distribution(kind: type[TwoStateNoise], name: str) -> None:
    condition = CONDITIONS[name]
    assert condition is not None
    noise = kind.create(JOINT @ EVERY.double(), 40)
    assert isinstance(noise, TwoStateNoise)
    x, _ = twisted_sample(Enumerated(noise, False), noise, condition, 6_400, 40, seeded())
    expected = truth(condition)
    assert expected[(x.long() * 2 ** torch.arange(N - 1, -1, -1)).sum(1)].min() > 0
    # particles of one population are related, so the noise is that of fewer records
    assert distance(x, expected) < 3 * sampling_noise(expected, 6_400)


def test_effective_records_are_those_of_kish_and_copies_count_once() -> None:
    weight = torch.rand(2 * POPULATION, generator=seeded(), dtype=torch.float64)
    root, x = torch.arange(2 * POPULATION), torch.zeros(2 * POPULATION, N, dtype=torch.uint8)
    kish = sum(float(each.sum() ** 2 / each.square().sum()) for each in weight.split(POPULATION))
    assert effective_records(x, root, weight.log()) == pytest.approx(kish)  # alike, but drawn independently
    even = torch.zeros(2 * POPULATION, dtype=torch.float64)
    assert effective_records(x, root // 4 * 4, even) == pytest.approx(2 * POPULATION / 4)
    apart = x.clone()
    apart[:, 0] = root % 2  # of four descendants two and two are alike
    assert effective_records(apart, root // 4 * 4, even) == pytest.approx(2 * POPULATION / 2)
    even[:POPULATION] = -torch.inf  # nobody fits
    assert effective_records(x, root, even) == pytest.approx(POPULATION)


def test_what_the_model_holds_for_impossible_is_said_not_searched_for() -> None:
    class Never(Enumerated):
        def forward(self, x_t: Tensor, t: Tensor, size: Tensor | None = None) -> Tensor:
            logits = super().forward(x_t, t, size)
            logits[:, [0, 3]] = -80.0
            return logits

    noise = MarginalNoise.create(torch.full((N,), 1e-6), 10)
    assert isinstance(noise, TwoStateNoise)
    with pytest.raises(ConditionError, match="next to impossible"):
        twisted_sample(Never(noise, False), noise, Condition.of(N, any_of=[[0, 3]]), 64, 10, seeded())


# ---- the generator


def generator_for(noise: str, n: int = 12) -> D3PMGenerator:
    prevalence = torch.linspace(0.3, 0.02, n, dtype=torch.float64)
    config = D3PMConfig(noise=noise, timesteps=20, denoiser=SparseConfig(width=8, blocks=1))
    return D3PMGenerator(config, prevalence, torch.tensor([0.1, 0.3, 0.3, 0.2, 0.1, 0.0]))


@pytest.mark.parametrize("noise", ["absorbing", "marginal", "uniform"])
def test_a_generator_that_weighs_records_tells_what_they_are_worth(noise: str) -> None:
    generator, condition = generator_for(noise), Condition.of(12, all_of=[5])
    size = EffectiveSize()
    request = SampleRequest(n=300, seed=4, condition=condition)
    drawn = generator.sample(replace(request, effective_size=size))
    assert np.array_equal(drawn.indices, generator.sample(request).indices)  # telling changes nothing
    if noise == "absorbing":  # conditions are met by clamping: nothing is drawn by weight
        assert size.weighted == 0
    else:
        assert size.weighted == 300 and 0 < size.effective <= 300
    unasked = EffectiveSize()
    generator.sample(SampleRequest(n=100, effective_size=unasked))
    assert unasked.weighted == 0 and unasked.of(100) is None


@pytest.mark.parametrize("noise", ["absorbing", "marginal", "uniform"])
def test_every_record_satisfies_the_condition_whatever_the_noise(noise: str) -> None:
    condition = Condition.of(12, all_of=[11], any_of=[[0, 9]], none_of=[2])
    x = generator_for(noise).sample(SampleRequest(1_500, condition=condition, steps=8))
    assert condition.satisfied_by(x).all()
    assert len(x) == 1_500


def test_targets_are_met_to_the_record_and_excluded_elsewhere() -> None:
    targets = (Target(12, frozenset([3, 4]), 0.3), Target(12, frozenset([11]), 0.5))
    for n in (1_000, 2_500):
        x = generator_for("absorbing").sample(SampleRequest(n, targets=targets, steps=4)).to_dense(np.uint8)
        first, second = x[:, [3, 4]].any(1), x[:, 11] == 1
        assert abs(first.sum() - 0.3 * n) <= 1
        assert abs(second.sum() - 0.5 * n) <= 1
        assert abs((first & second).mean() - 0.15) < 0.05  # neither tied to the other nor against it


def test_a_target_beside_a_condition() -> None:
    condition = Condition.of(12, all_of=[0], none_of=[1])
    request = SampleRequest(500, condition=condition, targets=(Target(12, frozenset([5]), 0.2),), steps=4)
    x = generator_for("absorbing").sample(request)
    assert condition.satisfied_by(x).all()
    assert x.to_dense(np.uint8)[:, 5].sum() == pytest.approx(100, abs=1)


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_is_a_share(share: float) -> None:
    with pytest.raises(ConditionError, match="between 0 and 1"):
        Target(12, frozenset([1]), share)


def test_a_target_that_contradicts_the_condition_is_refused() -> None:
    request = SampleRequest(
        10, condition=Condition.of(12, all_of=[5]), targets=(Target(12, frozenset([5]), 0.5),), steps=4
    )
    with pytest.raises(ConditionError, match="both required"):
        generator_for("absorbing").sample(request)


def test_methods_are_those_the_generator_has() -> None:
    generator = generator_for("absorbing")
    condition = Condition.of(12, all_of=[1])
    assert generator.method_of(SampleRequest(1, condition=condition)) == "exact"
    with pytest.raises(ConfigError, match="exact or langevin"):
        generator.sample(SampleRequest(10, condition=condition, method="magic"))
    with pytest.raises(ConfigError, match="targets are met by"):
        generator.sample(SampleRequest(10, targets=(Target(12, frozenset([1]), 0.5),), method="langevin"))


def test_chunks_of_a_cohort_do_not_depend_on_who_draws_them() -> None:
    generator, condition = generator_for("absorbing"), Condition.of(12, any_of=[[3, 11]])
    target = (Target(12, frozenset([1]), 0.25),)
    whole = generator.sample(SampleRequest(2 * CHUNK + 100, seed=5, condition=condition, targets=target, steps=4))
    tail = generator.sample(
        SampleRequest(CHUNK + 100, seed=5, condition=condition, targets=target, steps=4, first_chunk=1)
    )
    assert np.array_equal(whole.take(np.arange(CHUNK, len(whole))).indices, tail.indices)
    other = generator.sample(SampleRequest(2 * CHUNK + 100, seed=6, condition=condition, targets=target, steps=4))
    assert not np.array_equal(whole.indices, other.indices)


def test_a_chunk_s_rows_are_divided_without_loss() -> None:
    request = SampleRequest(1000, targets=(Target(12, frozenset([1]), 0.4), Target(12, frozenset([2]), 1.0)))
    parts = Chunk(0, 1000, request).conditions()
    assert sorted(np.concatenate([rows for rows, _ in parts]).tolist()) == list(range(1000))
    assert len(parts) == 2  # nobody is without the second


# ---- training on contexts


def test_contexts_show_what_is_there_and_hide_the_rest() -> None:
    x_start = (torch.rand(2_000, 30, generator=seeded()) < 0.2).to(torch.uint8)
    contexts = Contexts.draw(x_start, seeded(1), GroupTable(Groups(x_start.shape[1])))
    shown = contexts.x_known != HIDDEN
    assert torch.equal(contexts.x_known[shown], x_start[shown])
    assert (contexts.x_known == PRESENT).any(1).float().mean() > 0.8
    assert 0.05 < ((contexts.x_known == ABSENT).any(1)).float().mean() < 0.6
    assert contexts.size_shown.float().mean() == 0.5
    assert torch.equal(contexts.size[contexts.size_shown], x_start.sum(1)[contexts.size_shown])
    assert (contexts.size[~contexts.size_shown] == UNKNOWN_SIZE).all()


def test_weights_undo_that_codes_of_small_records_are_picked_more_often() -> None:
    """Given that code 0 alone is shown, the weighted records are those that have code 0: sizes tell."""
    generator = seeded(2)
    rate = torch.where(torch.rand(200_000, 1, generator=generator) < 0.5, 0.1, 0.6)
    x_start = (torch.rand(200_000, 12, generator=generator) < rate).to(torch.uint8)
    contexts = Contexts.draw(x_start, generator, GroupTable(Groups(x_start.shape[1])))
    present = contexts.x_known == PRESENT
    alone = present[:, 0] & (present.sum(1) == 1) & ~(contexts.x_known == ABSENT).any(1)
    sizes, weight = x_start[alone].sum(1).double(), contexts.weight[alone].double()
    expected = x_start[x_start[:, 0] == 1].sum(1).double().mean()
    assert (weight * sizes).sum() / weight.sum() == pytest.approx(float(expected), abs=0.08)
    assert sizes.mean() < expected - 0.5  # which the plain mean misses
