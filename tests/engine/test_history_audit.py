"""The audit of a model of patients over time: every attack finds one that remembers, and nothing where nothing is."""

from functools import cache
from itertools import count

import numpy as np
import pytest
from numpy.typing import NDArray

from ehr.audits import ModelAudit
from ehr.histories import Histories
from ehr.records import Records, indptr_of
from tests.clocks import set_monotonic
from worker.engine.audit import HISTORY_ATTACKS, audit_histories
from worker.engine.audit import histories as attacks
from worker.engine.audit.histories import AuditedHistories, LastVisit, new_at_last_visit
from worker.engine.generators.markov import MarkovGenerator
from worker.engine.generators.protocol import SampleProgress
from worker.engine.generators.visits import VisitsGenerator
from worker.engine.histories.protocol import HistoryFit, HistoryLosses, HistoryRequest, LastVisits

N = 80


@cache
def people(n: int, seed: int) -> Histories:
    """Patients whose visits say nothing of each other: nothing is to be learned but who they are."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(2, 5, n)
    x = rng.random((counts.sum(), N)) < np.geomspace(0.3, 0.004, N)
    gaps = rng.integers(1, 90, counts.sum()).astype(np.int32)
    gaps[indptr_of(counts)[:-1]] = 0
    return Histories(Records.from_dense(x), indptr_of(counts), gaps, Records.from_sets([[]] * n, N))


class Rote(MarkovGenerator):
    """Knows its training patients by heart: it gives them back, and how they go on."""

    learned: Histories

    @classmethod
    def of(cls, histories: Histories) -> "Rote":
        generator = cls.fit(HistoryFit(histories))
        generator.learned = histories
        return generator

    def sample(self, request: HistoryRequest, progress: SampleProgress | None = None) -> Histories:
        return self.learned.take(np.random.default_rng(request.seed).integers(0, len(self.learned), request.n))

    def history_losses(self) -> HistoryLosses:
        known = {self._key(self.learned, patient) for patient in range(len(self.learned))}

        def losses(histories: Histories, seed: int, draws: int) -> NDArray[np.float64]:
            noise = np.random.default_rng(seed).random((len(histories), 1))
            new = [self._key(histories, patient) not in known for patient in range(len(histories))]
            return noise + np.array(new)[:, None]

        return losses

    def last_visits(self) -> LastVisits:
        ends = {self._key(self.learned, i, last=False): i for i in range(len(self.learned))}
        usual = super().last_visits()

        def chances(histories: Histories, known: Records) -> NDArray[np.float32]:
            p = usual(histories, known)
            for patient in range(len(histories)):
                if (at := ends.get(self._key(histories, patient, last=False))) is not None:
                    p[patient] = self.learned.visits.take([self.learned.offsets[at + 1] - 1]).to_dense()[0]
            return p

        return chances

    @staticmethod
    def _key(histories: Histories, patient: int, last: bool = True) -> bytes:
        one = histories.take([patient]).visits
        one = one if last else one.take(np.arange(len(one) - 1))
        return one.indptr.tobytes() + one.indices.tobytes()


@cache
def audited(remembers: bool) -> ModelAudit:
    members, others = people(300, 0), people(600, 1)
    generator = Rote.of(members) if remembers else MarkovGenerator.fit(HistoryFit(members))
    return audit_histories(generator, members, others, np.random.default_rng(0))


def test_a_model_that_remembers_is_found_out_by_every_attack() -> None:
    audit = audited(True)
    assert audit.verdict.level == "fail" and audit.rare_conditions.level == "fail"
    assert {attack.name for attack in audit.attacks} == {"oracle", "mask_loss", "density_ratio"}
    by_attack = {attack.name: attack.auc.value for attack in audit.attacks if attack.absent is None}
    assert set(by_attack) == {attack.name for attack in HISTORY_ATTACKS}
    best = {name: max(a.auc.value or 0 for a in audit.attacks if a.name == name) for name in by_attack}
    assert all(value > 0.9 for value in best.values()), best
    for attack in audit.attacks:
        if attack.control_auc.value is not None:
            assert attack.control_auc.low is not None and attack.control_auc.low < 0.6


def test_a_chain_remembers_nobody() -> None:
    audit = audited(False)
    assert audit.verdict.level != "fail" and audit.rare_conditions.level != "fail"
    losses = [attack for attack in audit.attacks if attack.name == "mask_loss"]
    assert losses and all(attack.absent is not None for attack in losses)


def test_an_audit_is_a_function_of_model_people_and_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the clock says."""
    ticks = count(0, 1_000)
    set_monotonic(monkeypatch, lambda: float(next(ticks)))
    members, others = people(300, 0), people(600, 1)
    again = audit_histories(Rote.of(members), members, others, np.random.default_rng(0))
    assert again.model_copy(update={"seconds": 0.0}) == audited(True).model_copy(update={"seconds": 0.0})


def test_too_few_people_are_not_attacked() -> None:
    audit = audit_histories(Rote.of(people(20, 0)), people(20, 0), people(20, 1), np.random.default_rng(0))
    assert audit.verdict.level == "caution" and all(attack.absent is not None for attack in audit.attacks)


# --- who is asked about ---


def test_new_codes_of_the_last_visit() -> None:
    histories = Histories(
        Records.from_sets([[0, 1], [1, 2], [3], [0], [0, 1, 2]], 4),
        np.array([0, 2, 3, 5]),
        np.array([0, 5, 0, 0, 9], dtype=np.int32),
        Records.from_sets([[], [], []], 4),
    )
    assert [row.tolist() for row in new_at_last_visit(histories).to_dense(np.int8)] == [
        [0, 0, 1, 0],
        [0, 0, 0, 0],  # one visit: nothing is known before it
        [0, 1, 1, 0],
    ]


def test_a_left_out_code_is_as_rare_as_asked_and_not_counted_with_its_patient() -> None:
    members, others = people(300, 0), people(600, 1)
    model = AuditedHistories(Rote.of(members), members, others)
    for histories in (members, others):
        side = LastVisit.of(model, histories, np.random.default_rng(0), 30, 1_000)
        seen = model.seen(histories)[side.codes]
        assert len(side) > 0 and seen.min() >= 1 and seen.max() < 30
        last = side.histories.visits.take(side.histories.offsets[1:] - 1)
        assert all(last.having_any([code])[row] for row, code in enumerate(side.codes))
        assert not any(side.known(True).having_any([code])[row] for row, code in enumerate(side.codes))
        assert side.known(False).sizes().sum() == 0
    assert model.seen(members).tolist() == (model.counts - 1).tolist()


# --- what the network says of patients ---

SMALL = {
    "timesteps": 20,
    "denoiser": {"width": 16, "blocks": 1, "dropout": 0.0, "input_dropout": 0.0},
    "state": 8,
    "training": {"epochs": 1},
}


@cache
def network() -> VisitsGenerator:
    """Untrained: what is tested here holds of any weights."""
    return VisitsGenerator.prepare(HistoryFit(people(300, 0), None, SMALL))[0]


def test_the_last_visit_is_told_as_any_visit_is() -> None:
    histories = people(600, 1).take(range(150))  # more than one batch
    nothing = Records.from_sets([[]] * 150, N)
    told = network().last_visits()(histories, nothing)
    assert np.allclose(told, network().next_visits(histories)[histories.offsets[1:] - 1], atol=1e-6)
    rest = LastVisit.of(
        AuditedHistories(network(), histories, histories), histories, np.random.default_rng(0), None, 50
    )
    known = rest.known(True)
    shown = network().last_visits()(rest.histories, known)
    assert shown.shape == (len(rest), N) and np.all((shown >= 0) & (shown <= 1))


def test_losses_are_of_whole_histories_and_the_same_again() -> None:
    histories = people(600, 1).take(range(100))
    losses = network().history_losses()
    first, again = (losses(histories, 7, 2) for _ in range(2))
    assert first.shape == (100, 4) and np.array_equal(first, again) and np.all(first > 0)
    assert not np.array_equal(first, losses(histories, 8, 2))
    assert len(histories) > attacks.TRIED
