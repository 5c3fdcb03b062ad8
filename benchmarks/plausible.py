"""Groups of codes of which one holds: does any record break one, what does keeping them cost, and does it show?

python -m benchmarks.plausible                               # the simulated population
python -m benchmarks.plausible --data DIR                    # train.csv.gz and test.csv.gz
"""

import csv
import gzip
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks._harness import Figures, console, load_long, options, progress_bar, show, subset, timed
from ehr.codes.systems import age_band
from ehr.conditions import Condition, Target
from ehr.groups import Groups, find_groups
from ehr.records import Records
from worker.engine.generators import FitRequest, Generator, SampleRequest, generator_named
from worker.engine.metrics import fidelity
from worker.engine.metrics.distinguisher import measure as distinguish
from worker.engine.population import simulated_population
from worker.engine.training import Hooks

COMPARED = 25_000  # records that fidelity and the distinguisher see
MANY = 1_000_000  # records that are looked through for a broken group
REQUESTS = ("nothing", "a member", "not a member", "a common code", "a target", "one call")


def main() -> None:
    parser = options(__doc__ or "", data=True)
    parser.add_argument("--preset", default="fast", help="settings of the model; default: fast")
    parser.add_argument("--epochs", type=int, help="other than the preset's")
    arguments = parser.parse_args()
    train, test, codes = _records(arguments.data, arguments.quick)
    groups = find_groups(train, codes)
    rows = [[g.name, g.rule, g.origin, str(len(g.codes))] for g in groups.groups]
    show("groups of the training records", ["codes", "rule", "origin", "codes in it"], rows)
    if len(groups) == 0:
        sys.exit("this data has no groups: there is nothing to measure")
    epochs = 2 if arguments.quick else arguments.epochs
    models = {
        name: _trained(name, train, test, each, arguments.preset, epochs)
        for name, each in (("with", groups), ("without", None))
    }
    figures = Figures()
    speed = {name: _speed(model, 2_048 if arguments.quick else 20_480) for name, model in models.items()}
    figures.add("groups.cost_ratio", speed["with"] / speed["without"], "records per second with over without")
    _compare(models, train, test, groups, figures, 2_000 if arguments.quick else COMPARED)
    _look_through(models["with"], groups, figures, 6_144 if arguments.quick else MANY)
    figures.finish(arguments.json)


def _trained(
    name: str, train: Records, test: Records, groups: Groups | None, preset: str, epochs: int | None
) -> Generator:
    spec = generator_named("d3pm").spec
    changes = {} if epochs is None else {"training": {"epochs": epochs}}
    settings = spec.resolve(preset, changes, len(train), train.n_codes, on_gpu=False)
    with progress_bar(f"training {name} groups") as advance, timed() as seconds:
        hooks = Hooks(on_progress=lambda progress: advance(progress.step, progress.total_steps))
        request = FitRequest(train, subset(test, 5_000), settings.config or {}, hooks=hooks, groups=groups)
        model = generator_named("d3pm").fit(request)
    console.print(f"trained {name} groups in {seconds[0]:.0f} s")
    return model


def _speed(model: Generator, n: int) -> float:
    model.sample(SampleRequest(1_024))
    with timed() as seconds:
        model.sample(SampleRequest(n, seed=3))
    return n / seconds[0]


def _compare(
    models: dict[str, Generator], train: Records, test: Records, groups: Groups, figures: Figures, n: int
) -> None:
    """Both models beside real records: broken groups, correlations, and what a classifier tells."""
    rows, cmd, told = [], {}, {}
    places = {name: model.sample(SampleRequest(n, seed=5)) for name, model in models.items()}
    places["real"] = train.take(np.random.default_rng(1).choice(len(train), min(n, len(train)), replace=False))
    for name, cohort in places.items():
        found = fidelity(cohort, test, train, np.random.default_rng(0), names=["cmd", "mcad"])
        cmd[name], mcad = found["cmd"].value.value or np.nan, found["mcad"].value.value or np.nan
        told[name] = distinguish(cohort, test, train, np.random.default_rng(0)).value or np.nan
        broken = groups.broken_by(cohort).any(axis=1).mean()
        rows.append([name, f"{broken:.4%}", f"{cmd[name]:.3f}", f"{mcad:.4f}", f"{told[name]:.3f}"])
    show(f"{n:,} records", ["groups", "records that break one", "CMD", "MCAD", "distinguisher (AUROC)"], rows)
    figures.add("groups.cmd_ratio", cmd["with"] / cmd["without"], "CMD with groups over without")
    figures.add("distinguisher.auc_excess", told["with"] - told["real"], "AUROC above real records")
    figures.add("distinguisher.auc_excess_without_groups", told["without"] - told["real"], "AUROC above real records")


def _look_through(model: Generator, groups: Groups, figures: Figures, n: int) -> None:
    """Every kind of request in turn, until n records were looked at."""
    seen = broken = 0
    with progress_bar("looking for a broken group") as advance:
        for number, request in enumerate(_requests(groups, n)):
            records = model.sample(request)
            broken += int(groups.broken_by(records).any(axis=1).sum())
            seen += len(records)
            advance(number + 1, len(REQUESTS))
    console.print(f"{seen:,} records by {', '.join(REQUESTS)}: {broken:,} break a group")
    figures.add("groups.broken_per_million", broken / seen * 1e6, "records")


def _requests(groups: Groups, n: int) -> Iterator[SampleRequest]:
    n_codes, first = groups.n_codes, groups.groups[0].codes
    alone = np.flatnonzero(groups.group_of < 0)
    conditions = (None, {"all_of": [first[0]]}, {"none_of": [first[0]]}, {"any_of": [alone[:5].tolist()]}, None, None)
    for name, condition in zip(REQUESTS, conditions, strict=True):
        yield SampleRequest(
            n // len(REQUESTS),
            seed=11,
            condition=None if condition is None else Condition.of(n_codes, **condition),
            targets=(Target(n_codes, frozenset(first[-1:]), 0.3),) if name == "a target" else (),
            steps=1 if name == "one call" else None,
        )


def _records(data: Path | None, quick: bool) -> tuple[Records, Records, Sequence[str]]:
    if data is None:
        population = simulated_population()
        train, test = (population.sample(n, np.random.default_rng(seed)) for n, seed in ((20_000, 0), (25_000, 1)))
        codes: Sequence[str] = population.vocabulary
    elif _header(data)[:1] == ["patient_id"]:
        train, test, codes = _visits(data)
    else:
        train, test, codes = load_long(data)
    return (subset(train, 3_000), subset(test, 3_000), codes) if quick else (train, test, codes)


def _header(folder: Path) -> list[str]:
    with gzip.open(folder / "train.csv.gz", "rt", newline="") as file:
        return next(csv.reader(file))


def _visits(folder: Path) -> tuple[Records, Records, Sequence[str]]:
    """Dated visits with sex and year of birth as records with a sex and an age band."""
    tables: list[dict[tuple[str, str], set[str]]] = []
    for name in ("train", "test"):
        visits: dict[tuple[str, str], set[str]] = {}
        with gzip.open(folder / f"{name}.csv.gz", "rt", newline="") as file:
            for row in csv.DictReader(file):
                visit = visits.setdefault((row["patient_id"], row["date"]), set())
                age = max(int(row["date"][:4]) - int(row["birth_year"]), 0)
                visit |= {f"{row['vocabulary']}:{row['code']}", f"SEX:{row['sex']}", age_band(age)}
        tables.append(visits)
    codes = sorted({code for visits in tables for visit in visits.values() for code in visit})
    place = {code: number for number, code in enumerate(codes)}
    train, test = (
        Records.from_sets(([place[code] for code in visit] for visit in visits.values()), len(codes))
        for visits in tables
    )
    return train, test, codes


if __name__ == "__main__":
    main()
