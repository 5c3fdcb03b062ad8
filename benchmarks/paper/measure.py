"""What is measured of a cohort: fidelity, utility, guided prevalence, what it adds to real records, and privacy."""

from collections.abc import Mapping

import numpy as np

from benchmarks.paper.contenders import Arena
from benchmarks.paper.store import Cell
from ehr.conditions import Condition, Target
from ehr.disclosure import shown
from ehr.records import Records
from worker.engine.generators import Generator, SampleRequest
from worker.engine.metrics import fidelity_metric
from worker.engine.metrics.air import AIR
from worker.engine.metrics.attacks import AttackSets, sampled
from worker.engine.metrics.classifier import Label
from worker.engine.metrics.measurement import Measurement
from worker.engine.metrics.mir import MIR
from worker.engine.metrics.utility import Trial

FIDELITY = {
    "prevalence_spearman": "Spearman, all codes",
    "prevalence_spearman_rare": "Spearman, rare codes",
    "cmd": "CMD",
    "mmd": "MMD",
    "mcad": "MCAD",
}
CODES_PER_RECORD = "codes_per_record"
AREAS = ("auroc", "auprc")
ATTACKS = {"air": AIR, "mir": MIR}
# Attacks are experiments in re-identification. Only data whose terms allow them, or that is of nobody, is named here.
MAY_BE_ATTACKED = ("synpuf-patients", "simulated")
GUIDED_SHARE = 0.5  # of guided records have the disease, the others are without it
REAL, UNCONDITIONAL, GUIDED = "real", "unconditional", "guided"
ARMS = (REAL, UNCONDITIONAL, GUIDED)


class AttackRefusedError(Exception):
    """The data's terms do not allow attacks."""


def require_attackable(data: str) -> None:
    """AttackRefusedError unless the data may be attacked."""
    if data not in MAY_BE_ATTACKED:
        raise AttackRefusedError(f"{data} is never attacked: only {', '.join(MAY_BE_ATTACKED)} may be")


def told(measured: Measurement) -> Cell:
    """A measurement as plain JSON."""
    fields = ("value", "low", "high", "absent", "note")
    return {name: getattr(measured, name) for name in fields if getattr(measured, name) is not None}


def fidelity_of(cohort: Records, arena: Arena, seed: int) -> Cell:
    """The five fidelity metrics, and how many codes a record has. The randomness is the same for every cohort."""
    found: Cell = {CODES_PER_RECORD: float(cohort.sizes().mean())}
    for number, name in enumerate(FIDELITY):
        rng = np.random.default_rng([seed, number])
        found[name] = told(fidelity_metric(name).measure(cohort, arena.test, arena.train, rng))
    return found


def real_cohort(arena: Arena, n: int, seed: int) -> Records:
    """Real training records in the place of synthetic ones: the floor of fidelity, the classifier to be reached."""
    return sampled(arena.train, n, np.random.default_rng([seed, 1]))


def utility_of(cohort: Records, label: Label, test: Records, seed: int) -> Cell:
    """AUROC and AUPRC on real test records of a classifier trained on the cohort."""
    measured = Trial.of(label, {"value": cohort}, test, np.random.default_rng([seed, 2])).areas("value")
    return {name: told(measured[name]) for name in AREAS}


# ---- conditions


def guided_prevalence(
    generator: Generator, label: Label, arena: Arena, unconditional: Records, n: int, seed: int
) -> Cell:
    """The share of records with the disease: real, without a condition, and asked for in both ways."""
    condition = Condition.of(arena.train.n_codes, any_of=[label.codes])
    everyone = Records.concatenate([arena.train, arena.holdout, arena.test])
    cell = {"real": _share(label, everyone, protected=True), "unconditional": _share(label, unconditional)}
    for method in ("langevin", "exact"):
        request = SampleRequest(n, seed + 1, condition, method=method)
        cell[method] = _share(label, generator.sample(request))
    return cell


def _share(label: Label, records: Records, protected: bool = False) -> Cell:
    """With its 95 % interval (Wilson). Of real records nothing that few patients have is told."""
    has, n = int(label.of(records).sum()), len(records)
    if protected and shown(has, n) is None:
        return {"absent": "too few patients"}
    p, z = has / n, 1.96
    middle, half = (p + z * z / (2 * n)), z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low, high = ((middle + sign * half) / (1 + z * z / n) for sign in (-1, 1))
    return {"value": p, "low": float(min(low, p)), "high": float(max(high, p))}


def pool(generator: Generator, label: Label | None, n_codes: int, n: int, seed: int) -> Records:
    """Records to add to real ones: unconditional, or half of them with the disease and half without."""
    targets = () if label is None else (Target(n_codes, frozenset(label.codes), GUIDED_SHARE),)
    return generator.sample(SampleRequest(n, 1_000 + seed, targets=targets))


def augmented(
    label: Label, arena: Arena, pools: Mapping[str, Records], arm: str | None, start: int, added: int, seed: int
) -> Cell:
    """A classifier trained on `start` real records and `added` ones of the arm. A seed has the same real records to
    start from in every arm."""
    order = np.random.default_rng([seed, 3]).permutation(len(arena.train))
    train = arena.train.take(order[:start])
    if arm is not None:
        more = arena.train.take(order[start:]) if arm == REAL else pools[arm]
        if len(more) < added:
            return {name: {"absent": f"there are fewer than {added:,} more records"} for name in AREAS}
        train = Records.concatenate([train, more.take(np.arange(added))])
    return utility_of(train, label, arena.test, seed)


# ---- privacy


def attacked(data: str, cohort: Records, arena: Arena, seed: int) -> Cell:
    """Attribute and membership inference beside their controls. Refused for data that may not be attacked."""
    require_attackable(data)
    sets_rng, *streams = np.random.default_rng([seed, 4]).spawn(1 + len(ATTACKS))
    sets = AttackSets(cohort, arena.train, arena.holdout, arena.test, sets_rng)
    reason = sets.too_small()
    if reason is not None:
        return {"absent": reason}
    results = {name: metric.measure(sets, rng) for (name, metric), rng in zip(ATTACKS.items(), streams, strict=True)}
    return {
        name: {role: told(measured) for role, measured in result.roles.by_name().items()}
        for name, result in results.items()
    }
