"""The engine on real records: how good each noise x denoiser is, what training costs, how much memory it takes.

python -m benchmarks.engine --data DIR --json FILE
"""

import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks._harness import Figures, load_long, options, peak_rss_gib, progress_bar, show, subset, timed
from ehr.errors import TrainingStopped
from ehr.generators.d3pm import PRESETS, TrainingConfig
from ehr.records import Records
from worker.engine.generators import FitRequest, SampleRequest
from worker.engine.generators.d3pm import D3PMGenerator
from worker.engine.generators.independent import IndependentGenerator
from worker.engine.independent import independent_records
from worker.engine.metrics import Measurement, Result, fidelity
from worker.engine.population import simulated_population
from worker.engine.training import Hooks

SYNTHETIC_RECORDS, STEPS = 25_000, 64
MAIN = "absorbing x sparse"


@dataclass(frozen=True)
class Case:
    """One noise x denoiser, with as much training and as many samples as a CPU can carry in reasonable time."""

    name: str
    settings: dict[str, Any]
    records: int = SYNTHETIC_RECORDS  # to generate
    train_records: int | None = None  # to train on; None is all
    test_records: int | None = None  # for the ELBO; None is all
    steps: int = STEPS
    note: str = ""


def cases(quick: bool) -> list[Case]:
    """The default preset in full; other noises with its network; the paper's network at a width a CPU can train."""
    fast = PRESETS["fast"].model_dump()
    shorter = fast | {"training": fast["training"] | {"epochs": 2}}
    two_state = {"timesteps": 500, "training": shorter["training"] | {"time_sampling": "importance"}}
    small_linformer = {
        "timesteps": 500,
        "denoiser": {"kind": "linformer", "width": 32, "layers": 2, "heads": 4, "projection": 32},
        "training": {"epochs": 1, "batch_size": 128, "learning_rate": 3e-3, "time_sampling": "importance"},
    }
    short = "2 epochs of 20,000 records"
    small = "width 32, 2 layers, 1 epoch of 5,000 records"
    found = [
        Case(MAIN, fast, note="preset fast"),
        Case("marginal x sparse", shorter | two_state | {"noise": "marginal"}, 2_000, 20_000, 5_000, note=short),
        Case("uniform x sparse", shorter | two_state | {"noise": "uniform"}, 2_000, 20_000, 5_000, note=short),
        *(
            Case(f"{noise} x linformer", small_linformer | {"noise": noise}, 500, 5_000, 1_000, note=small)
            for noise in ("uniform", "absorbing")
        ),
    ]
    if not quick:
        return found
    one_epoch = {"training": {"epochs": 1, "batch_size": 64}}
    return [Case(c.name, c.settings | one_epoch, 100, 300, 100, 8, c.note) for c in found]


@dataclass(frozen=True)
class Outcome:
    """What one case reached."""

    case: Case
    train_seconds: float
    elbo: str
    elbo_value: float
    record_steps_per_s: float
    codes_per_record: float
    results: dict[str, Result]


def run_case(case: Case, train: Records, test: Records) -> Outcome:
    """Train with a twentieth of the training records held out, then measure samples against test."""
    order = np.random.default_rng(0).permutation(len(train))
    holdout, rest = train.take(order[: len(train) // 20]), train.take(order[len(train) // 20 :][: case.train_records])
    with progress_bar(f"train {case.name}") as advance, timed() as train_seconds:
        hooks = Hooks(on_progress=lambda p: advance(p.step, p.total_steps))
        generator = D3PMGenerator.fit(FitRequest(rest, holdout, case.settings, hooks=hooks))
    elbo = generator.held_out_elbo(subset(test, case.test_records or len(test)))
    steps = min(case.steps, generator.config.timesteps)
    with progress_bar(f"sample {case.name}") as advance, timed() as sample_seconds:
        synth = generator.sample(SampleRequest(case.records, steps=steps), progress=advance)
    with progress_bar(f"measure {case.name}") as advance:
        results = fidelity(synth, test, train, np.random.default_rng(1), lambda _, done, total: advance(done, total))
    return Outcome(
        case,
        train_seconds[0],
        f"{elbo.value:.2f} ± {1.96 * elbo.standard_error:.2f}",
        elbo.value,
        case.records * steps / sample_seconds[0],
        float(synth.sizes().mean()),
        results,
    )


def show_outcome(o: Outcome, train: Records, test: Records) -> None:
    """Costs and bound of one case, then its fidelity with the yardsticks."""
    independent = IndependentGenerator.fit(FitRequest(train)).log_loss()(test)[0]
    cost = [f"{o.train_seconds:.0f}", o.elbo, f"{o.record_steps_per_s:,.0f}", f"{o.codes_per_record:.2f}"]
    show(
        f"{o.case.name} ({o.case.note})",
        ["", "training s", "held-out ELBO, nats", "records x steps / s", "codes per record"],
        [
            [o.case.name, *cost],
            ["independent codes", "", f"{independent:.2f}", "", f"{train.sizes().mean():.2f}"],
            ["test records", "", "", "", f"{test.sizes().mean():.2f}"],
        ],
    )
    rows = [[name, _text(r.value), _text(r.floor), _text(r.independent)] for name, r in o.results.items()]
    show(f"{o.case.name}: {o.case.records:,} records against test", ["", "value [95 %]", "floor", "independent"], rows)


def _text(m: Measurement) -> str:
    if m.value is None:
        return m.absent or ""
    return f"{m.value:.4g}" if m.low is None or m.high is None else f"{m.value:.4g} [{m.low:.4g}, {m.high:.4g}]"


def training_speed(train: Records, settings: dict[str, Any], batch_size: int, batches: int) -> float:
    """Records per second of optimisation steps, after one step to warm up."""
    settings = settings | {"training": settings["training"] | {"batch_size": batch_size, "epochs": 1}}
    stamps: list[float] = []
    hooks = Hooks(on_progress=lambda p: stamps.append(time.perf_counter()))
    D3PMGenerator.fit(FitRequest(subset(train, batch_size * (batches + 1)), None, settings, device="cpu", hooks=hooks))
    return batch_size * (len(stamps) - 1) / (stamps[-1] - stamps[0])


def speed_against_paper(train: Records, quick: bool, figures: Figures) -> None:
    """Training throughput of both networks on the same records, in one run."""
    batches = 5 if quick else 150
    ours = PRESETS["fast"].model_dump()
    fast = training_speed(train, ours, 256 if quick else 512, batches)
    # Its cost per record does not depend on the batch; a small one keeps activations within memory.
    paper = training_speed(train, PRESETS["paper-mimic"].model_dump(), 4 if quick else 16, 1 if quick else 3)
    show(
        "training throughput, same machine, same records",
        ["", "records / s", "ratio"],
        [["linformer, paper-mimic", f"{paper:.2f}", "1"], ["sparse, fast", f"{fast:,.0f}", f"{fast / paper:,.0f}"]],
    )
    figures.add("train.speedup_vs_paper", fast / paper, "times")


def train_large(n: int) -> None:
    """Train for a few steps on n records x 1,000 codes, 10 codes each, and print the peak memory in GiB."""
    rng = np.random.default_rng(0)
    prevalence = 1 / np.arange(1, 1001) ** 0.9
    records = independent_records(prevalence * 10 / prevalence.sum(), n, rng)
    steps_left = iter(range(50))
    settings = {"training": TrainingConfig(epochs=1).model_dump()}
    hooks = Hooks(should_stop=lambda: next(steps_left, None) is None)
    with suppress(TrainingStopped):
        D3PMGenerator.fit(FitRequest(records, subset(records, 10_000), settings, hooks=hooks))
    print(peak_rss_gib())


def memory(quick: bool, figures: Figures) -> None:
    """Peak memory of training on a large data set, in a process of its own."""
    n = 20_000 if quick else 1_600_000
    done = subprocess.run(
        [sys.executable, "-c", f"from benchmarks.engine import train_large; train_large({n})"],
        capture_output=True,
        text=True,
        check=True,
    )
    gib = float(done.stdout.strip())
    show("peak memory of training", ["records x codes", "GiB"], [[f"{n:,} x 1,000, 10 codes each", f"{gib:.2f}"]])
    figures.add("train.peak_rss_gib", gib, "GiB")


def add_figures(figures: Figures, outcome: Outcome, prefix: str) -> None:
    """The figures of the default generator."""

    def value(metric: str, role: str = "value") -> float:
        measured = getattr(outcome.results[metric], role).value
        return float("nan") if measured is None else float(measured)

    for name, metric in (("spearman_gap", "prevalence_spearman"), ("rare_gap", "prevalence_spearman_rare")):
        figures.add(f"{prefix}.{name}", value(metric, "floor") - value(metric), "floor minus ours")
    figures.add(f"{prefix}.mmd", value("mmd"), "")
    figures.add(f"{prefix}.mcad", value("mcad"), "")
    figures.add(f"{prefix}.cmd_ratio", value("cmd") / value("cmd", "floor"), "ours over floor")
    figures.add(f"{prefix}.elbo", outcome.elbo_value, "nats per record")
    figures.add("train.seconds", outcome.train_seconds, "s")


def main() -> None:
    parser = options(__doc__ or "", data=True)
    parser.add_argument("--only", metavar="NAME", help="run only the cases whose name contains this")
    arguments = parser.parse_args()
    if arguments.data is not None:
        train, test, _ = load_long(arguments.data)
        prefix = arguments.data.name.split("-")[0]
    else:
        rng = np.random.default_rng(0)
        train, test = (simulated_population().sample(n, rng) for n in (50_000, 25_000))
        prefix = "simulated"
    if arguments.quick:
        train, test = subset(train, 2_000), subset(test, 1_000)
    figures = Figures()
    chosen = [case for case in cases(arguments.quick) if (arguments.only or "") in case.name]
    for case in chosen:
        outcome = run_case(case, train, test)
        show_outcome(outcome, train, test)  # at once: a run takes half an hour
        if case.name == MAIN:
            add_figures(figures, outcome, prefix)
    speed_against_paper(train, arguments.quick, figures)
    memory(arguments.quick, figures)
    figures.finish(arguments.json)


if __name__ == "__main__":
    main()
