"""Patients over time: how real are their courses, are conditions met, and how long does it take?

python -m benchmarks.time                                    # the simulated population, whose links are known
python -m benchmarks.time --data ../shared/data/synpuf-visits
python -m benchmarks.time --data ../shared/data/formats/synthea
python -m benchmarks.time --set-first                        # beside the arm that draws a patient's set of codes first
python -m benchmarks.time --throughput                       # 50,000 simulated patients of ten visits: only the time

Folders have train.csv.gz and test.csv.gz (patient_id,date,vocabulary,code,sex,birth_year), split by patient, or the
files of an upload. HALO is trained for as long as ours was.
"""

import argparse
from typing import Any

import numpy as np

from benchmarks._harness import Figures, console, options, peak_rss_gib, progress_bar, show, timed
from benchmarks._histories import HELD_OUT, Patients, patients_in
from benchmarks._time_arms import arms_against_exact, cpu_seconds, set_first_cohorts
from benchmarks._time_baselines import halo_cohort, history_fit, markov_cohort
from benchmarks._time_conditions import against_exact, attainment
from benchmarks._time_set_first import SetFirst
from ehr.generators.auto import Shape
from ehr.histories import Histories
from worker.engine.generators.markov import MarkovGenerator
from worker.engine.generators.visits import VisitsGenerator
from worker.engine.histories.protocol import HistoryFit, HistoryRequest
from worker.engine.metrics.measurement import Result
from worker.engine.metrics.privacy import plan_attacks
from worker.engine.metrics.time import plan_time
from worker.engine.metrics.time.r2 import NOREPEAT_R2, SIX_R2
from worker.engine.metrics.time.yardsticks import all_visits
from worker.engine.population import simulated_histories
from worker.engine.training import Hooks

REAL = 40_000  # simulated patients, of whom those with a code are real ones to compare with
COMPARED = 5_000  # patients
CONDITIONED = 512  # for each condition
MANY, VISITS = 50_000, 10  # patients and visits of each, to see how long they take
EXACTLY = 300  # patients whose next visits are compared with exact probabilities


def main() -> None:
    parser = options(__doc__ or "", data=True)
    parser.add_argument("--patients", type=int, help="to learn from, at most; default: all, or 10,000 simulated ones")
    parser.add_argument("--epochs", type=int, help="other than the default")
    parser.add_argument("--compared", type=int, default=COMPARED, help="patients of each cohort, at most")
    parser.add_argument("--without-halo", action="store_true")
    parser.add_argument("--set-first", action="store_true", help="compare with sets of codes unfolded into visits")
    parser.add_argument("--throughput", action="store_true", help="train on 50,000 x 10 visits and draw, no metrics")
    arguments = parser.parse_args()
    quick, only_time = arguments.quick, arguments.throughput
    usual = arguments.patients if not only_time else arguments.patients or round(MANY / (1 - HELD_OUT))
    data = patients_in(arguments.data, 200 if quick else usual, VISITS if only_time else None)
    counts = data.train.visit_counts()
    console.print(
        f"{len(data.train):,} patients, {len(data.train.visits):,} visits ({counts.mean():.1f} each, {counts.max()} at "
        f"most), {data.train.visits.sizes().mean():.1f} of {len(data.vocabulary):,} codes at a visit"
    )
    figures = Figures()
    model = _trained(data, 2 if quick else arguments.epochs, figures, quick)
    n = min(200 if quick else arguments.compared, len(data.train))
    synth = _drawn(model, n, figures)
    if not only_time:
        _judged(model, synth, data, arguments, figures)
    figures.finish(arguments.json)


def _judged(
    model: VisitsGenerator, synth: Histories, data: Patients, arguments: argparse.Namespace, figures: Figures
) -> None:
    """Everything but how long it took."""
    quick, n = arguments.quick, len(synth)
    seconds = 5.0 if quick else figures.value("time.train_seconds")
    others = {} if arguments.without_halo else {"halo": halo_cohort(data, n, seconds)}
    if arguments.set_first:
        arm = _set_first(data, model, 2 if quick else None, figures)
        cohorts = set_first_cohorts(arm, n, 2, figures)
        if data.simulated:
            conditioned = (32, 4_000) if quick else (CONDITIONED, REAL)
            arms_against_exact(model, arm, data, {"visits": synth, **cohorts}, *conditioned, figures)
        others |= cohorts
    _compare(synth, others, data, figures)
    if not quick:
        _membership(synth, data, figures)
    if data.simulated:
        _next_visits(model, data, figures)
        against_exact(model, data, 32 if quick else 4 * CONDITIONED, figures)
    attainment(model, data, 32 if quick else CONDITIONED, figures, 5 if quick else None)


def _trained(data: Patients, epochs: int | None, figures: Figures, quick: bool) -> VisitsGenerator:
    changes: dict[str, Any] = {} if epochs is None else {"training": {"epochs": epochs}}
    if quick:
        changes["calibration_rounds"] = 1
    settings = VisitsGenerator.spec.resolve(None, changes, Shape(len(data.train), len(data.vocabulary)))
    with progress_bar("training") as advance, timed() as seconds:
        hooks = Hooks(on_progress=lambda progress: advance(progress.step, progress.total_steps))
        model = VisitsGenerator.fit(history_fit(data, settings.config, hooks))
    elbo = model.held_out_elbo(data.test)
    curve = ", ".join(f"{point['held_out']:.3f}" for point in model.curve)
    console.print(
        f"trained in {seconds[0]:.0f} s; unseen visits: {elbo.value:.3f} +- {elbo.standard_error:.3f} nats each; "
        f"held-out ones on the way: {curve}"
    )
    figures.add("time.train_seconds", seconds[0], f"s, {len(data.train.visits):,} visits")
    figures.add("time.held_out_elbo", elbo.value, "nats per visit")
    return model


def _drawn(model: VisitsGenerator, n: int, figures: Figures) -> Histories:
    model.sample(HistoryRequest(64, seed=1))
    before = peak_rss_gib()
    with progress_bar("drawing patients") as advance, timed() as seconds:
        synth = model.sample(HistoryRequest(n, seed=2), advance)
    rate = len(synth.visits) / 10 / seconds[0]
    figures.add("time.patients_per_s", rate, "patients of ten visits per second")
    figures.add("time.sampling_gib", peak_rss_gib() - before, f"GiB more at the peak, for {n:,} patients")
    return synth


def _set_first(data: Patients, model: VisitsGenerator, epochs: int | None, figures: Figures) -> SetFirst:
    with progress_bar("training on sets"), cpu_seconds() as seconds:
        arm = SetFirst.fit(data, model, epochs)
    figures.add("time.set_first_train_seconds", seconds[0], "cpu seconds, of the model of sets alone")
    return arm


def _compare(synth: Histories, others: dict[str, Histories], data: Patients, figures: Figures) -> None:
    """Every metric of time, beside real patients, the last visit only, visits shuffled, and other generators."""
    markov, rng, codes = markov_cohort(data, len(synth)), np.random.default_rng(0), data.vocabulary.codes
    plan = plan_time(synth, data.test, data.train, markov, rng, others=others, codes=codes)
    results: dict[str, Result] = {}
    with progress_bar("metrics of time") as advance:
        for name, measure in plan:
            results[name] = measure()
            advance(len(results), len(plan))
    roles = {"value": "ours", "floor": "real", "markov": "Markov", "shuffled": "shuffled"} | {
        role: role.replace("_", " ") for role in others
    }
    rows = [[name, *(_said(result, role) for role in roles)] for name, result in results.items()]
    show(f"{len(synth):,} patients of each", ["metric", *roles.values()], rows)

    def worst(names: list[str]) -> float:
        return max(_value(results[name], "floor") - _value(results[name], "value") for name in names)

    figures.add("time.r2_gap_max", worst([metric.name for metric in SIX_R2]), "floor minus ours, worst of six R²")
    figures.add("time.norepeat_gap_max", worst([metric.name for metric in NOREPEAT_R2]), "the same, different codes")
    figures.add("time.ks_max", max(_value(results[name], "value") for name in ("gap_ks", "visits_ks")), "KS distance")
    figures.add("time.recurrence_spearman", _value(results["recurrence"], "value"), "over codes")
    figures.add("time.next_auroc_gap", worst(["next_auroc", "next_recall_10"]), "real minus synthetic, worse of two")
    for role in ("markov", *others):
        both = [
            name for name, result in results.items() if not np.isnan(_value(result, "value") + _value(result, role))
        ]
        lost = [name for name in both if not _beats(results[name], role)]
        beaten = f"of {len(both)} metrics" + (f"; not {', '.join(lost)}" if lost else "")
        figures.add(f"time.beats_{role}", len(both) - len(lost), beaten)


def _value(result: Result, role: str) -> float:
    value = result.measured[role].value
    return np.nan if value is None else value


def _beats(result: Result, role: str) -> bool:
    """Whether the value is as good as the other's, or better."""
    ours, theirs = _value(result, "value"), _value(result, role)
    return ours >= theirs if result.metric.direction == "higher" else ours <= theirs


def _said(result: Result, role: str) -> str:
    measured = result.measured[role]
    return "absent" if measured.value is None else f"{measured.value:.4f}"


def _membership(synth: Histories, data: Patients, figures: Figures) -> None:
    """Attacks on whole patients: members are training patients, others are held out."""
    cohort, train, holdout, control = (all_visits(each) for each in (synth, data.train, data.holdout, data.test))
    rows = []
    for name, attack in plan_attacks(cohort, train, holdout, control, np.random.default_rng(0)):
        if name in ("mir", "mia_tpr_at_fpr"):
            gain = attack().roles.gain
            rows.append([name, *("absent" if x is None else f"{x:+.4f}" for x in (gain.value, gain.low, gain.high))])
            if name == "mir" and gain.value is not None:
                figures.add(
                    "time.membership_gain", gain.value, f"F1 above control, {gain.low:+.3f} to {gain.high:+.3f}"
                )
    show("membership of whole patients", ["attack", "gain", "low", "high"], rows)


def _next_visits(model: VisitsGenerator, data: Patients, figures: Figures) -> None:
    """P(code at the next visit | all visits before) beside the exact one, over visits and codes."""
    some = data.test.take(np.arange(min(EXACTLY, len(data.test))))
    later = np.delete(np.arange(len(some.visits)), some.offsets[:-1])
    exact = simulated_histories().predictions(some).codes[later - 1]
    said = model.next_visits(some)[later]
    before = some.visits.take(later - 1).to_dense() > 0
    chain = MarkovGenerator.fit(HistoryFit(data.train)).codes
    markov = np.where(before, chain[2], chain[1])
    errors = [float(np.abs(each - exact).mean()) for each in (said, markov, data.train.visits.prevalence()[None])]
    console.print(
        f"P(code at the next visit), mean absolute error over {len(later):,} visits: {errors[0]:.5f}; last visit only "
        f"{errors[1]:.5f}; prevalence {errors[2]:.5f}"
    )
    figures.add("time.next_visit_mae", errors[0], f"{errors[1]:.5f} with the last visit only")


if __name__ == "__main__":
    main()
