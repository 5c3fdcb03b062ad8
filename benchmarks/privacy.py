"""What a model remembers of its training patients: attacks on preset `best` before and after restraint, and the audit.

python -m benchmarks.privacy --data DIR [--work DIR] [--json FILE] [--only STAGE ...] [--quick]

Members are training records, others the test records. Training `best` is the long part: with --work it is kept there
and reused. `after` is the same training with what few patients have taught restrained, as training does in the end.
The stage `service` starts the whole service and asks it about single patients over HTTP with an analyst's key, whose
caps it raises. Of data that may not be attacked only the quality is measured.
"""

import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from benchmarks._harness import Figures, options, progress_bar, show
from benchmarks._privacy_models import Split, before_and_after, load, overfitted, reference_model, restrained
from benchmarks._privacy_service import service
from benchmarks.conditional import slice_quality, utility
from ehr.audits import ModelAudit
from ehr.conditions import Condition
from ehr.records import Records
from worker.engine.audit import audit_model, mask_loss
from worker.engine.audit.oracle import lift_of, scores
from worker.engine.audit.people import RAREST, AuditSets, Sides, without
from worker.engine.audit.separation import Scores, Separation, separation
from worker.engine.generators import SampleRequest
from worker.engine.generators.d3pm import D3PMGenerator
from worker.engine.metrics import fidelity
from worker.engine.metrics.attacks import sampled
from worker.engine.metrics.measurement import Measurement

Models = dict[str, D3PMGenerator]
TRIALS = range(100, 120)  # seeds of overfitted models
MOST_ASKED = 8000  # people of each side
COHORTS = 4  # of which fidelity is the mean
UNSEEN = 1600  # people that small models are asked about beside those they saw
ASKED_BY_DRAWING, DRAWN = 60, 1024  # people of each side, and records for each of them


def oracle(models: Models, split: Split, figures: Figures) -> None:
    """All codes of a person but the rarest are asked for: how often does it come back?"""
    sets = AuditSets(split.members, split.test)
    limits = {"rare": sets.rare_below, "rarest": float(RAREST)}
    people = {
        name: sets.with_rarest_code(below, np.random.default_rng(1), most=MOST_ASKED, with_self=True)
        for name, below in limits.items()
    }
    # Counted without the person, members' codes are a little commoner in the model than others' of the same count.
    people |= {
        f"{name} without self": sets.with_rarest_code(below, np.random.default_rng(1), most=MOST_ASKED)
        for name, below in limits.items()
    }
    people["random"] = sets.with_any_code(np.random.default_rng(1))
    rows = []
    for when, model in models.items():
        for name, sides in people.items():
            if sides.too_few:
                rows.append([f"{name}, {when}", "too few such people"])
                continue
            share, lift = (
                separation(*_scored(model, sides, relative=relative), np.random.default_rng(2))
                for relative in (False, True)
            )
            rows.append([f"{name}, {when}", *_cells(share), *_cells(lift)])
            if name in limits:
                prefix = "" if when == "after" else "before."
                figures.add(f"{prefix}oracle.{name}_auc", _value(share.auc), "share of records as score; chance 0.5")
                figures.add(f"{prefix}oracle.{name}_tpr_at_1pct", _value(share.tpr_at["0.01"]), "chance 0.01")
                figures.add(f"{prefix}oracle.{name}_lift_auc", _value(lift.auc), "share over usual share as score")
    header = ["left-out code", "AUC of share", "TPR at 1 %", "AUC of lift", "TPR at 1 %"]
    show("conditional oracle: test records against training records", header, rows)


def _scored(model: D3PMGenerator, sides: Sides, *, relative: bool) -> tuple[Scores, Scores]:
    n_codes = sides.members.n_codes
    if relative:
        return scores(sides, lift_of(model, n_codes, np.random.default_rng(0)))
    prevalence = model.conditional_prevalence()
    assert prevalence is not None

    def share(known: Records, codes: np.ndarray) -> Scores:
        return np.asarray(prevalence(known)[np.arange(len(known)), codes], dtype=np.float64)

    return scores(sides, share)


def drawing(model: D3PMGenerator, split: Split, quick: bool) -> None:
    """Whether the share the network states is the share among records that are drawn."""
    sets, people = AuditSets(split.members, split.test), 4 if quick else ASKED_BY_DRAWING
    sides = sets.with_rarest_code(sets.rare_below if not quick else np.inf, np.random.default_rng(1))
    exact = _scored(model, sides, relative=False)
    drawn: list[list[float]] = [[], []]
    with progress_bar("drawn about people") as advance:
        for side, records, codes in ((0, sides.members, sides.of_members), (1, sides.others, sides.of_others)):
            for row in range(min(people, len(records))):
                known = without(records.take([row]), codes[[row]])
                condition = Condition.of(known.n_codes, known.indices.tolist())
                cohort = model.sample(SampleRequest(64 if quick else DRAWN, seed=row, condition=condition))
                drawn[side].append(float((cohort.indices == codes[row]).sum() / len(cohort)))
                advance(side * people + row + 1, 2 * people)
    stated = np.concatenate([each[: len(found)] for each, found in zip(exact, drawn, strict=True)])
    found = np.concatenate([np.asarray(each) for each in drawn])
    rank = float(spearmanr(stated, found).statistic)
    rows = [
        ["rank correlation of the two", f"{rank:.3f}"],
        ["mean share, stated", f"{stated.mean():.5f}"],
        ["mean share, drawn", f"{found.mean():.5f}"],
    ]
    show(f"{len(found)} people asked about by drawing", ["", ""], rows)


def masks(models: Models, split: Split, quick: bool, figures: Figures) -> None:
    """The loss over fixed masks, alone and beside that of a model of other people."""
    half = len(split.test) // 2
    attacked, known = split.test.take(np.arange(half)), split.test.take(np.arange(half, len(split.test)))
    reference = reference_model(split, known, quick)
    rng = np.random.default_rng(1)
    members, others = sampled(split.members, 3000, rng), sampled(attacked, 3000, rng)
    usual = mask_loss.scores(reference.record_losses(), members, others, seed=7)
    rows = []
    for when, model in models.items():
        alone = mask_loss.scores(model.record_losses(), members, others, seed=7)
        beside = tuple(own - other for own, other in zip(alone, usual, strict=True))
        by_itself = separation(*alone, np.random.default_rng(2))
        with_reference = separation(beside[0], beside[1], np.random.default_rng(2))
        rows.append([when, *_cells(by_itself), *_cells(with_reference)])
        prefix = "" if when == "after" else "before."
        figures.add(
            f"{prefix}mask.auc", max(_value(by_itself.auc), _value(with_reference.auc)), "the better of the two"
        )
    header = ["", "AUC", "TPR at 1 %", "AUC with reference", "TPR at 1 %"]
    show("loss under masks, with the weights", header, rows)


def audits(models: Models, split: Split) -> None:
    """What the service would say of the two models."""
    rows = []
    for when, model in models.items():
        audit = audit_model(model, split.members, split.test, np.random.default_rng(3))
        rows.append(
            [f"{when}: {audit.verdict.level}", f"rare: {audit.rare_conditions.level}", f"{audit.seconds:.0f} s"]
        )
        rows += [_attack_row(audit, number) for number in range(len(audit.attacks))]
    show("audit", ["attack", "AUC", "control", "TPR at 1 %"], [[*row, *[""] * (4 - len(row))] for row in rows])


def _attack_row(audit: ModelAudit, number: int) -> list[str]:
    attack = audit.attacks[number]
    if attack.absent is not None:
        return [f"  {attack.name} {attack.variant}", attack.absent]
    rate = attack.tpr_at.get("0.01")
    hits = f"{attack.accuracy} / {attack.control_accuracy} right" if rate is None else _number(rate.value)
    return [f"  {attack.name} {attack.variant}", _number(attack.auc.value), _number(attack.control_auc.value), hits]


def trials(split: Split, quick: bool, figures: Figures) -> None:
    """Overfitted models are caught; the same models, audited about people they never saw, pass. Restrained, as training
    leaves a model unless it is told not to, they remember less."""
    caught = passed = good = still = 0
    seeds = TRIALS[:2] if quick else TRIALS
    number, unseen = len(seeds), sampled(split.test, UNSEEN, np.random.default_rng(4))
    for seed, (model, seen, others) in zip(seeds, overfitted(split, seeds, quick), strict=True):
        caught += audit_model(model, seen, unseen, np.random.default_rng(seed)).verdict.level == "fail"
        clean = audit_model(model, others, unseen, np.random.default_rng(seed)).verdict.level
        passed, good = passed + (clean != "fail"), good + (clean == "good")
        less = restrained(model, seen, split.vocabulary)
        still += audit_model(less, seen, unseen, np.random.default_rng(seed)).verdict.level == "fail"
    rows = [
        ["overfitted, caught", f"{caught} of {number}"],
        ["never seen, passed", f"{passed} of {number}, {good} good"],
        ["overfitted, then restrained, caught", f"{still} of {number}"],
    ]
    show("audits of small models", ["", ""], rows)
    figures.add("overfitted.caught", caught, f"of {number}")
    figures.add("clean.passed", passed, f"of {number}")
    figures.add("restrained.caught", still, f"of {number}; what restraint leaves of overfitting")


def quality(models: Models, split: Split, quick: bool, figures: Figures) -> None:
    """Fidelity of cohorts before and after."""
    train, rows = Records.concatenate([split.members, split.holdout]), []
    for when, model in models.items():
        found, ratio = _fidelity(model, split, train, quick)
        elbo = model.held_out_elbo(split.test, draws=1).value
        rows.append([when, f"{elbo:.3f}", f"{ratio:.3f}", *(_number(value) for value in found.values())])
        figures.add("cmd_ratio" if when == "after" else "before.cmd_ratio", ratio, "ours over floor")
    title = f"fidelity, means of {1 if quick else COHORTS} cohorts"
    show(title, ["", "test ELBO", "CMD / floor", "rare Spearman", "cmd", "mcad", "mmd"], rows)
    gaps = Figures()
    utility(models["after"], train, split.test, list(split.vocabulary), quick, gaps)
    everyone = Records.concatenate([train, split.test])
    slice_quality(models["after"], everyone, list(split.vocabulary), quick, gaps)
    shared = {"best.auroc_gap_mean": "auroc_gap_mean", "slice_l1_ratio.max": "slice_l1_ratio.max"}
    for row in gaps.rows:
        if (name := shared.get(str(row["name"]))) is not None:
            figures.add(name, float(str(row["value"])), str(row["unit"]))


def _fidelity(model: D3PMGenerator, split: Split, train: Records, quick: bool) -> tuple[dict[str, float], float]:
    """Means over cohorts, which differ from each other by more than ours and real ones do, and CMD over its floor."""
    names = ["prevalence_spearman_rare", "cmd", "mcad", "mmd"]
    results = [
        fidelity(
            model.sample(SampleRequest(512 if quick else 25_000, seed=seed)),
            split.test,
            train,
            np.random.default_rng(seed + 1),
            names=names,
        )
        for seed in range(1 if quick else COHORTS)
    ]
    found = {name: float(np.mean([_value(each[name].value) for each in results])) for name in names}
    return found, found["cmd"] / float(np.mean([_value(each["cmd"].floor) for each in results]))


def _cells(found: Separation) -> list[str]:
    return [_with_interval(found.auc), _with_interval(found.tpr_at["0.01"])]


def _with_interval(measured: Measurement) -> str:
    if measured.value is None:
        return "too few"
    return f"{measured.value:.3f} ({_number(measured.low)} to {_number(measured.high)})"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _value(measured: Measurement) -> float:
    return float("nan") if measured.value is None else measured.value


def main() -> None:
    parser = options(__doc__ or "", data=True)
    parser.add_argument("--work", type=Path, metavar="DIR", help="keep trained models here and start from them")
    parser.add_argument("--only", nargs="+", metavar="STAGE", help="only some of the stages, by name")
    arguments = parser.parse_args()
    quick, figures, started = arguments.quick, Figures(), time.perf_counter()
    split = load(arguments.data, quick)
    print(f"{split.label}: {len(split.members):,} members, {len(split.test):,} others")

    @cache
    def models() -> Models:
        """Trained when a stage needs them."""
        trained, strength = before_and_after(split, None if quick else arguments.work, quick)
        print(f"restraint {strength}")
        return trained

    attacks: dict[str, Callable[[], None]] = {
        "service": lambda: service(split.members, split.vocabulary, quick, figures),
        "oracle": lambda: oracle(models(), split, figures),
        "drawing": lambda: drawing(models()["before"], split, quick),
        "masks": lambda: masks(models(), split, quick, figures),
        "audits": lambda: audits(models(), split),
        "trials": lambda: trials(split, quick, figures),
    }
    if not split.may_be_attacked:
        print(f"left out, because the terms of {split.label} forbid attacks: {', '.join(attacks)}")
        attacks = {}
    stages = attacks | {"quality": lambda: quality(models(), split, quick, figures)}
    for name, run in stages.items():
        if name in (arguments.only or stages):
            run()
    print(f"{time.perf_counter() - started:.0f} s in all")
    figures.finish(arguments.json)


if __name__ == "__main__":
    main()
