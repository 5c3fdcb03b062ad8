"""The audit of a model: every attack finds a generator that remembers, and nothing where there is nothing."""

from collections.abc import Callable
from functools import cache
from itertools import count

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ehr.audits import AttackSummary
from ehr.conditions import Condition
from ehr.generators.d3pm import D3PMConfig, SparseConfig, TrainingConfig
from ehr.records import Records
from tests.clocks import set_monotonic
from worker.engine.audit import ATTACKS, audit_model, not_audited
from worker.engine.audit import density_ratio as density_ratio_attack
from worker.engine.audit import oracle as oracle_attack
from worker.engine.audit.attack import AuditAttack, AuditedModel
from worker.engine.audit.density_ratio import Placed, domias, gen_lra
from worker.engine.audit.effort import WORK, affordable, operations
from worker.engine.audit.people import AuditSets, rarest_codes, without
from worker.engine.audit.separation import Scores, auc, separation
from worker.engine.conditional_prevalence import ConditionalPrevalence
from worker.engine.generators import FitRequest, Generator, SampleRequest
from worker.engine.generators.d3pm import D3PMGenerator
from worker.engine.generators.independent import IndependentGenerator
from worker.engine.generators.protocol import RecordLosses, SampleProgress


@cache
def people() -> tuple[Records, Records, Records]:
    """Members, others like them whom no model here has seen, and people to tell them from."""
    prevalence = np.geomspace(0.4, 0.02, 60)  # codes of two in five patients, and of one in fifty
    x = np.random.default_rng(0).random((1_000, 60)) < prevalence
    records = Records.from_dense(x.astype(np.uint8))
    return records.take(range(200)), records.take(range(200, 400)), records.take(range(400, 1_000))


class Rote(IndependentGenerator):
    """Knows its training records by heart: it gives them back, whole if enough of their codes are asked for."""

    learned: Records

    @classmethod
    def of(cls, records: Records) -> "Rote":
        generator = cls(records.prevalence())
        generator.learned = records
        return generator

    def sample(self, request: SampleRequest, progress: SampleProgress | None = None) -> Records:
        return self.learned.take(np.random.default_rng(request.seed).integers(0, len(self.learned), request.n))

    def conditional_prevalence(self) -> ConditionalPrevalence:
        def shares(known: Records) -> NDArray[np.float32]:
            given, learned = known.to_dense(), self.learned.to_dense()
            fits = (given @ learned.T == given.sum(1, keepdims=True)).astype(np.float32)
            return (fits @ learned + self.prevalence.astype(np.float32)) / (fits.sum(1, keepdims=True) + 1)

        return shares

    def record_losses(self) -> RecordLosses:
        learned = {tuple(codes) for codes in np.split(self.learned.indices, self.learned.indptr[1:-1])}

        def losses(records: Records, seed: int, draws: int) -> NDArray[np.float64]:
            known = [tuple(codes) in learned for codes in np.split(records.indices, records.indptr[1:-1])]
            noise = np.random.default_rng(seed).normal(size=(len(records), 2))
            return noise - 3 * np.array(known)[:, None]

        return losses


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_every_attack_finds_who_is_remembered_and_nobody_else(attack: AuditAttack) -> None:
    members, strangers, others = people()
    rote = Rote.of(members)
    for seen, finds in ((members, True), (strangers, False)):
        model = AuditedModel(rote, AuditSets(seen, others))
        variants = [each for each in attack.measure(model, np.random.default_rng(0)) if each.absent is None]
        areas = [auc(each.members, each.others) for each in variants]
        assert areas, attack.name
        if finds:
            assert max(areas) > attack.limits.fail + 0.1
        else:
            assert max(areas) < attack.limits.fail


@pytest.mark.parametrize("score", [domias, gen_lra])
def test_density_ratios_find_copied_members_and_none_among_fresh_records(score: Callable[..., Scores]) -> None:
    members, _, others = people()
    rng = np.random.default_rng(1)
    copies = members.take(rng.integers(0, len(members), 800))
    fresh = Records.from_dense((rng.random((800, 60)) < np.geomspace(0.4, 0.02, 60)).astype(np.uint8))
    for cohort, finds in ((copies, True), (fresh, False)):
        placed = Placed.of(cohort, others.take(range(300)), rng)
        scores = [score(placed, placed.at(each)) for each in (members, others.take(range(300, 600)))]
        found = separation(scores[0], scores[1], rng).auc
        assert found.value is not None and found.low is not None and found.high is not None
        if finds:
            assert found.low > 0.7
        else:
            assert found.low < 0.5 < found.high


def test_gen_lra_is_the_ratio_of_two_kernel_densities() -> None:
    """By its definition: the density of the known people with one more, over that without, at the nearest records."""
    rng = np.random.default_rng(0)
    cohort, known, person = (rng.normal(size=(n, 3)).astype(np.float32) for n in (5, 40, 1))
    own = np.sort(np.square(known[:, None] - known).sum(2), axis=1)[:, 5]
    kernel = lambda s, x: np.exp(-0.5 * np.square(s - x).sum() / np.median(own))  # noqa: E731
    usual = [sum(kernel(s, x) for x in known) for s in cohort]
    expected = sum(np.log((each + kernel(s, person[0])) / each) for s, each in zip(cohort, usual, strict=True))
    found = gen_lra(Placed(np.eye(3, dtype=np.float32), cohort, known), person)
    assert found[0] == pytest.approx(expected, rel=1e-4)


def test_an_audit_does_not_depend_on_how_fast_the_machine_is(monkeypatch: pytest.MonkeyPatch) -> None:
    members, _, others = people()

    def audited() -> list[AttackSummary]:
        return audit_model(Rote.of(members), members, others, np.random.default_rng(0)).attacks

    found, now = audited(), count(0, 3600)
    set_monotonic(monkeypatch, lambda: float(next(now)))  # every look at the clock is an hour later
    assert audited() == found


def test_larger_networks_are_tried_on_fewer_people_and_never_on_too_few() -> None:
    small, large = torch.nn.Linear(10, 10), torch.nn.Linear(100, 100)
    work = [operations(lambda n=net: n(torch.zeros(1, n.in_features))) for net in (small, large)]  # type: ignore[misc]
    assert work == [200, 20_000]
    assert affordable(0, 50, 3000) == affordable(WORK / 3000, 50, 3000) == 3000
    assert affordable(WORK / 100, 50, 3000) == 100 and affordable(WORK, 50, 3000) == 50


class Slow(IndependentGenerator):
    """Gives no probabilities, and needs a large network for each record."""

    def sample(self, request: SampleRequest, progress: SampleProgress | None = None) -> Records:
        torch.zeros(request.n, 100) @ torch.zeros(100, 100)
        return super().sample(request, progress)

    def conditional_prevalence(self) -> None:
        return None


def test_what_cannot_be_drawn_in_time_is_absent_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    members, _, others = people()
    for module in (oracle_attack, density_ratio_attack):
        monkeypatch.setattr(module, "MOST_WORK", 1e6)
    audit = audit_model(Slow.fit(FitRequest(members)), members, others, np.random.default_rng(0))
    absent = {attack.name: attack.absent for attack in audit.attacks}
    assert "would take too long" in (absent["oracle"] or "") and "too long" in (absent["density_ratio"] or "")


def test_the_area_under_the_curve_is_the_chance_that_a_member_scores_higher() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 5, 40).astype(float), rng.integers(1, 7, 30).astype(float)
    pairs = [1.0 if x > y else 0.5 if x == y else 0.0 for x in a for y in b]
    assert auc(a, b) == pytest.approx(np.mean(pairs))
    assert auc(a, a) == 0.5
    found = separation(np.arange(500.0) + 1000, np.arange(500.0), rng)
    assert found.auc.value == 1 and found.tpr_at["0.01"].value == 1
    assert found.tpr_at["0.001"].absent is not None  # half a person


def test_how_often_a_code_was_seen_does_not_tell_members_from_others() -> None:
    members, _, others = people()
    sets = AuditSets(members, others)
    sides = sets.with_rarest_code(20, np.random.default_rng(0))
    rows, codes = rarest_codes(members, sets.counts)
    held = [set(members.take([row]).indices.tolist()) for row in rows[:20]]
    for codes_held, code in zip(held, codes[:20], strict=True):
        assert sets.counts[code] == min(sets.counts[each] for each in codes_held)
    assert (sets.counts[sides.of_members] - 1 >= 1).all() and (sets.counts[sides.of_members] - 1 < 20).all()
    left = without(sides.members, sides.of_members)
    assert (left.sizes() == sides.members.sizes() - 1).all()


@cache
def overfitted() -> D3PMGenerator:
    settings = D3PMConfig(
        denoiser=SparseConfig(width=128, blocks=1, dropout=0.0, input_dropout=0.0),
        training=TrainingConfig(epochs=150, patience=None, learning_rate=4e-3),
    )
    return D3PMGenerator.fit(FitRequest(people()[0], None, settings))


def test_an_overfitted_model_is_caught_and_passes_about_people_it_never_saw() -> None:
    members, strangers, others = people()
    caught = audit_model(overfitted(), members, others, np.random.default_rng(0))
    assert caught.verdict.level == "fail" and caught.verdict.advice
    clean = audit_model(overfitted(), strangers, others, np.random.default_rng(0))
    assert clean.verdict.level != "fail", clean.verdict
    assert {attack.name for attack in clean.attacks} == {attack.name for attack in ATTACKS}
    judged = [attack for attack in caught.attacks if attack.absent is None]
    assert all(attack.auc.low is not None and attack.control_auc.value is not None for attack in judged)


def test_what_independent_codes_say_of_single_codes_is_no_memory() -> None:
    members, _, others = people()
    model = IndependentGenerator.fit(FitRequest(members))
    audit = audit_model(model, members, others, np.random.default_rng(0))
    assert audit.verdict.level == "good", audit.verdict
    oracle = [attack for attack in audit.attacks if attack.name == "oracle" and attack.absent is None]
    # what is left is rounding: the lift of every code is 1
    assert oracle and all(abs((attack.auc.value or 0) - 0.5) < 0.03 for attack in oracle)


def test_the_stated_share_is_the_share_among_drawn_records() -> None:
    model: Generator = overfitted()
    prevalence = model.conditional_prevalence()
    assert prevalence is not None
    known = Records.from_sets([people()[0].indices[:2].tolist()], people()[0].n_codes)
    drawn = model.sample(SampleRequest(4096, seed=1, condition=Condition.of(known.n_codes, known.indices.tolist())))
    stated = prevalence(known)[0]
    common = stated > 0.02
    assert np.corrcoef(stated[common], drawn.prevalence()[common])[0, 1] > 0.95
    assert (stated[known.indices] == 1).all()


def test_too_few_people_are_no_evidence() -> None:
    members, _, others = people()
    audit = audit_model(overfitted(), members.take(range(40)), others.take(range(40)), np.random.default_rng(0))
    assert audit.verdict.level == audit.rare_conditions.level == "caution"
    assert all(attack.absent is not None for attack in audit.attacks)


def test_data_that_may_not_be_attacked_has_an_audit_that_says_so() -> None:
    audit = not_audited()
    assert audit.attacks == [] and audit.verdict.level == "caution" and "forbid" in audit.verdict.reason
