"""Could every record be a patient? Groups, rules, a classifier that tells synthetic from real, and output that loads.

python -m benchmarks.plausible                               # the simulated population
python -m benchmarks.plausible --data DIR                    # train.csv.gz and test.csv.gz, or the files of an upload
python -m benchmarks.plausible --data DIR --preset best --work DIR   # keeps the trained models there

Of the records that are looked through, most are of the preset's model, whatever is asked of it; the others are of a
model after two epochs, of other noises and networks, of Langevin guidance, and of other generators.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._fhir_check import invalid
from benchmarks._harness import Figures, console, options, progress_bar, show, subset, timed
from benchmarks._kept_models import kept_model
from benchmarks._omop_round_trip import asked
from benchmarks._plausible_data import Data, data_in
from ehr.codes.families import families
from ehr.conditions import Condition, Target
from ehr.errors import ConditionError
from ehr.formats import writer_named
from ehr.generators.auto import Shape
from ehr.rules import Rules
from worker.engine.generators import FitRequest, Generator, SampleRequest, generator_named
from worker.engine.metrics import fidelity
from worker.engine.metrics.distinguisher import measure as distinguish
from worker.engine.training import Hooks

COMPARED = 25_000  # records that fidelity and the distinguisher see
MANY = 1_000_000  # records that are looked through
WRITTEN = 3_000  # records that are written as OMOP and FHIR
REQUESTS = ("nothing", "a member", "not a member", "common codes", "a rare code", "a target", "one call")
TINY = {"kind": "linformer", "width": 32, "layers": 1, "heads": 2, "projection": 16}
# name -> generator, settings that differ from the preset's, and the share of the records it draws
OTHERS: dict[str, tuple[str, dict[str, Any], float]] = {
    "two epochs": ("d3pm", {"training": {"epochs": 2}}, 0.2),
    "marginal noise": ("d3pm", {"noise": "marginal", "timesteps": 50, "training": {"epochs": 1}}, 0.004),
    "uniform noise, linformer": ("d3pm", {"noise": "uniform", "timesteps": 20, "denoiser": TINY}, 0.001),
    "independent": ("independent", {}, 0.1),
    "med-wgan": ("med-wgan", {"epochs": 1}, 0.02),
}


def main() -> None:
    parser = options(__doc__ or "", data=True)
    parser.add_argument("--preset", default="fast", help="settings of the model; default: fast")
    parser.add_argument("--epochs", type=int, help="other than the preset's")
    parser.add_argument("--records", type=int, default=MANY, help="records to look through; default: 1,000,000")
    parser.add_argument("--work", type=Path, metavar="DIR", help="trained models are kept there and used again")
    arguments = parser.parse_args()
    data = data_in(arguments.data, arguments.quick)
    _show_rules(data)
    epochs = 2 if arguments.quick else arguments.epochs
    changes = {} if epochs is None else {"training": {"epochs": epochs}}
    figures = Figures()
    model = _trained(data, arguments.preset, changes, True, arguments.work)
    models = {"with": model}
    if len(data.rules.groups):
        models["without"] = _trained(data, arguments.preset, changes, False, arguments.work)
    _speed(models, figures, 2_048 if arguments.quick else 20_480)
    _compare(models, data, figures, 2_000 if arguments.quick else COMPARED)
    _look_through(model, data, figures, 6_144 if arguments.quick else arguments.records)
    if data.folder is not None:
        _written(model, data, figures, 200 if arguments.quick else WRITTEN)
    figures.finish(arguments.json)


def _show_rules(data: Data) -> None:
    rows = [[g.name, g.rule, g.origin, str(len(g.codes))] for g in data.rules.groups.groups]
    show("groups of the training records", ["codes", "rule", "origin", "codes in it"], rows[:12])
    found = len(data.rules) - len(data.rules.certain)
    console.print(
        f"{len(data.train):,} records, {len(data.codes):,} codes, {len(rows)} groups; rules: {len(data.rules.certain)}"
        f" certain, {found} found, of them {len(data.rules.implies)} implications;"
        f" {data.rules.broken_by(data.test).mean():.3%} of unseen real records break one"
    )


def _trained(data: Data, preset: str, changes: dict[str, Any], kept: bool, work: Path | None) -> Generator:
    """The preset's model with groups and rules, or with every code by itself."""
    spec = generator_named("d3pm").spec
    settings = spec.resolve(preset, changes, Shape(len(data.train), data.train.n_codes))
    name = f"{preset}-{'with' if kept else 'without'}"
    order = np.random.default_rng(0).permutation(len(data.train))
    holdout, train_on = (data.train.take(rows) for rows in np.split(order, [len(order) // 20]))

    def train() -> Generator:
        with progress_bar(f"training {name} groups") as advance, timed() as seconds:
            hooks = Hooks(on_progress=lambda progress: advance(progress.step, progress.total_steps))
            request = FitRequest(train_on, holdout, settings.config or {}, hooks=hooks, families=families(data.codes))
            model = generator_named("d3pm").fit(_with_rules(request, data.rules) if kept else request)
        console.print(f"trained {name} groups in {seconds[0]:.0f} s")
        return model

    return kept_model(name, work, train)


def _with_rules(request: FitRequest, rules: Rules) -> FitRequest:
    groups = rules.groups if len(rules.groups) else None
    return replace(request, groups=groups, rules=rules)


def _speed(models: dict[str, Generator], figures: Figures, n: int) -> None:
    """Records per second, the faster of two turns each: models take turns, so that a slow moment hits both."""
    taken: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(2):
        for name, model in models.items():
            model.sample(SampleRequest(1_024))
            with timed() as seconds:
                model.sample(SampleRequest(n, seed=3))
            taken[name].append(seconds[0])
    console.print(", ".join(f"{name} groups and rules: {n / min(each):,.0f} records/s" for name, each in taken.items()))
    if "without" in taken:
        ratio = min(taken["without"]) / min(taken["with"])
        figures.add("groups.cost_ratio", ratio, "records per second with over without")


def _compare(models: dict[str, Generator], data: Data, figures: Figures, n: int) -> None:
    """The models beside real records: what they break, correlations, and what a classifier tells."""
    rows, cmd, told = [], {}, {}
    places = {name: model.sample(SampleRequest(n, seed=5)) for name, model in models.items()}
    order = np.random.default_rng(1).permutation(len(data.train))
    places["real"] = data.train.take(order[: min(n, len(data.train))])
    for name, cohort in places.items():
        found = fidelity(cohort, data.test, data.train, np.random.default_rng(0), names=["cmd", "mcad"])
        cmd[name], mcad = found["cmd"].value.value or np.nan, found["mcad"].value.value or np.nan
        told[name] = distinguish(cohort, data.test, data.train, np.random.default_rng(0)).value or np.nan
        broken = data.rules.groups.broken_by(cohort).any(axis=1).mean(), data.rules.broken_by(cohort).mean()
        rows.append([name, *(f"{b:.4%}" for b in broken), f"{cmd[name]:.3f}", f"{mcad:.4f}", f"{told[name]:.3f}"])
    header = ["groups and rules", "break a group", "break a rule", "CMD", "MCAD", "distinguisher (AUROC)"]
    show(f"{n:,} records", header, rows)
    figures.add("cmd_ratio", cmd["with"] / cmd["real"], "CMD over that of real records")
    figures.add("distinguisher.auc_excess", told["with"] - told["real"], "AUROC above real records")
    if "without" in models:
        figures.add("groups.cmd_ratio", cmd["with"] / cmd["without"], "CMD with groups over without")
        excess = told["without"] - told["real"]
        figures.add("distinguisher.auc_excess_without_groups", excess, "AUROC above real records")


def _look_through(model: Generator, data: Data, figures: Figures, n: int) -> None:
    """Every kind of model, sampler and request in turn, until about n records were looked at."""
    others = {name: _other(data, name) for name in OTHERS}
    share = 1 - sum(part for *_, part in OTHERS.values())
    asked_of = [(model, "preset", request) for request in _requests(data, int(n * share))]
    for name, other in others.items():
        of_each = max(int(n * OTHERS[name][2]) // 3, 64)
        asked_of += [(other, name, request) for request in _few_requests(other, data, of_each)]
    asked_of += [(model, "langevin", _guided(data, max(n // 500, 64)))]
    broken, seen = {"groups": 0, "rules": 0}, 0
    with progress_bar("looking for an impossible record") as advance:
        for number, (generator, name, request) in enumerate(asked_of):
            try:
                records = generator.sample(request)
            except ConditionError as error:  # published generators cannot meet what they hardly ever draw
                console.print(f"{name}: {error}")
                continue
            rules = data.rules.without(request.condition)
            of_groups, of_rules = rules.groups.broken_by(records).any(axis=1).sum(), rules.broken_by(records).sum()
            if of_groups or of_rules:
                console.print(f"{name}: {of_groups:,} of {len(records):,} break a group, {of_rules:,} a rule")
            broken["groups"] += int(of_groups)
            broken["rules"] += int(of_rules)
            seen += len(records)
            advance(number + 1, len(asked_of))
    console.print(
        f"{seen:,} records of the preset's model ({', '.join(REQUESTS)}), langevin, {', '.join(OTHERS)}: "
        f"{broken['groups']:,} break a group, {broken['rules']:,} a rule"
    )
    for name, count in broken.items():
        figures.add(f"{name}.broken_per_million", count / seen * 1e6, "records")


def _other(data: Data, name: str) -> Generator:
    generator, changes, _ = OTHERS[name]
    spec = generator_named(generator).spec
    train = subset(data.train, 5_000)
    if generator == "d3pm" and "epochs" not in changes.get("training", {}):
        changes = {**changes, "training": {"epochs": 1}}
    settings = spec.resolve("fast" if spec.presets else None, changes, Shape(len(train), train.n_codes))
    return generator_named(generator).fit(_with_rules(FitRequest(train, None, settings.config or {}), data.rules))


def _requests(data: Data, n: int) -> Iterator[SampleRequest]:
    n_codes, counts = len(data.codes), np.bincount(data.train.indices, minlength=len(data.codes))
    groups = data.rules.groups
    member = groups.groups[0].codes[0] if len(groups) else int(counts.argmax())
    alone = np.flatnonzero(groups.group_of < 0)
    common = alone[np.argsort(-counts[alone])[:5]].tolist()
    rare = int(alone[np.argmin(np.where(counts[alone] >= 11, counts[alone], counts.max() + 1))])
    conditions: dict[str, dict[str, Any]] = {
        "a member": {"all_of": [member]},
        "not a member": {"none_of": [member]},
        "common codes": {"any_of": [common]},
        "a rare code": {"all_of": [rare]},
    }
    for name in REQUESTS:
        condition = conditions.get(name)
        yield SampleRequest(
            n // len(REQUESTS),
            seed=11,
            condition=None if condition is None else Condition.of(n_codes, **condition),
            targets=(Target(n_codes, frozenset(common[:1]), 0.3),) if name == "a target" else (),
            steps=1 if name == "one call" else None,
        )


def _few_requests(model: Generator, data: Data, n: int) -> Iterator[SampleRequest]:
    """Nothing, a common code, and not a common code."""
    common = int(np.bincount(data.train.indices, minlength=len(data.codes)).argmax())
    n_codes = len(data.codes)
    for condition in (None, Condition.of(n_codes, all_of=[common]), Condition.of(n_codes, none_of=[common])):
        yield SampleRequest(n, seed=12, condition=condition)


def _guided(data: Data, n: int) -> SampleRequest:
    common = int(np.bincount(data.train.indices, minlength=len(data.codes)).argmax())
    return SampleRequest(n, seed=13, condition=Condition.of(len(data.codes), [common]), method="langevin")


def _written(model: Generator, data: Data, figures: Figures, n: int) -> None:
    """The cohort as FHIR, every resource validated; as OMOP, loaded and asked, where the upload was a CDM."""
    assert data.folder is not None and data.written is not None
    cohort = data.written(model.sample(SampleRequest(n, seed=17)))
    wrong = invalid(line for part in writer_named("fhir.ndjson").write(cohort) for line in part.splitlines())
    figures.add("fhir.invalid", wrong, "resources")
    if (data.folder / "person.csv").exists():
        with tempfile.TemporaryDirectory() as work:
            path = Path(work) / "omop.zip"
            path.write_bytes(b"".join(writer_named("omop.zip").write(cohort)))
            answers = asked(data.folder, path, Path(work))
        show(
            "the same SQL on both CDMs",
            ["events or tables that differ", "count"],
            [[k, f"{v:,}"] for k, v in answers.items()],
        )
        figures.add("omop.zero_concepts", answers["zero concepts"], "events")


if __name__ == "__main__":
    main()
