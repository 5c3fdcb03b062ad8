"""Groups of codes of which one holds: found in data, exact laws, and never broken by a sampler."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ehr.conditions import Condition, Target
from ehr.errors import ConditionError, DataError
from ehr.groups import DeclaredGroup, Group, Groups, find_groups
from ehr.records import Records
from worker.engine.generators import FitRequest, Generator, SampleRequest, from_state, generator_named
from worker.engine.groups import GroupTable
from worker.engine.noise import HIDDEN, AbsorbingNoise, MarginalNoise, UniformNoise

CODES = ("SEX:F", "SEX:M", "LAB#D1", "LAB#D2", "LAB#D3", "A:1", "A:2", "A:3", "A:4")
SEX, LAB = Group("SEX:*", (0, 1), "exactly one", "known"), Group("LAB#D*", (2, 3, 4), "at most one", "known")
GROUPS = Groups(9, (SEX, LAB))


def drawn(n: int, seed: int = 0) -> Records:
    """Everyone has a sex, two in three a decile of the lab; A:1 goes with M, A:2 with the third decile."""
    rng = np.random.default_rng(seed)
    x = np.zeros((n, 9), dtype=np.uint8)
    sex = rng.random(n) < 0.4
    x[np.arange(n), sex.astype(int)] = 1
    lab = rng.choice(4, n, p=[0.34, 0.3, 0.34, 0.02])
    x[np.flatnonzero(lab), lab[lab > 0] + 1] = 1
    x[:, 5] = rng.random(n) < np.where(sex, 0.6, 0.1)
    x[:, 6] = rng.random(n) < np.where(lab == 3, 0.8, 0.1)
    x[:, 7:] = rng.random((n, 2)) < 0.2
    return Records.from_dense(x)


# --- what the data says ---


def test_groups_are_found_by_prefix_and_say_why() -> None:
    found = find_groups(drawn(3_000), CODES)
    assert {(g.name, g.codes, g.rule, g.origin) for g in found.groups} == {
        ("LAB#D*", LAB.codes, "at most one", "known"),
        ("SEX:*", SEX.codes, "exactly one", "known"),
    }
    assert not found.broken_by(drawn(500, seed=1)).any()
    renamed = ("DISCHARGE:01", "DISCHARGE:20", *CODES[2:])
    assert ("DISCHARGE:*", "known") in {(g.name, g.origin) for g in find_groups(drawn(3_000), renamed).groups}


def test_the_only_sex_there_is_is_everybodys() -> None:
    """Of known groups one member makes a group; of any other prefix it is a code like others."""
    x = drawn(400).to_dense(np.uint8)
    x[:, 0], x[:, 1], x[:, 7] = 1, 0, 1
    codes = ("SEX:F", *(f"X:{i}" for i in range(2, 7)), "Y:1", "Z:1")
    train = Records.from_dense(x[:, [0, *range(2, 9)]])
    found = find_groups(train, codes)
    assert [(group.name, group.rule) for group in found.groups] == [("SEX:*", "exactly one")]
    some = Condition.of(8, all_of=[5])
    for noise in ("absorbing", "marginal", "uniform"):
        settings = MODELS[noise] | {"training": {"epochs": 1}}
        fitted = generator_named("d3pm").fit(FitRequest(train=train, settings=settings, groups=found))
        for more in ({}, {"condition": some}, {"condition": some, "method": "langevin", "strength": 5.0}):
            assert len(fitted.sample(SampleRequest(300, **more)).having(0)) == 300


def test_a_little_noise_does_not_hide_a_group_and_chance_does_not_make_one() -> None:
    x = drawn(5_000).to_dense(np.uint8)
    x[0, :2] = 1  # one record is both
    assert SEX.codes in [g.codes for g in find_groups(Records.from_dense(x), CODES).groups]
    rare = np.random.default_rng(0).random((5_000, 3)) < 0.01  # seldom together, as chance would have it
    assert len(find_groups(Records.from_dense(rare.astype(np.uint8)), ("B:1", "B:2", "B:3"))) == 0
    assert len(find_groups(drawn(50), CODES)) == 0  # too few to say anything


def test_declared_groups_are_checked() -> None:
    def declared(codes: str) -> Groups:
        return find_groups(drawn(500), CODES, [DeclaredGroup(codes=codes, rule="exactly one")])

    assert declared("SEX:*").groups[0].origin == "declared"
    with pytest.raises(DataError, match="does not hold"):
        declared("A:*")
    with pytest.raises(DataError, match="two or more"):
        declared("PAYER:*")


def test_targets_that_would_break_a_group_are_refused() -> None:
    everyone = Condition(9)
    GROUPS.check(everyone, [Target(9, frozenset([0]), 0.5), Target(9, frozenset([2]), 0.5)], CODES)
    with pytest.raises(ConditionError, match="exclude each other"):
        GROUPS.check(Condition.of(9, all_of=[0]), [Target(9, frozenset([1]), 0.5)], CODES)


def test_groups_survive_a_manifest() -> None:
    assert Groups.from_json(GROUPS.as_json(CODES), CODES) == GROUPS


def test_a_condition_is_settled_or_answered_with_the_group() -> None:
    settled = GROUPS.settled(Condition.of(9, all_of=[0]), CODES)
    assert settled.all_of == {0} and settled.none_of == {1}
    assert GROUPS.settled(Condition.of(9, none_of=[0])).all_of == {1}  # exactly one, and one is left
    assert GROUPS.settled(Condition.of(9, none_of=[2, 3])).all_of == frozenset()  # at most one: none will do
    with pytest.raises(ConditionError, match=r"'SEX:F' and 'SEX:M' exclude each other.*exactly one of SEX"):
        GROUPS.settled(Condition.of(9, all_of=[0, 1]), CODES)
    with pytest.raises(ConditionError, match="forbids every code"):
        GROUPS.settled(Condition.of(9, none_of=[0, 1]))
    with pytest.raises(ConditionError, match="exclude each other"):
        GROUPS.settled(Condition.of(9, all_of=[0], any_of=[[1]]))


# --- laws ---


def states(group: Group) -> list[int | None]:
    return [*group.codes, None] if group.is_optional else list(group.codes)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_a_softmax_over_what_is_open(seed: int, some_known: bool) -> None:
    table, generator = GroupTable(GROUPS), torch.Generator().manual_seed(seed)
    logits = torch.randn(6, 5, generator=generator)
    open_members = torch.rand(6, 5, generator=generator) < 0.6 if some_known else torch.ones(6, 5, dtype=torch.bool)
    log_p, log_none = table.log_probability(logits, open_members)
    assert torch.allclose(table.total(log_p.exp()) + log_none.exp(), torch.ones(6, 2), atol=1e-5)
    assert not log_p.exp()[~open_members].any()


@pytest.mark.parametrize("noise_class", [UniformNoise, MarginalNoise])
@pytest.mark.parametrize(("t", "u"), [(5, 4), (7, 3), (1, 0)])
def test_the_posterior_of_a_group_is_bayes_rule(
    noise_class: type[UniformNoise] | type[MarginalNoise], t: int, u: int
) -> None:
    prevalence = torch.tensor([0.6, 0.4, 0.3, 0.34, 0.02, 0.3, 0.1, 0.2, 0.2], dtype=torch.float64)
    noise = noise_class.create(prevalence, 8, GROUPS)
    logits = torch.randn(1, 9, generator=torch.Generator().manual_seed(3))
    for number, group in enumerate(GROUPS.groups):
        pi = {
            s: float(noise.pi_present[s]) if s is not None else float(noise.kernel.pi_none[number])
            for s in states(group)
        }
        assert sum(pi.values()) == pytest.approx(1)
        p_0 = torch.softmax(
            torch.tensor([0.0 if s is None else logits[0, s].item() for s in states(group)], dtype=torch.float64), 0
        )

        def kept(a: int | None, b: int | None, keep: float, pi: dict[int | None, float] = pi) -> float:
            return keep * (a == b) + (1 - keep) * pi[b]

        for now in states(group):
            x_t = torch.zeros(1, 9, dtype=torch.uint8)
            x_t[0, 0] = 1  # the other group must be in some state too
            x_t[0, list(group.codes)] = 0
            if now is not None:
                x_t[0, now] = 1
            abar_t, abar_u = float(noise.abar[t]), float(noise.abar[u])
            brute = np.zeros(len(states(group)))
            for c, share in zip(states(group), p_0, strict=True):
                joint = np.array([kept(c, s, abar_u) * kept(s, now, abar_t / abar_u) for s in states(group)])
                brute += float(share) * joint / joint.sum()
            members, none = noise.kernel.posterior(logits, x_t, torch.tensor([t]), torch.tensor([u]))
            position = [GroupTable(GROUPS).codes.tolist().index(code) for code in group.codes]
            ours = [*members[0, position].tolist(), *([float(none[0, number])] if group.is_optional else [])]
            assert ours == pytest.approx(brute.tolist(), abs=1e-9)


@pytest.mark.parametrize("noise_class", [UniformNoise, MarginalNoise])
def test_the_loss_of_a_group_is_its_divergence(noise_class: type[UniformNoise] | type[MarginalNoise]) -> None:
    noise = noise_class.create(torch.full((9,), 0.2, dtype=torch.float64), 6, GROUPS)
    logits = torch.randn(1, 9, generator=torch.Generator().manual_seed(0), requires_grad=True)
    x_start = torch.tensor([[1, 0, 0, 1, 0, 0, 0, 0, 1]])
    x_t = torch.tensor([[0, 1, 0, 0, 0, 0, 0, 0, 1]], dtype=torch.uint8)
    for t in (1, 4):
        kl = noise.posterior_kl(logits, x_start.float(), x_t, torch.tensor([t]))
        if t == 1:  # the decoder's term
            expected = -torch.log_softmax(logits[0, :2], 0)[0]
            assert kl[0, 0].item() == pytest.approx(expected.item(), rel=1e-5)
        assert (kl[0, [1, 3, 4]] == 0).all() and (kl >= -1e-6).all()
        (gradient,) = torch.autograd.grad(kl.sum(), logits)
        assert bool(torch.isfinite(gradient).all())


def test_draws_follow_their_probabilities() -> None:
    table = GroupTable(GROUPS)
    p = torch.tensor([[0.7, 0.3, 0.2, 0.5, 0.05]]).expand(20_000, -1)
    x = table.draw(p, torch.Generator().manual_seed(0))
    assert (table.total(x.float())[:, 0] == 1).all() and (table.total(x.float())[:, 1] <= 1).all()
    assert torch.allclose(x.float().mean(0), p[0], atol=0.012)


# --- no sampler breaks one ---

TINY = {"training": {"epochs": 6, "batch_size": 64}, "denoiser": {"kind": "sparse", "width": 32, "blocks": 1}}
LINFORMER = {"kind": "linformer", "width": 8, "layers": 1, "heads": 2, "projection": 4}
MODELS = {
    "absorbing": TINY,
    "marginal": TINY | {"noise": "marginal", "timesteps": 12},
    "uniform": TINY | {"noise": "uniform", "timesteps": 12},
    "linformer": {"noise": "uniform", "timesteps": 8, "denoiser": LINFORMER, "training": {"epochs": 1}},
}
CONDITIONS = {
    "nothing": SampleRequest(1_100, seed=1),
    "a member": SampleRequest(1_100, condition=Condition.of(9, all_of=[1])),
    "not a member": SampleRequest(1_100, condition=Condition.of(9, none_of=[0, 3])),
    "some members": SampleRequest(1_100, condition=Condition.of(9, any_of=[[2, 4]])),
    "members or others": SampleRequest(1_100, condition=Condition.of(9, any_of=[[1, 5], [3, 8]])),
    "another code": SampleRequest(1_100, condition=Condition.of(9, all_of=[5, 6])),
    "a target": SampleRequest(1_100, targets=(Target(9, frozenset([1]), 0.25), Target(9, frozenset([3]), 0.5))),
    "guidance": SampleRequest(300, condition=Condition.of(9, all_of=[1]), method="langevin", strength=5.0),
    "one call": SampleRequest(1_100, steps=1),
}


OTHERS: dict[str, dict[str, object]] = {
    "independent": {},
    "emr-wgan": {"epochs": 2, "batch_size": 200, "width": 16, "layers": 2},
    "tabddpm": {"epochs": 2, "timesteps": 6, "layers": [16, 16]},
}


@pytest.fixture(scope="module", params=[*MODELS, *OTHERS])
def model(request: pytest.FixtureRequest) -> Generator:
    name = "d3pm" if request.param in MODELS else request.param
    settings = (MODELS | OTHERS)[request.param]
    fitted = generator_named(name).fit(
        FitRequest(train=drawn(1_500), holdout=drawn(300, seed=2), settings=settings, groups=GROUPS)
    )
    return from_state(fitted.state())  # groups are part of what is saved


@pytest.mark.parametrize("asked", CONDITIONS)
def test_no_record_breaks_a_group(model: Generator, asked: str) -> None:
    request = CONDITIONS[asked]
    if request.method not in ("auto", *model.spec.methods) or (request.steps == 1 and model.spec.name == "independent"):
        pytest.skip("not offered")
    records = model.sample(request)
    assert len(records) == request.n
    assert not GROUPS.broken_by(records).any()
    if request.condition is not None and request.method != "langevin":
        assert request.condition.satisfied_by(records).all()
    for target in request.targets:
        assert records.having_any(target.codes).mean() == pytest.approx(target.share, abs=1 / request.n)


def test_members_keep_their_prevalences_and_links() -> None:
    settings_ = TINY | {"training": {"epochs": 16, "batch_size": 64}}
    fitted = generator_named("d3pm").fit(FitRequest(train=drawn(2_000), settings=settings_, groups=GROUPS))
    records, real = fitted.sample(SampleRequest(8_192, seed=5)), drawn(20_000, seed=9)
    assert np.allclose(records.prevalence(), real.prevalence(), atol=0.025)
    for member, code in ((1, 5), (0, 5)):
        ours, theirs = (each.take(each.having(member)).prevalence()[code] for each in (records, real))
        assert ours == pytest.approx(theirs, abs=0.12)


def test_records_that_break_a_group_are_not_learned_from() -> None:
    x = drawn(400).to_dense(np.uint8)
    x[:3, :2] = 1
    fitted = generator_named("d3pm").fit(
        FitRequest(train=Records.from_dense(x), settings=TINY | {"training": {"epochs": 1}}, groups=GROUPS)
    )
    assert not GROUPS.broken_by(fitted.sample(SampleRequest(200))).any()


def test_hidden_groups_are_hidden_whole() -> None:
    noise = AbsorbingNoise.create(torch.full((9,), 0.2), 10, GROUPS)
    x_start = torch.from_numpy(drawn(500).to_dense(np.uint8))
    x_t = noise.q_sample(x_start, torch.full((500,), 5), torch.Generator().manual_seed(0))
    for group in GROUPS.groups:
        hidden = (x_t[:, list(group.codes)] == HIDDEN).sum(1)
        assert set(hidden.tolist()) == {0, len(group.codes)}
