"""Patients over time: what is known of earlier visits, drawing, saving, resuming, conditions."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

from ehr.conditions import AskedTarget, Condition
from ehr.disclosure import SMALLEST_SHOWN
from ehr.errors import ConditionError, ConfigError, StateError, TrainingStopped
from ehr.generators import CHUNK, HISTORY_GENERATORS, history_generator_spec
from ehr.groups import Group, Groups
from ehr.histories import Histories, first_visits
from ehr.history_conditions import (
    AskedHistoryCondition,
    AskedOrder,
    AskedPromptVisit,
    HistoryCondition,
    prompt_of,
)
from ehr.history_targets import HistoryTarget, resolve_targets
from ehr.records import Records, indptr_of
from ehr.vocabulary import Vocabulary
from worker.engine.checkpoints import Checkpoint
from worker.engine.generators.markov import MarkovGenerator
from worker.engine.generators.protocol import EffectiveSize, State
from worker.engine.generators.visits import VisitsGenerator
from worker.engine.histories.batch import Learnable, keeping
from worker.engine.histories.calibration import NEW, Course
from worker.engine.histories.earlier import Earlier, Journal, numbers_before, visits_before
from worker.engine.histories.gaps import FIRST, UNSEEN, GapBuckets, Room
from worker.engine.histories.particles import effective_patients
from worker.engine.histories.protocol import HistoryFit, HistoryRequest
from worker.engine.histories.tilt import tilt
from worker.engine.histories.tokens import VisitTokens
from worker.engine.training import Hooks

# F and M are static; A lasts once it is there, B follows A, C and D come and go, E is rare.
CODES = ("SEX:F", "SEX:M", "DX:A", "DX:B", "DX:C", "DX:D", "DX:E")
F, M, A, B, C, D, E = range(7)
STATIC_GROUPS = Groups(7, (Group("SEX:*", (F, M), "exactly one"),))
SMALL = {
    "timesteps": 50,
    "denoiser": {"width": 32, "blocks": 1, "dropout": 0.0, "input_dropout": 0.0},
    "state": 16,
    "steps": 12,
    "training": {"epochs": 8, "batch_size": 100, "learning_rate": 1e-2, "settle_share": 0.2},
}


@cache
def toy(n: int, seed: int = 0) -> Histories:
    """Patients of a chain that is easily learned: women have A more often, and A brings B."""
    rng = np.random.default_rng(seed)
    visits: list[list[int]] = []
    gaps: list[int] = []
    counts, static = [], []
    for _ in range(n):
        sex = int(rng.random() < 0.5)
        a = b = False
        static.append([sex])
        for number in range(1, 7):
            a = a or rng.random() < (0.3 if sex == F else 0.1)
            b = b or (a and rng.random() < 0.4)
            codes = [code for code, on in ((A, a), (B, b)) if on]
            codes += [code for code, p in ((C, 0.4), (D, 0.2), (E, 0.02)) if rng.random() < p]
            visits.append(codes)
            gaps.append(0 if number == 1 else int(rng.integers(5, 15) if a else rng.integers(20, 60)))
            if rng.random() < 0.25 or number == 6:
                counts.append(number)
                break
    return Histories(
        Records.from_sets(visits, 7),
        indptr_of(np.array(counts)),
        np.array(gaps, np.int32),
        Records.from_sets(static, 7),
    )


@cache
def model() -> VisitsGenerator:
    return VisitsGenerator.fit(HistoryFit(toy(2000), toy(200, 1), SMALL, static_groups=STATIC_GROUPS))


def same(a: Histories, b: Histories) -> bool:
    pairs = ((a.offsets, b.offsets), (a.gaps, b.gaps), (a.visits.indices, b.visits.indices))
    pairs += ((a.visits.indptr, b.visits.indptr), (a.static.indices, b.static.indices))
    return all(np.array_equal(left, right) for left, right in pairs)


# --- what is known ---


def test_training_and_sampling_know_the_same_of_earlier_visits() -> None:
    histories = toy(50)
    whole = Earlier.of(histories)
    journal = Journal(len(histories), 7, 1, torch.device("cpu"))
    for number in range(6):
        rows = histories.offsets[:-1] + number
        there = histories.visit_counts() > number
        at = {int(row): place for place, row in zip(np.flatnonzero(there), rows[there], strict=True)}
        now, known = journal.earlier(), {}
        for k in range(len(now.rows)):
            known[int(now.rows[k]), int(now.codes[k])] = [float(x[k]) for x in (now.in_last, now.count, now.since)]
        seen = 0
        for k in range(len(whole.rows)):
            if (row := int(whole.rows[k])) in at:
                read = [float(x[k]) for x in (whole.in_last, whole.count, whole.since)]
                assert known[at[row], int(whole.codes[k])] == read
                seen += 1
        assert seen == sum(patient in at.values() for patient, _ in known)
        patients = np.flatnonzero(there)
        assert torch.allclose(now.numbers[patients], whole.numbers[rows[there]])
        x, gaps = torch.zeros(len(histories), 7, dtype=torch.bool), torch.zeros(len(histories))
        x[patients] = torch.from_numpy(histories.visits.take(rows[there]).to_dense() > 0)
        gaps[patients] = torch.from_numpy(histories.gaps[rows[there]].astype(np.float32))
        journal.note(x, gaps)
    assert visits_before(numbers_before(histories)).tolist()[:2] == [0, 1 if histories.visit_counts()[0] > 1 else 0]


def returning(*gaps: Sequence[int]) -> Histories:
    """Patients who come again after so many days each."""
    days = [day for each in gaps for day in (0, *each)]
    offsets = np.cumsum([0, *(1 + len(each) for each in gaps)])
    nothing = (Records.from_sets([[]] * n, 7) for n in (len(days), len(gaps)))
    return Histories(next(nothing), offsets, np.array(days, np.int32), next(nothing))


def test_gaps_come_back_from_their_buckets() -> None:
    gaps = np.random.default_rng(0).integers(1, 400, 5000).astype(np.int32)
    buckets = GapBuckets.of(returning(*([gap] for gap in gaps)))
    found = buckets.bucket(gaps)
    assert found.min() == 1 and np.bincount(found)[1:].min() >= SMALLEST_SHOWN
    assert np.array_equal(buckets.bucket(buckets.days(found, np.random.default_rng(1)).astype(np.int32)), found)
    assert buckets.days(np.array([FIRST]), np.random.default_rng(1)).tolist() == [0]
    assert len(GapBuckets.of(returning([], []))) == 1


def test_no_gap_of_a_few_patients_can_be_told_however_often_they_come() -> None:
    """Not as the shortest, nor as the longest, nor as a day in between that is common by them alone."""
    rng = np.random.default_rng(0)
    many = [rng.integers(20, 60, 4).tolist() + rng.integers(90, 120, 4).tolist() for _ in range(200)]
    few = [[2] * 100, [75] * 500, [777] * 100]
    buckets = GapBuckets.of(returning(*many, *few))
    drawn = buckets.days(rng.integers(1, len(buckets), 50_000), rng)
    assert drawn.min() >= 20 and drawn.max() < 120
    assert (drawn == 75).mean() < 2 * ((drawn == 74).mean() + (drawn == 76).mean())
    alone = GapBuckets.of(returning(*few, *([] for _ in range(100))))
    assert alone.edges.tolist() == [1, UNSEEN] and np.ptp(alone.shares) == 0


def test_days_between_two_habits_are_not_drawn() -> None:
    rng = np.random.default_rng(0)
    gaps = np.concatenate([rng.integers(20, 30, 3000), rng.integers(90, 100, 3000), [50, 60, 61]]).astype(np.int32)
    buckets = GapBuckets.of(returning(*([gap] for gap in gaps)))
    drawn = buckets.days(buckets.bucket(gaps), rng)
    assert ((drawn >= 30) & (drawn < 90)).mean() < 0.005  # though some bucket reaches from one to the other
    room = Room.between(buckets, np.array([25, 40, 200]), np.array([27, 45, 300]))
    within = room.share / room.share.sum(axis=1, keepdims=True)
    for patient, (low, high) in enumerate(((25, 27), (40, 45), (200, 300))):
        chosen = rng.choice(within.shape[1], 50, p=within[patient])
        days = [int(room.days(np.array([0, 0, 0]) + bucket, rng)[patient]) for bucket in chosen]
        assert low <= min(days) and max(days) <= high


def test_a_visit_is_a_record_with_one_gap_and_one_ending() -> None:
    histories = toy(100)
    tokens = VisitTokens.of(histories, static_groups=STATIC_GROUPS)
    records = tokens.records(histories)
    assert not tokens.groups.broken_by(records).any()
    visits, static = tokens.split(records.to_dense(np.uint8))
    assert np.array_equal(visits.indices, histories.visits.indices)
    assert np.array_equal(static.indices, histories.static.take(histories.patients()).indices)
    ends = records.having(tokens.last)
    assert np.array_equal(ends, histories.offsets[1:] - 1)


def test_a_tilt_makes_chances_add_up_to_the_number_of_codes() -> None:
    rng = torch.Generator().manual_seed(0)
    log_odds = 2 * torch.randn(40, 30, generator=rng) - 1
    open_ = torch.rand(40, 30, generator=rng) < 0.7
    left = torch.randint(1, 10, (40,), generator=rng)
    shift = tilt(log_odds, open_, left)
    assert torch.allclose((torch.sigmoid(log_odds + shift.unsqueeze(1)) * open_).sum(1), left.float(), rtol=0.02)
    assert tilt(log_odds, open_, torch.zeros(40)).max() < 0  # none to come


# --- learning, drawing, keeping ---


def test_what_is_drawn_is_like_what_was_learned() -> None:
    drawn, real = model().sample(HistoryRequest(2000, seed=1)), toy(2000, 5)
    assert np.abs(drawn.visits.prevalence() - real.visits.prevalence()).max() < 0.05
    assert abs(drawn.visit_counts().mean() - real.visit_counts().mean()) < 0.25
    assert drawn.visit_counts().max() <= 6
    # what lasts, lasts; what follows, follows
    later = np.delete(np.arange(len(drawn.visits)), drawn.offsets[:-1])
    x = drawn.visits.to_dense() > 0
    before, now = x[later - 1], x[later]
    assert now[before[:, A], A].mean() > 0.95 and now[before[:, C], C].mean() < 0.55
    assert (x[:, B] & ~x[:, A]).mean() < 0.06  # by chance it would be twice as much
    assert drawn.gaps[later][x[later, A]].mean() < 25 < drawn.gaps[later][~x[later, A]].mean()
    women = drawn.static.having_any([F])
    ever = drawn.ever().having_any([A])
    assert ever[women].mean() > ever[~women].mean() + 0.1


def test_a_saved_model_draws_the_same() -> None:
    state = model().state()
    tensors = load(save({name: value.contiguous() for name, value in state.tensors.items()}))
    again = VisitsGenerator.from_state(State(tensors, state.config))
    assert same(again.sample(HistoryRequest(40, seed=3)), model().sample(HistoryRequest(40, seed=3)))
    with pytest.raises(StateError, match="not the state"):
        VisitsGenerator.from_state(State(tensors, state.config | {"version": 99}))


def test_a_cohort_does_not_depend_on_how_it_is_divided() -> None:
    n = CHUNK + 5
    whole = model().sample(HistoryRequest(n, seed=4))
    last = model().sample(HistoryRequest(5, seed=4, first_chunk=1))
    assert same(whole.take(np.arange(CHUNK, n)), last)


def test_training_resumes_bit_for_bit() -> None:
    settings = SMALL | {"training": {"epochs": 2, "batch_size": 250}}
    kept: list[Checkpoint] = []
    steps = [0]

    def stop() -> bool:
        steps[0] += 1
        return steps[0] == 3

    fit = HistoryFit(toy(300), None, settings, static_groups=STATIC_GROUPS)
    with pytest.raises(TrainingStopped):
        VisitsGenerator.fit(replace(fit, hooks=Hooks(on_checkpoint=kept.append, should_stop=stop)))
    resumed, whole = VisitsGenerator.fit(replace(fit, checkpoint=kept[-1])), VisitsGenerator.fit(fit)
    assert all(torch.equal(value, whole.state().tensors[name]) for name, value in resumed.state().tensors.items())


def test_before_training_patients_end_as_often_as_counted() -> None:
    histories = toy(2000)
    untrained, _ = VisitsGenerator.prepare(HistoryFit(histories, None, SMALL, static_groups=STATIC_GROUPS))
    drawn = untrained.sample(HistoryRequest(2000, seed=1))
    shares = [np.bincount(each.visit_counts(), minlength=7) / len(each) for each in (drawn, histories)]
    assert np.abs(shares[0] - shares[1]).max() < 0.04
    some = toy(300)
    later = np.delete(np.arange(len(some.visits)), some.offsets[:-1])
    had = some.visits.to_dense()[later - 1][:, A] > 0
    assert untrained.next_visits(some)[later][had, A].mean() > 0.95  # and what lasts, lasts


def test_what_happens_too_often_is_calibrated() -> None:
    off = VisitsGenerator.from_state(model().state())
    with torch.no_grad():
        off.denoiser.out.bias[C] += 1.5
        off.denoiser.by_number.weight[:, off.tokens.last] += 1.0
    real, free = toy(2000), np.zeros(1500, dtype=bool)

    def distance(generator: VisitsGenerator) -> list[float]:
        courses = [
            Course.of(each, off.tokens, len(off.sizes) - 1, cut)
            for each, cut in ((generator.sample(HistoryRequest(1500, seed=12)), free), (real, np.zeros(2000, bool)))
        ]
        shares = [[(rates.had / np.maximum(rates.tried, 1)) for rates in (c.codes, c.ends)] for c in courses]
        new, ends = abs(shares[0][0][NEW, C] - shares[1][0][NEW, C]), np.abs(shares[0][1][:3] - shares[1][1][:3]).max()
        return [float(new), float(ends)]

    before = distance(off)
    off.calibrate(Learnable.of(real, 256))
    after = distance(off)
    # together: 1,500 patients tell each of the two to about 0.03
    assert min(before) > 0.05 and sum(after) < 0.6 * sum(before), (before, after)


def test_long_histories_are_cut_and_do_not_end_there() -> None:
    fit = HistoryFit(toy(300), None, SMALL | {"most_visits": 2, "training": {"epochs": 1}}, static_groups=STATIC_GROUPS)
    short = VisitsGenerator.fit(fit)
    real = toy(300).visit_counts()
    going_on = (real > 1).sum() + (real > 2).sum()
    assert float(short.prevalence[short.tokens.first_end]) == pytest.approx(going_on / np.minimum(real, 2).sum())
    assert short.sample(HistoryRequest(50)).visit_counts().max() <= 2


def test_patients_who_break_a_group_are_not_learned_from() -> None:
    visits = Groups(7, (Group("C or D", (C, D), "at most one"),))
    kept = keeping(toy(100), visits, STATIC_GROUPS)
    x = toy(100).visits.to_dense()
    assert 0 < len(kept) < 100 and not (kept.visits.to_dense()[:, [C, D]].sum(axis=1) > 1).any()
    assert len(kept) == 100 - len(np.unique(toy(100).patients()[x[:, [C, D]].sum(axis=1) > 1]))


def test_the_chain_knows_the_last_visit() -> None:
    chain = MarkovGenerator.fit(HistoryFit(toy(2000)))
    assert chain.codes[2, A] > 0.95 and chain.codes[1, A] < 0.3
    drawn = chain.sample(HistoryRequest(1500, seed=2))
    assert np.abs(drawn.visits.prevalence() - toy(2000).visits.prevalence()).max() < 0.05
    again = MarkovGenerator.from_state(chain.state())
    assert same(again.sample(HistoryRequest(30)), chain.sample(HistoryRequest(30)))
    with pytest.raises(ConfigError, match="yardstick"):
        chain.sample(HistoryRequest(1, condition=HistoryCondition(7, never=frozenset([A]))))


def test_generators_of_histories_are_named() -> None:
    assert [spec.name for spec in HISTORY_GENERATORS] == ["visits", "markov", "halo"]
    with pytest.raises(ConfigError, match="known: visits, markov, halo"):
        history_generator_spec("cehr-gpt")


# --- conditions ---

ONE = toy(2000).take(np.flatnonzero(toy(2000).visit_counts() >= 3)[:1])
PROMPT = Histories(ONE.visits.take([0, 1]), indptr_of(np.array([2])), ONE.gaps[:2], ONE.static)
CONDITIONS = {
    "ever": HistoryCondition(7, ever=(frozenset([B]), frozenset([D, E]))),
    "rare": HistoryCondition(7, ever=(frozenset([E]),)),
    "never": HistoryCondition(7, never=frozenset([A, C])),
    "order": HistoryCondition(7, before=((frozenset([A]), frozenset([B])),)),
    "against the order": HistoryCondition(7, before=((frozenset([B]), frozenset([A])),)),
    "a chain of orders": HistoryCondition(
        7, before=tuple((frozenset([x]), frozenset([y])) for x, y in ((A, B), (B, D)))
    ),
    "visit 3": HistoryCondition(7, at_visit=((3, Condition.of(7, [D], [[A, E]], [C])),)),
    "four visits": HistoryCondition(7, visits=(4, 4), ever=(frozenset([C]),)),
    "days": HistoryCondition(7, days=(30, 60)),
    "women": HistoryCondition(7, start=Condition.of(7, [F]), ever=(frozenset([A]),)),
    "given": HistoryCondition(7, prompt=PROMPT, ever=(frozenset([E]),)),
    "given, a man": HistoryCondition(
        7, prompt=replace(prompt_of([[A]], [0], 7), static=Records.from_sets([[M]], 7)), never=frozenset([C])
    ),
    "given, sex open": HistoryCondition(7, prompt=prompt_of([[A], [A, B]], [0, 9], 7), visits=(4, None)),
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_every_patient_is_what_was_asked_for(name: str) -> None:
    condition, worth = CONDITIONS[name], EffectiveSize()
    drawn = model().sample(HistoryRequest(40, seed=6, condition=condition, effective_size=worth))
    assert len(drawn) == 40 and condition.satisfied_by(drawn).all()
    assert 0 < worth.effective <= 40.001


@pytest.mark.parametrize("name", ["ever", "order"])
def test_conditioned_patients_are_those_whom_rejection_finds(name: str) -> None:
    condition = CONDITIONS[name]
    free = model().sample(HistoryRequest(4000, seed=8))
    oracle = free.take(np.flatnonzero(condition.satisfied_by(free)))
    drawn = model().sample(HistoryRequest(600, seed=9, condition=condition))
    for each in (lambda h: h.ever().prevalence(), lambda h: np.bincount(h.visit_counts(), minlength=7) / len(h)):
        assert np.abs(each(drawn) - each(oracle)).max() < 0.09 + 2 / np.sqrt(len(oracle))


def test_targets_are_met_by_their_share() -> None:
    target = HistoryTarget(7, frozenset([A]), 0.25)
    drawn = model().sample(HistoryRequest(80, seed=2, targets=(target,)))
    assert (first_visits(drawn, [A]) < 6).sum() == 20


def test_a_target_of_static_codes_is_a_share_of_patients() -> None:
    asked = [AskedTarget(codes=["SEX:M"], share=0.75), AskedTarget(codes=["DX:A"], share=0.5)]
    condition = HistoryCondition(7, never=frozenset([C]))
    targets = resolve_targets(Vocabulary(CODES), condition, asked)
    drawn = model().sample(HistoryRequest(80, seed=3, condition=condition, targets=targets))
    men, having = drawn.static.having_any([M]), first_visits(drawn, [A]) < 6
    assert (men.sum(), having.sum()) == (60, 40) and 0 < (men & having).sum() < 40
    assert condition.satisfied_by(drawn).all()


def test_targets_that_contradict_are_refused_by_name() -> None:
    vocabulary = Vocabulary(CODES)
    for condition, codes, match in (
        (HistoryCondition(7, never=frozenset([A])), [["DX:A"]], "targets.0. met cannot be"),
        (
            HistoryCondition(7, ever=(frozenset([A]),), names=CODES),
            [["DX:A"]],
            "missed cannot be: 'DX:A' must be there",
        ),
        (HistoryCondition(7), [["DX:A"], ["DX:*"]], "targets.0. met and targets.1. missed"),
        (HistoryCondition(7), [["DX:A", "SEX:F"]], "'SEX:F' says who a patient is"),
    ):
        with pytest.raises(ConditionError, match=match):
            resolve_targets(vocabulary, condition, [AskedTarget(codes=each, share=0.5) for each in codes])


def test_conditions_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConditionError, match="never"):
        HistoryCondition(7, ever=(frozenset([A]),), never=frozenset([A]))
    with pytest.raises(ConditionError, match="before"):
        HistoryCondition(7, before=((frozenset([A]), frozenset([A, B])),))
    a, b, c = (frozenset([code]) for code in (A, B, C))
    assert HistoryCondition(7, before=((b, c), (a, b))).fewest_visits == 3
    with pytest.raises(ConditionError, match="circle"):
        HistoryCondition(7, before=((a, b), (b, c), (c, a)))
    with pytest.raises(ConditionError, match="need more visits than 2"):
        HistoryCondition(7, before=((a, b), (b, c)), visits=(1, 2))
    for asked in (
        {"ever": ["SEX:F"]},
        {"prompt": [{"codes": ["SEX:F"]}]},
        {"at_visit": [{"visit": 1, "none_of": ["SEX:F"]}]},
    ):
        with pytest.raises(ConditionError, match="ask for it in `start`"):
            AskedHistoryCondition.model_validate(asked).resolve(Vocabulary(CODES))
    with pytest.raises(ConditionError, match="'DX:A' is a code of visits"):
        AskedHistoryCondition.model_validate({"start": {"all_of": ["DX:A"]}}).resolve(Vocabulary(CODES))
    with pytest.raises(ConditionError, match="at least 1 day after"):
        HistoryCondition(7, prompt=prompt_of([[A], [B]], [0, 0], 7))
    with pytest.raises(ConditionError, match="at least 5 and at most 3"):
        HistoryCondition(7, visits=(5, 3))
    with pytest.raises(ConditionError, match="6 at most"):
        model().sample(HistoryRequest(1, condition=HistoryCondition(7, visits=(9, None))))
    backwards = HistoryCondition(7, prompt=prompt_of([[B]], [0], 7), before=((frozenset([A]), frozenset([B])),))
    with pytest.raises(ConditionError, match="other way round"):
        model().sample(HistoryRequest(1, condition=backwards))


def test_what_a_person_wrote_is_resolved() -> None:
    asked = AskedHistoryCondition(
        ever=["DX:*"],
        before=[AskedOrder(first="DX:A", then="DX:B")],
        prompt=[AskedPromptVisit(codes=["DX:C"]), AskedPromptVisit(codes=[], gap_days=7)],
    )
    condition = asked.resolve(Vocabulary(CODES))
    assert condition.ever == (frozenset([A, B, C, D, E]),)
    assert condition.before == ((frozenset([A]), frozenset([B])),)
    assert condition.prompt is not None and condition.prompt.gaps.tolist() == [0, 7]
    assert AskedHistoryCondition().resolve(Vocabulary(CODES)).is_empty and not condition.is_empty


def test_copies_count_once() -> None:
    places = [np.arange(64) // 2, np.arange(64) // 2]
    everybody = torch.ones(64, dtype=torch.bool)
    assert effective_patients(places, torch.zeros(64).double(), everybody) == pytest.approx(32)
    uneven = torch.zeros(64).double()
    uneven[:2] = 50.0
    assert effective_patients(places, uneven, everybody) == pytest.approx(1)
