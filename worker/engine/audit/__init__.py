"""Attacks on a model, once after training: does it remember single patients? A new one is a file and a line here."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ehr.audits import AttackSummary, FalsePositives, ModelAudit
from ehr.histories import Histories
from ehr.records import Records
from ehr.reports import Figure, Verdict
from worker.engine.audit.attack import Attacked, AuditAttack, AuditedModel, Variant
from worker.engine.audit.density_ratio import DENSITY_RATIO
from worker.engine.audit.histories import HISTORY_COHORT, HISTORY_LOSS, LAST_VISIT, AuditedHistories
from worker.engine.audit.mask_loss import MASK_LOSS
from worker.engine.audit.oracle import ORACLE
from worker.engine.audit.people import AuditSets
from worker.engine.audit.reconstruction import RECONSTRUCTION
from worker.engine.audit.separation import Separation, control, separation
from worker.engine.audit.verdicts import FORBIDDEN, Measured, verdicts
from worker.engine.generators import Generator
from worker.engine.histories.protocol import HistoryGenerator
from worker.engine.metrics.measurement import Measurement

ATTACKS: tuple[AuditAttack[AuditedModel], ...] = (ORACLE, MASK_LOSS, DENSITY_RATIO, RECONSTRUCTION)
HISTORY_ATTACKS: tuple[AuditAttack[AuditedHistories], ...] = (LAST_VISIT, HISTORY_LOSS, HISTORY_COHORT)
DIGITS = 3
Watch = Callable[[str, int], None]

__all__ = ["ATTACKS", "HISTORY_ATTACKS", "audit_histories", "audit_model", "not_audited"]


def unwatched(name: str, done: int) -> None:
    """Nobody is told."""


def audit_model(
    generator: Generator,
    train: Records,
    unseen: Records,
    rng: np.random.Generator,
    watch: Watch = unwatched,
) -> ModelAudit:
    """Every attack on the model, a function of the first four and not of the machine. `unseen`: real records it has not
    learned from; `watch` is told what comes next."""
    return _audited(ATTACKS, AuditedModel(generator, AuditSets(train, unseen)), rng, watch)


def audit_histories(
    generator: HistoryGenerator,
    train: Histories,
    unseen: Histories,
    rng: np.random.Generator,
    watch: Watch = unwatched,
) -> ModelAudit:
    """The same for a model of patients over time, whose every visit is one person's."""
    return _audited(HISTORY_ATTACKS, AuditedHistories(generator, train, unseen), rng, watch)


def _audited(
    attacks: Sequence[AuditAttack[Attacked]], model: Attacked, rng: np.random.Generator, watch: Watch
) -> ModelAudit:
    started = time.monotonic()
    measured: list[Measured] = []
    summaries = []
    for number, (attack, stream) in enumerate(zip(attacks, rng.spawn(len(attacks)), strict=True)):
        watch(attack.name, number)
        for variant in attack.measure(model, stream):
            found = None if variant.absent is not None else separation(variant.members, variant.others, stream)
            beside = None if found is None else control(variant.others, stream)
            measured.append((attack, variant, found))
            summaries.append(_summary(attack, variant, found, beside))
    return ModelAudit(**verdicts(measured), attacks=summaries, seconds=round(time.monotonic() - started, 1))


def not_audited(verdict: Verdict = FORBIDDEN) -> ModelAudit:
    """Of a model that was not attacked, for the reason that the verdict gives."""
    return ModelAudit(verdict=verdict, rare_conditions=verdict)


def _summary(
    attack: AuditAttack[Any], variant: Variant, found: Separation | None, beside: Separation | None
) -> AttackSummary:
    named = {"name": attack.name, "title": attack.title, "variant": variant.name}
    if found is None or beside is None:
        return AttackSummary(**named, absent=variant.absent)
    if variant.accuracy:
        return AttackSummary(
            **named,
            auc=_figure(found.auc),
            control_auc=_figure(beside.auc),
            accuracy=round(float(variant.members.mean()), DIGITS),
            control_accuracy=round(float(variant.others.mean()), DIGITS),
        )
    return AttackSummary(
        **named,
        auc=_figure(found.auc),
        tpr_at=_rates(found),
        control_auc=_figure(beside.auc),
        control_tpr_at=_rates(beside),
    )


def _rates(found: Separation) -> dict[FalsePositives, Figure]:
    rates: tuple[FalsePositives, ...] = ("0.001", "0.01", "0.1")
    return {rate: _figure(found.tpr_at[rate]) for rate in rates}


def _figure(measured: Measurement) -> Figure:
    value, low, high = (
        None if each is None else round(each, DIGITS) for each in (measured.value, measured.low, measured.high)
    )
    return Figure(value=value, low=low, high=high, absent=measured.absent)
