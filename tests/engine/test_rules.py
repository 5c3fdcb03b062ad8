"""Rules between codes: found where chance would have broken them, closed under all that follows, never broken."""

from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ehr.codes.edits import edits_of, forbidden_pairs
from ehr.conditions import Condition, Target
from ehr.errors import ConditionError
from ehr.groups import Group, Groups
from ehr.records import Records
from ehr.rules import Rules
from worker.engine.generators import FitRequest, Generator, SampleRequest, from_state, generator_named
from worker.engine.rules import RuleTable
from worker.ingestion.rules import find_rules

CODES = ("SEX:F", "SEX:M", "AGE:0-9", "AGE:40-49", "ICD10CM:O80", "ICD10CM:N40", "ICD10CM:Z38", "A:1", "A:2", "A:3")
SEX, AGE = Group("SEX:*", (0, 1), "exactly one", "known"), Group("AGE:*", (2, 3), "exactly one", "known")
GROUPS = Groups(10, (SEX, AGE))


def drawn(n: int, seed: int = 0) -> Records:
    """Deliveries of women of 40 to 49, prostates of men, newborns of 0 to 9; A:1 excludes A:2, and A:3 brings A:1."""
    rng = np.random.default_rng(seed)
    x = np.zeros((n, 10), dtype=np.uint8)
    male, old = rng.random(n) < 0.5, rng.random(n) < 0.7
    x[np.arange(n), male.astype(int)] = 1
    x[np.arange(n), 2 + old] = 1
    x[:, 4] = (rng.random(n) < 0.3) & ~male & old
    x[:, 5] = (rng.random(n) < 0.3) & male & old
    x[:, 6] = (rng.random(n) < 0.3) & ~old
    x[:, 7] = rng.random(n) < 0.4
    x[:, 8] = (rng.random(n) < 0.4) & (x[:, 7] == 0)
    x[:, 9] = (rng.random(n) < 0.4) & (x[:, 7] == 1)
    return Records.from_dense(x)


def found() -> Rules:
    return find_rules(drawn(3_000), CODES, GROUPS)


def named(pairs: NDArray[np.int32]) -> set[tuple[str, str]]:
    return {(CODES[a], CODES[b]) for a, b in pairs}


# --- what the data says ---


def test_rules_are_found_and_edits_confirmed() -> None:
    rules = found()
    assert ("A:1", "A:2") in named(rules.excludes) and ("A:3", "A:1") in named(rules.implies)
    assert named(rules.certain) == {("SEX:M", "ICD10CM:O80"), ("SEX:F", "ICD10CM:N40"), ("AGE:0-9", "ICD10CM:N40")} | {
        ("AGE:40-49", "ICD10CM:Z38")
    }
    assert not rules.broken_by(drawn(3_000)).any()


def test_chance_makes_no_rule_and_data_that_contradicts_an_edit_is_believed() -> None:
    apart = (np.random.default_rng(0).random((4_000, 40)) < 0.05).astype(np.uint8)  # pairs are expected 10 times
    codes = [f"B:{number}" for number in range(40)]
    assert len(find_rules(Records.from_dense(apart), codes, Groups(40))) == 0
    x = drawn(3_000).to_dense(np.uint8)
    wrong = np.flatnonzero(x[:, 5])[: x[:, 5].sum() // 20]  # one prostate in twenty is a woman's
    x[wrong, 0], x[wrong, 1] = 1, 0
    rules = find_rules(Records.from_dense(x), CODES, GROUPS)
    assert ("SEX:F", "ICD10CM:N40") not in named(rules.certain)
    assert ("SEX:M", "ICD10CM:O80") in named(rules.certain)


@pytest.mark.parametrize("code", ["ICD10CM:O80", "ICD9DX:V27", "ICD9PX:74", "ICD10PCS:10E0XZZ", "ICD10CM:C56"])
def test_edits_know_codes_of_women(code: str) -> None:
    assert {edit.sex for edit in edits_of(code)} == {"F"}
    assert list(forbidden_pairs([code, "SEX:F", "SEX:M", "SEX:U"])) == [(0, 2)]


@pytest.mark.parametrize("code", ["ICD10CM:D07", "ICD9DX:752", "ICD10CM:E11", "ICD9DX:4", "SNOMED:O80", "ICD10CM:C50"])
def test_edits_keep_out_of_what_a_code_leaves_open(code: str) -> None:
    assert edits_of(code) == []


def test_ages_are_ruled_out_as_whole_bands() -> None:
    codes = ["ICD10CM:O80", "AGE:0-17", "AGE:0-8", "AGE:60-69", "AGE:65-74", "AGE:90+", "AGE:unknown"]
    assert {codes[band] for _, band in forbidden_pairs(codes)} == {"AGE:0-8", "AGE:65-74", "AGE:90+"}


# --- what follows ---


def possible_records(rules: Rules) -> NDArray[np.uint8]:
    """Every record that keeps groups and rules, by trying all of them."""
    every = np.array(list(product((0, 1), repeat=rules.n_codes)), dtype=np.uint8)
    records = Records.from_dense(every)
    kept: NDArray[np.uint8] = every[~rules.broken_by(records) & ~rules.groups.broken_by(records).any(axis=1)]
    return kept


@st.composite
def any_rules(draw: st.DrawFn) -> Rules:
    """Two groups and three codes by themselves, with rules at random."""
    groups = Groups(8, (Group("G", (0, 1, 2), "exactly one"), Group("H", (3, 4), draw(st.sampled_from(RULES)))))
    pair = st.sampled_from([(a, b) for a, b in product(range(8), repeat=2) if a != b])
    implies = [p for p in draw(st.lists(pair, max_size=3)) if p[0] > 4]
    rules = Rules.of(groups, draw(st.lists(pair, max_size=6)), implies)
    assume(possible_records(rules).any(axis=0).all())  # every code is in some record, as in training data
    return rules


RULES = ("exactly one", "at most one")


@settings(max_examples=60, deadline=None)
@given(any_rules())
def test_what_follows_is_true_and_leaves_a_member_to_any_two_codes(rules: Rules) -> None:
    records = possible_records(rules).astype(np.int64)
    together = records.T @ records
    group_of = rules.groups.group_of
    for a, b in product(range(8), repeat=2):
        if a == b or (group_of[a] == group_of[b] and group_of[a] >= 0):
            continue
        assert together[a, b] == 0 or b not in rules.excluded[a]
        assert together[a, b] == together[a, a] or b not in rules.implied[a]
        for group in rules.groups.groups:
            if not group.is_optional and b not in rules.excluded[a] and not {a, b} & set(group.codes):
                assert set(group.codes) - set(rules.excluded[a]) - set(rules.excluded[b])


@settings(max_examples=60, deadline=None)
@given(any_rules(), st.integers(0, 2**31))
def test_mended_records_keep_groups_and_rules(rules: Rules, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = (rng.random((64, 8)) < 0.5).astype(np.uint8)
    rules.groups.mend(x, np.full(8, 0.3), rng, None)
    mended = RuleTable(rules).mended(x, None, np.full(8, 0.3), rng)
    records = Records.from_dense(mended)
    assert not rules.groups.broken_by(records).any() and not rules.broken_by(records).any()
    whole = ~rules.broken_by(Records.from_dense(x))
    assert np.array_equal(mended[whole], x[whole])  # what breaks nothing stays as it was


def test_a_certain_rule_answers_a_condition_and_a_found_one_gives_way() -> None:
    rules = found()
    with pytest.raises(ConditionError, match=r"'ICD10CM:O80' and 'SEX:M'|'SEX:M' and 'ICD10CM:O80'.*for women"):
        rules.check(Condition.of(10, all_of=[1, 4]), [], CODES)
    with pytest.raises(ConditionError, match="cannot be in one record"):
        rules.check(Condition.of(10, all_of=[4], any_of=[[1, 5]]), [], CODES)
    with pytest.raises(ConditionError):
        rules.check(Condition.of(10, any_of=[[4], [5]]), [], CODES)  # no sex has both
    with pytest.raises(ConditionError):
        rules.check(Condition.of(10, all_of=[4]), [Target(10, frozenset([5]), 0.5)], CODES)
    settled = rules.settled(Condition.of(10, all_of=[4]), CODES)
    assert {0, 3, 4} <= settled.all_of and {1, 2, 5, 6} <= settled.none_of
    both = Condition.of(10, all_of=[7, 8])
    rules.check(both, [], CODES)
    assert {7, 8} <= rules.settled(both).all_of
    assert rules.settled(Condition.of(10, none_of=[7])).none_of >= {7, 9}  # A:3 never comes without A:1


def test_rules_survive_a_manifest() -> None:
    rules = found()
    back = Rules.from_json(rules.as_json(), GROUPS)
    assert all(np.array_equal(getattr(back, name), getattr(rules, name)) for name in ("excludes", "implies", "certain"))
    assert len(Rules.from_json({}, GROUPS)) == 0


# --- samplers ---

TINY = {
    "denoiser": {"kind": "sparse", "width": 32, "blocks": 1},
    "training": {"epochs": 1, "batch_size": 64, "context_share": 0.5},
}
KINDS = {
    "absorbing": ("d3pm", TINY),
    "marginal": ("d3pm", {**TINY, "noise": "marginal", "timesteps": 20}),
    "independent": ("independent", {}),
    "med-wgan": ("med-wgan", {"epochs": 1}),
}


@pytest.fixture(scope="module")
def generators() -> dict[str, Generator]:
    train, made = drawn(1_000), {}
    for kind, (name, values) in KINDS.items():
        model = generator_named(name).fit(FitRequest(train, None, values, groups=GROUPS, rules=found()))
        made[kind] = from_state(model.state())
    return made


CONDITIONS = {
    "nothing": None,
    "a code": Condition.of(10, all_of=[4]),
    "not a member": Condition.of(10, none_of=[0]),
    "any of what excludes each other": Condition.of(10, any_of=[[4, 5, 6], [7, 8]]),
    "what was never seen together": Condition.of(10, all_of=[7, 8]),
    "without what it comes with": Condition.of(10, all_of=[9], none_of=[7]),
}


@pytest.mark.parametrize("asked", CONDITIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_no_sampler_breaks_a_rule(generators: dict[str, Generator], kind: str, asked: str) -> None:
    generator, condition = generators[kind], CONDITIONS[asked]
    rules = generator.rules  # type: ignore[attr-defined]
    for method in generator.spec.methods if condition is not None else ("auto",):
        for steps in (None, 1) if kind == "absorbing" and method != "langevin" else (None,):
            request = SampleRequest(300, seed=1, condition=condition, method=method, steps=steps)
            try:
                records = generator.sample(request)
            except ConditionError:
                assert method == "rejection" and asked in ("what was never seen together", "without what it comes with")
                continue
            assert not GROUPS.broken_by(records).any()
            assert not rules.without(condition).broken_by(records).any()
            if condition is not None and method != "langevin":
                assert condition.satisfied_by(records).all()


def test_keeping_rules_keeps_prevalences() -> None:
    """Codes that exclude each other come out as often as they were learned, in one call and in many."""
    real = drawn(20_000, seed=5).prevalence()
    generator = generator_named("d3pm").fit(
        FitRequest(
            drawn(4_000), None, {**TINY, "training": {"epochs": 12, "batch_size": 64}}, groups=GROUPS, rules=found()
        )
    )
    many = generator.sample(SampleRequest(8_192, seed=2)).prevalence()
    assert np.abs(many - real).max() < 0.05
