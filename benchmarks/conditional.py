"""Exact conditions and fast sampling: how good slices are, how fast records come, what preset `best` reaches.

python -m benchmarks.conditional --data DIR --json FILE [--work DIR]

Training `best` is the long part. With --work the trained models are kept there and a second run starts from them.
"""

import time
from collections.abc import Callable
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._harness import Figures, load_long, options, progress_bar, show, subset, timed
from benchmarks._million import measure as million
from benchmarks._plain import PLAIN_STEPS, plain_records
from benchmarks._quality import RECORDS, fidelity_to, in_short, measure_unseen, or_nan, times_the_floor, with_interval
from benchmarks._sampling_speed import against, growth, share_of_peak, speed
from benchmarks._slices import measure_against_truth, measure_slices, slices
from benchmarks._trained import trained
from ehr.generators.d3pm import PRESETS
from ehr.records import Records
from ehr.vocabulary import Vocabulary
from worker.engine.generators import SampleRequest
from worker.engine.generators.d3pm import D3PMGenerator
from worker.engine.metrics import Result, fidelity
from worker.engine.metrics.utility import predict_label
from worker.engine.population import simulated_population
from worker.evaluation import labels_in

UTILITY_SEEDS = (3, 13, 23)
ROLES = ("real", "value")
UNTRAINED = ("growth", "truth")  # stages that do without the model that takes long
STAGES = (*UNTRAINED, "slices", "fidelity", "utility", "unseen", "speed", "peak", "calls", "million", "before")


# ---- quality


def best_quality(generator: D3PMGenerator, train: Records, test: Records, n: int, figures: Figures) -> None:
    """Fidelity of an unconditional cohort at the default number of calls."""
    results = fidelity_to(generator, train, test, n, "best")
    rows = [
        [name, *(with_interval(m) for m in (r.value, r.floor)), in_short(r.independent.value), _times_worse(r)]
        for name, r in results.items()
    ]
    header = ["", "ours", "floor", "independent", "times worse than the floor"]
    show(f"preset best: {n:,} records against test", header, rows)
    value = {name: (or_nan(r.value.value), or_nan(r.floor.value)) for name, r in results.items()}
    figures.add("best.cmd_ratio", value["cmd"][0] / value["cmd"][1], "ours over floor")
    figures.add("best.mcad", value["mcad"][0], "")
    figures.add("best.mmd", value["mmd"][0], "")
    rare = value["prevalence_spearman_rare"]
    figures.add("best.rare_gap", rare[1] - rare[0], "floor minus ours")


def unseen(generator: D3PMGenerator, train: Records, test: Records, quick: bool, figures: Figures) -> None:
    """Nats of unseen records, and how much better than real ones a classifier tells cohorts from them."""
    measured = measure_unseen(generator, train, test, quick)
    (ours, real), excess = measured.told.mean(axis=0), measured.excess
    spread = f"{ours - real:+.4f} ({excess.min():+.4f} to {excess.max():+.4f})"
    header = ["nats", "told from unseen records: ours", "real", "more (of single cohorts)"]
    show("unseen records", header, [[f"{measured.elbo:.3f}", f"{ours:.4f}", f"{real:.4f}", spread]])
    figures.add("best.elbo", measured.elbo, "nats")
    figures.add("best.distinguisher_excess", float(ours - real), "AUROC beyond real records")


def utility(
    generator: D3PMGenerator, train: Records, test: Records, vocabulary: list[str], quick: bool, figures: Figures
) -> None:
    """Classifiers trained on synthetic records against classifiers trained on as many real ones; the mean over draws
    of both, because one draw of either moves a rare label by more than what is to be told."""
    labels = labels_in(Vocabulary(tuple(vocabulary)))[: 1 if quick else None]
    if not labels:
        return
    seeds, n = UTILITY_SEEDS[: 1 if quick else None], 1_000 if quick else 50_000
    areas = np.zeros((len(seeds), len(labels), 4))  # AUROC real and synthetic, AUPRC real and synthetic
    with progress_bar("utility") as advance:
        for draw, seed in enumerate(seeds):
            synth = generator.sample(SampleRequest(n, seed=seed))
            for number, label in enumerate(labels):
                measured = predict_label(label, synth, test, train, np.random.default_rng(seed)).measured
                areas[draw, number] = [or_nan(measured[a][b].value) for a in ("auroc", "auprc") for b in ROLES]
                advance(draw * len(labels) + number + 1, areas[..., 0].size)
    means, gaps = areas.mean(axis=0), areas[..., 0] - areas[..., 1]
    rows = [
        [
            label.name,
            *(f"{area:.4f}" for area in of_label[:2]),
            f"{gaps[:, number].mean():+.4f} ({gaps[:, number].min():+.4f} to {gaps[:, number].max():+.4f})",
            *(f"{area:.4f}" for area in of_label[2:]),
            f"{of_label[3] / of_label[2]:.3f}",
        ]
        for number, (label, of_label) in enumerate(zip(labels, means, strict=True))
    ]
    header = ["", "AUROC real", "synthetic", "gap (of single draws)", "AUPRC real", "synthetic", "ratio"]
    show(f"utility, {n:,} records each, means of {len(seeds)} draws", header, rows)
    of_labels, kept = gaps.mean(axis=0), means[:, 3] / means[:, 2]
    figures.add("best.auroc_gap_mean", float(of_labels.mean()), "real minus synthetic")
    figures.add("best.auroc_gap_max", float(of_labels.max()), "real minus synthetic")
    figures.add("best.auprc_ratio_mean", float(kept.mean()), "synthetic over real")
    figures.add("best.auprc_ratio_min", float(kept.min()), "synthetic over real")


def slice_quality(
    generator: D3PMGenerator, real: Records, vocabulary: list[str], quick: bool, figures: Figures
) -> None:
    """Conditioned cohorts against the real records that satisfy the condition."""
    rows, attained, ratios, least = [], [], [], 20 if quick else 500
    chosen = slices(real, vocabulary)
    for o in measure_slices(generator, chosen, real, quick):
        exact = o.ways["exact"]
        assert exact.l1 is not None and exact.attainment is not None
        attained.append(exact.attainment)
        if o.real >= least:
            ratios.append(exact.l1 / o.floor)
        cells = [
            "none left" if way.l1 is None or way.attainment is None else f"{way.l1:.2f} ({way.attainment:.0%})"
            for way in o.ways.values()
        ]
        rows.append(
            [
                o.slice.name,
                f"{o.slice.prevalence:.2%}",
                _suppressed(o.real),
                f"{o.floor:.2f}",
                *cells,
                f"{exact.l1 / o.floor:.2f}",
            ]
        )
    show(
        "slices: L1 of prevalences to the real slice (attainment)",
        [
            "condition",
            "prevalence",
            "real records",
            "floor",
            "exact",
            "langevin",
            "bit set",
            "rejection",
            "exact / floor",
        ],
        rows,
    )
    figures.add("attainment.min", min(attained), "share")
    figures.add("slice_l1_ratio.max", max(ratios, default=float("nan")), "ours over floor")


def truth_quality(quick: bool, work: Path | None) -> None:
    """The same on the simulated population, whose conditional prevalences are known exactly."""
    population = simulated_population()
    train = population.sample(2_000 if quick else 60_000, np.random.default_rng(0))
    generator, _ = trained("best-simulated", _settings("best", quick), train, population.vocabulary, work)
    chosen = slices(population.sample(100_000, np.random.default_rng(1)), list(population.vocabulary))
    rows = [
        [
            o.name,
            f"{o.trained_on:,}",
            f"{o.attainment:.0%}",
            *(f"{value:.2f}" for value in (o.l1, o.floor, o.l1 / o.floor, o.to_truth, o.half_to_truth)),
        ]
        for o in measure_against_truth(generator, population, train, chosen[:2] if quick else chosen)
    ]
    show(
        "simulated population: L1 of prevalences to true records, and to the exact prevalences",
        ["condition", "trained on", "attainment", "ours", "floor", "ratio", "ours to exact", "true to exact"],
        rows,
    )


def fidelity_by_calls(generator: D3PMGenerator, train: Records, test: Records, n: int) -> None:
    """What more network calls bring, for the fast sampler and the plain one."""
    names = ["prevalence_spearman_rare", "cmd", "mcad", "mmd"]
    rows: list[list[str]] = []
    ways = [("block reveal", calls) for calls in (8, 12, 16, 32, 64, 128)] + [("plain", PLAIN_STEPS)]
    for number, (way, calls) in enumerate(ways):
        with timed() as seconds:
            synth = (
                generator.sample(SampleRequest(n, steps=calls))
                if way != "plain"
                else plain_records(generator, n, calls)
            )
        results = fidelity(synth, test, train, np.random.default_rng(1), names=names)
        if number == 0:
            rows.append(["floor (real records)", "", "", *(in_short(results[name].floor.value) for name in names)])
        rate = f"{n / seconds[0]:,.0f}"
        rows.append([way, str(calls), rate, *(in_short(results[name].value.value) for name in names)])
    show(f"fidelity by network calls, {n:,} records", ["sampler", "calls", "records / s", *names], rows)


def _times_worse(result: Result) -> str:
    times = times_the_floor(result)
    return "-" if isnan(times) else f"{times:.3f}"


def _suppressed(count: int) -> str:
    return "10 or fewer" if count <= 10 else f"{count:,}"


def main() -> None:
    parser = options(__doc__ or "", data=True)
    parser.add_argument("--work", type=Path, metavar="DIR", help="keep trained models here and start from them")
    parser.add_argument("--only", nargs="+", metavar="STAGE", choices=STAGES, help=f"of {', '.join(STAGES)}")
    parser.add_argument("--before", type=Path, metavar="DIR", help="a checkout of an earlier version to be as fast as")
    parser.add_argument("--before-work", type=Path, metavar="DIR", help="the --work of that version, for its own model")
    arguments = parser.parse_args()
    quick, figures = arguments.quick, Figures()
    work = None if quick else arguments.work  # a quick model must not be taken for a real one
    if arguments.data is not None:
        train, test, vocabulary = load_long(arguments.data)
        label = arguments.data.name
    else:
        population = simulated_population()
        train, test = (population.sample(n, np.random.default_rng(n)) for n in (50_000, 25_000))
        vocabulary, label = list(population.vocabulary), "simulated population"
    if quick:
        train, test = subset(train, 2_000), subset(test, 1_000)
    started, everyone = time.perf_counter(), Records.concatenate([train, test])
    n = 512 if quick else RECORDS
    if "growth" in (arguments.only or UNTRAINED):
        growth(quick, figures)
    if "truth" in (arguments.only or UNTRAINED):
        truth_quality(quick, work)
    if arguments.only and set(arguments.only) <= set(UNTRAINED):
        figures.finish(arguments.json)
        return
    best, took = trained(f"best-{label}", _settings("fast" if quick else "best", quick), train, vocabulary, work)
    figures.add("best.train_seconds", took.seconds, "s")
    figures.add("train.seconds_to_29", took.to_reach, "s until held-out records have 29.0 nats")
    stages: dict[str, Callable[[], None]] = {
        "slices": lambda: slice_quality(best, everyone, vocabulary, quick, figures),
        "fidelity": lambda: best_quality(best, train, test, n, figures),
        "utility": lambda: utility(best, train, test, vocabulary, quick, figures),
        "unseen": lambda: unseen(best, train, test, quick, figures),
        "speed": lambda: speed(best, quick, figures),
        "peak": lambda: share_of_peak(best, quick, figures),
        "calls": lambda: fidelity_by_calls(best, train, test, n),
        "million": lambda: million(figures, quick),
    }
    if arguments.before is not None:
        its_model = None if arguments.before_work is None else (arguments.before_work / f"best-{label}").resolve()
        stages["before"] = lambda: against(arguments.before.resolve(), its_model, best, quick, figures)
    for name, run in stages.items():
        if name in (arguments.only or stages):
            run()
    print(f"{time.perf_counter() - started:.0f} s in all")
    figures.finish(arguments.json)


def _settings(preset: str, quick: bool) -> dict[str, Any]:
    settings = PRESETS[preset].model_dump()
    return settings | {"training": settings["training"] | {"epochs": 2}} if quick else settings


if __name__ == "__main__":
    main()
