"""What a report costs: seconds for each metric and memory, on 25,000 synthetic records.

python -m benchmarks.report --data ../shared/data/synpuf-patients --json FILE

The cohort comes from a `d3pm` model of the default size, trained for one pass over a few records: a report on
it costs what a report on a good one does, and its verdicts mean nothing. Data whose terms forbid experiments in
re-identification (--no-attacks, and always a folder named nhds-*) is not attacked.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._harness import Figures, console, load_long, options, peak_rss_gib, progress_bar, show, subset, timed
from ehr.conditions import Condition
from ehr.records import Records
from ehr.reports import Asked, FamilyReport, Report
from ehr.vocabulary import Vocabulary
from worker.engine.generators import FitRequest, SampleRequest, generator_named
from worker.engine.population import simulated_population
from worker.evaluation import ReportPlan, Subject

RECORDS = 25_000
LEARNED = 5_000
HOLDOUT_SHARE = 0.1
NEVER_ATTACKED = "nhds"  # its data-use agreement bars membership and attribute inference
IDS = {"job_id": "benchmark", "cohort_id": "benchmark", "model_id": "benchmark", "dataset_id": "benchmark"}


def main() -> None:
    """Measure an unconditional cohort, and one that asks for the first disease the data has."""
    parser = options(__doc__ or "", data=True)
    parser.add_argument("--no-attacks", action="store_true", help="leave out the privacy attacks")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the report's JSON, to look at")
    arguments = parser.parse_args()
    figures = Figures()
    train, holdout, test, codes = _sets(arguments)
    n = 2_000 if arguments.quick else RECORDS
    attack = not (arguments.no_attacks or (arguments.data is not None and NEVER_ATTACKED in arguments.data.name))
    if not attack:
        console.print("privacy attacks are left out: the data's terms forbid them")
    settings = {"training": {"epochs": 1}}
    with timed() as trained:
        model = generator_named("d3pm").fit(FitRequest(subset(train, LEARNED), settings=settings))
    console.print(f"trained for {trained[0]:.0f} s, which does not count", highlight=False)
    common: dict[str, Any] = {
        "train": train,
        "holdout": holdout,
        "test": test,
        "ids": IDS,
        "generator": model,
        "attack": attack,
    }
    labels = [codes[int(np.argmax(train.prevalence()))]] if arguments.quick else None
    subject = Subject(model.sample(SampleRequest(n=n)), Vocabulary(tuple(codes)), **common, labels=labels)
    report, seconds = _measured("unconditional", subject)
    for name, took in report.seconds.items():
        figures.add(f"seconds.{name}", took, "s")
    for area in ("auroc", "auprc"):  # of the same classifiers
        figures.add(f"seconds.{area}", report.seconds["utility"], "s, both areas together")
    figures.add("report.seconds", seconds, "s")

    code = subject.label_list[0].codes[0]
    condition = Condition.of(len(codes), all_of=[code])
    cohort = model.sample(SampleRequest(n=n, condition=condition))
    asked = Asked(all_of=[codes[code]])
    guided = Subject(cohort, Vocabulary(tuple(codes)), **common, condition=condition, asked=asked)
    conditioned, seconds = _measured("conditioned", guided)
    for name, took in conditioned.seconds.items():
        if name not in report.seconds:
            figures.add(f"seconds.{name.replace(' ', '_')}", took, "s")
    figures.add("report.conditioned_seconds", seconds, "s")
    figures.add("report.peak_rss_gib", peak_rss_gib(), "GiB")
    _show_verdicts({"unconditional": report, "conditioned": conditioned})
    if arguments.page is not None:
        arguments.page.write_text(report.model_dump_json())
    figures.finish(arguments.json)


def _sets(arguments: argparse.Namespace) -> tuple[Records, Records, Records, list[str]]:
    """train, holdout, test and the vocabulary."""
    if arguments.data is not None:
        train, test, codes = load_long(arguments.data)
    else:
        population = simulated_population()
        rng = np.random.default_rng(0)
        train, test = population.sample(50_000, rng), population.sample(12_500, rng)
        codes = list(population.vocabulary)
    if arguments.quick:
        train, test = subset(train, 5_000), subset(test, 1_000)
    order = np.random.default_rng(1).permutation(len(train))
    border = int(HOLDOUT_SHARE * len(train))
    return train.take(order[border:]), train.take(order[:border]), test, codes


def _measured(name: str, subject: Subject) -> tuple[Report, float]:
    plan = ReportPlan.of(subject, np.random.default_rng(0))
    total = len(plan.steps)
    with progress_bar(f"{name} report") as advance, timed() as seconds:

        def watch(metric: str, done: int) -> None:
            console.print(f"{name}: {done:2d} of {total}, {metric}", highlight=False)
            advance(done, total)

        report = plan.carry_out(watch)
    rows = [[metric, f"{took:.2f}"] for metric, took in sorted(report.seconds.items(), key=lambda item: -item[1])]
    show(f"{name} report, {len(subject.cohort):,} records: seconds per metric", ["metric", "seconds"], rows)
    return report, seconds[0]


def _show_verdicts(reports: dict[str, Report]) -> None:
    def level(family: FamilyReport) -> str:
        return "-" if family.verdict is None else family.verdict.level

    rows = [[name, *(level(family) for family in report.families.values())] for name, report in reports.items()]
    for row, report in zip(rows, reports.values(), strict=True):
        show("verdicts", ["report", *report.families], [row])


if __name__ == "__main__":
    main()
