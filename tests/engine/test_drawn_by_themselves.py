"""Records that are drawn each by itself beside dealt ones: the same on average, with the variance of real samples."""

import hashlib

import numpy as np
import pytest
import torch

from ehr.conditions import Condition, Target
from ehr.errors import ConfigError
from ehr.generators import CHUNK, GENERATORS
from ehr.generators.d3pm import D3PMConfig, SparseConfig
from ehr.generators.spec import DEALT, INDEPENDENTLY
from ehr.groups import Group, Groups
from ehr.records import Records
from ehr.rules import Rules
from worker.engine.conditioning import Starts
from worker.engine.generators import SampleRequest
from worker.engine.generators.d3pm import D3PMGenerator
from worker.engine.generators.independent import IndependentGenerator

RARE = 60  # codes
COMMON = torch.tensor([0.5, 0.3, 0.2, 0.1, 0.3, 0.2])
SHARES = torch.cat([COMMON, torch.full((RARE,), 0.0012)])
CHUNKS = 24


def model(
    noise: str = "absorbing", groups: Groups | None = None, rules: Rules | None = None, sized: bool = True
) -> D3PMGenerator:
    """Without training the network knows how common codes are and nothing else."""
    x = torch.rand(4000, len(SHARES), generator=torch.Generator().manual_seed(0)) < SHARES
    sizes = torch.bincount(x.sum(1)).double()
    network = SparseConfig(width=8, blocks=1, common_codes=4, size_first=sized)
    config = D3PMConfig(noise=noise, timesteps=20, denoiser=network)
    return D3PMGenerator(config, SHARES.double(), torch.cat([sizes / sizes.sum(), torch.zeros(1)]), 0, groups, rules)


def counts_by_chunk(drawer: D3PMGenerator, sampling: str) -> np.ndarray:
    """How many records of each chunk have each code, (chunks, N)."""
    records = drawer.sample(SampleRequest(CHUNKS * CHUNK, seed=3, steps=2, sampling=sampling))
    return records.to_dense(np.int64).reshape(CHUNKS, CHUNK, -1).sum(1)


def both(drawer: D3PMGenerator) -> tuple[np.ndarray, np.ndarray]:
    return counts_by_chunk(drawer, INDEPENDENTLY), counts_by_chunk(drawer, DEALT)


def test_numbers_of_a_rare_code_vary_as_those_of_a_real_sample_do() -> None:
    """The variance of n independent draws is n p (1 - p), here all but n p. Dealing leaves a fraction of it, and the
    same mean."""
    alone, dealt = (each[:, -RARE:] for each in both(model(sized=False)))
    assert alone.var(ddof=1) / alone.mean() == pytest.approx(1.0, abs=0.2)  # 1,440 numbers: a standard error of 0.05
    assert dealt.var(ddof=1) / dealt.mean() < 0.35
    assert alone.mean() == pytest.approx(CHUNK * 0.0012, rel=0.12) == dealt.mean()


def test_numbers_of_a_common_code_vary_in_the_same_way_whatever_the_order() -> None:
    """A network that contradicts itself makes codes more or less common by the order in which they are revealed. Chunks
    that share an order differ from each other by more than chance."""
    drawer = model(sized=False)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        drawer.denoiser.pairwise.weight.add_(  # type: ignore[union-attr, operator]
            torch.randn(len(SHARES), len(SHARES), generator=generator) * 1.5
        )
    alone, dealt = (_excess(each[:, : len(COMMON)] / CHUNK) for each in both(drawer))
    assert alone == pytest.approx(1.0, abs=0.45)  # 6 codes in 24 chunks: a standard error of 0.12
    assert dealt > 3


def _excess(shares: np.ndarray) -> float:
    """The variance between chunks over that of independent draws."""
    mean = shares.mean(0)
    return float((shares.var(0, ddof=1) / (mean * (1 - mean) / CHUNK)).mean())


def test_sizes_vary_as_those_of_a_real_sample_do() -> None:
    drawer = model()
    starts = Starts.under(drawer.denoiser, None, "cpu")
    generator = torch.Generator().manual_seed(2)
    small = {spread: [] for spread in (True, False)}
    for spread, counts in small.items():
        for _ in range(200):
            size = starts.draw(CHUNK, generator, spread)[1]
            assert size is not None
            counts.append(float((size == 1).sum()))
    share = np.mean(small[False]) / CHUNK
    assert np.var(small[False], ddof=1) / (CHUNK * share * (1 - share)) == pytest.approx(1.0, abs=0.45)
    assert np.var(small[True], ddof=1) < 1
    assert np.mean(small[True]) == pytest.approx(np.mean(small[False]), rel=0.05)


def test_conditions_targets_groups_and_rules_hold_for_every_record() -> None:
    groups = Groups(len(SHARES), (Group("a", (0, 1, 2), "exactly one"), Group("b", (4, 5), "at most one")))
    rules = Rules.of(groups, excludes=[(3, 4)])
    condition = Condition.of(len(SHARES), all_of=[10], any_of=[[20, 21]], none_of=[11])
    request = SampleRequest(
        3000, condition=condition, targets=(Target(len(SHARES), frozenset({3}), 0.25),), sampling=INDEPENDENTLY, steps=4
    )
    records = model(groups=groups, rules=rules).sample(request)
    assert condition.satisfied_by(records).all()
    assert records.having_any([3]).sum() == 750  # a share that was asked for is no matter of chance
    assert not groups.broken_by(records).any()
    assert not rules.broken_by(records).any()


def fingerprint(records: Records) -> str:
    return hashlib.sha256(records.indptr.tobytes() + records.indices.tobytes()).hexdigest()


def test_the_same_seed_gives_the_same_records_however_they_are_divided() -> None:
    drawer = model()
    whole = drawer.sample(SampleRequest(2 * CHUNK, seed=5, sampling=INDEPENDENTLY, steps=3))
    second = drawer.sample(SampleRequest(CHUNK, seed=5, sampling=INDEPENDENTLY, steps=3, first_chunk=1))
    assert fingerprint(whole.take(np.arange(CHUNK, 2 * CHUNK))) == fingerprint(second)
    dealt = [fingerprint(drawer.sample(SampleRequest(500, seed=5, steps=3, sampling=name))) for name in ("auto", DEALT)]
    assert dealt[0] == dealt[1] != fingerprint(whole.take(np.arange(500)))


def test_what_a_model_cannot_do_is_refused_by_name() -> None:
    condition = Condition.of(len(SHARES), all_of=[0])
    with pytest.raises(ConfigError, match=r"sampling: this 'd3pm' model .* met by 'exact'; known: 'auto', 'dealt'"):
        model("marginal").sample(SampleRequest(10, condition=condition, sampling=INDEPENDENTLY))
    assert len(model("marginal").sample(SampleRequest(10, sampling=INDEPENDENTLY, steps=2))) == 10
    by_themselves = IndependentGenerator(SHARES.numpy())
    assert by_themselves.sampling_of(SampleRequest(10)) == INDEPENDENTLY
    with pytest.raises(ConfigError, match="known: 'auto', 'independent'"):
        by_themselves.sample(SampleRequest(10, sampling=DEALT))


def test_every_generator_can_draw_records_by_themselves() -> None:
    assert all(INDEPENDENTLY in spec.samplings({}, None) for spec in GENERATORS)
