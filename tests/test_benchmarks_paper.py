"""The paper's tables: cells are made once, budgets kept, real people not attacked, and wins counted right."""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self
from xml.etree import ElementTree

import numpy as np
import pytest
from pydantic import Field

from app.pages.svg import Mark
from benchmarks.paper import __main__ as paper
from benchmarks.paper import run as running
from benchmarks.paper.contenders import ALL, COMMON, OURS, PLAIN, Arena, Contender, arenas, contenders
from benchmarks.paper.measure import AttackRefusedError, attacked, fidelity_of, guided_prevalence
from benchmarks.paper.pages import write_results
from benchmarks.paper.plan import RAREST, RUN, Bench, fingerprint, plan
from benchmarks.paper.store import Store, Task
from benchmarks.paper.svg import dot_plot
from benchmarks.paper.tables import cost_table, fidelity_table
from benchmarks.paper.train import draw_within, train_within
from benchmarks.paper.wins import MissingCellsError, compare, figures, unfinished
from ehr.errors import TrainingStopped
from ehr.generators.config import Config
from ehr.generators.d3pm import D3PM
from ehr.generators.independent import INDEPENDENT
from ehr.generators.spec import GeneratorSpec
from ehr.records import Records
from worker.engine.generators import FitRequest, Generator, SampleRequest, State
from worker.engine.generators.independent import IndependentGenerator
from worker.engine.metrics.classifier import Label
from worker.engine.metrics.measurement import Measurement
from worker.engine.training import TrainingProgress

DISEASES = ["diabetes", RAREST]


class RivalSettings(Config):
    epochs: int = 1000
    batch_size: int = 10
    binarise: str = "round"


RIVAL = GeneratorSpec("rival", "a rival", f"{__name__}:Rival", RivalSettings, ("rejection",))


class Rival(Generator):
    """A published generator whose steps and network calls take a known time by a clock of its own."""

    spec = RIVAL
    step_seconds, call_seconds = 0.02, 0.0
    clock = 0.0

    @classmethod
    def fit(cls, request: FitRequest) -> Self:
        settings = RivalSettings.of(request.settings)
        per_epoch = len(request.train) // settings.batch_size
        total = per_epoch * settings.epochs
        for step in range(1, total + 1):
            cls.clock += cls.step_seconds
            if request.hooks.on_progress is not None:
                request.hooks.on_progress(TrainingProgress(step, total, (step - 1) // per_epoch + 1, 0.0, None, total))
            if request.hooks.should_stop is not None and request.hooks.should_stop():
                raise TrainingStopped("asked to")
        return cls()

    def sample(self, request: SampleRequest, progress: Callable[[int, int], None] | None = None) -> Records:
        Rival.clock += self.call_seconds * request.n * self.steps_of(request)
        return Records.from_sets([{0}] * request.n, 3)

    def steps_of(self, request: SampleRequest) -> int:
        return 1000 if request.steps is None else request.steps

    def state(self) -> State:
        return State({}, {"generator": self.spec.name})

    @classmethod
    def from_state(cls, state: State) -> Self:
        return cls()


@pytest.fixture(autouse=True)
def rival(monkeypatch: pytest.MonkeyPatch) -> type[Rival]:
    """One published baseline, whichever the engine has."""
    monkeypatch.setattr("ehr.generators.GENERATORS", (D3PM, INDEPENDENT, RIVAL))
    return Rival


def no_data() -> dict[str, Arena]:
    raise AssertionError("the data must not be read")


def tiny(n: int = 20) -> dict[str, Arena]:
    records = Records.from_sets([{0}] * n, 3)
    return arenas(records, records, records, [])


def bench(folder: Path, data: str = "simulated", load: Callable[[], dict[str, Arena]] = no_data) -> Bench:
    """A run whose facts are known without data."""
    made = Bench(Store(folder), data, 3.0, 0, False, load)
    facts: dict[str, Any] = {"data": data, "labels": {ALL: DISEASES, COMMON: []}, "minutes": 3.0, "seed": 0}
    facts |= {"train": 900, "holdout": 50, "test": 500, "codes": 30, "command": "python -m benchmarks.paper"}
    facts["fingerprint"] = fingerprint(tiny())
    made.store.write(RUN, facts | {"machine": {"cores": 2, "memory_gib": 8, "gpu": "none", "torch": "2"}})
    return made


# ---- cells


def test_a_cell_is_made_once_and_read_afterwards(tmp_path: Path) -> None:
    made = []

    def make() -> dict[str, Any]:
        made.append(1)
        return {"value": len(made)}

    task = Task("kind/a name, with: signs", make, "kind")
    assert Store(tmp_path).run(task) == {"value": 1}
    assert Store(tmp_path).run(task) == {"value": 1} and len(made) == 1


def test_another_budget_seed_or_data_set_has_cells_of_its_own(tmp_path: Path) -> None:
    runs = [
        ("a", 3.0, 0, False),
        ("b", 3.0, 0, False),
        ("a", 10.0, 0, False),
        ("a", 3.0, 1, False),
        ("a", 3.0, 0, True),
    ]
    folders = {Store.of(tmp_path, *run).folder for run in runs}
    assert len(folders) == len(runs)


def test_a_killed_run_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = """
import os, sys
from pathlib import Path
from benchmarks.paper.store import Store, Task
store = Store(Path(sys.argv[1]))
store.run(Task("first", lambda: {"value": 1}, "kind"))
store._whole(store.folder / "second.json", lambda path: (path.write_text('{"val'), os.kill(os.getpid(), 9)))
"""
    killed = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert killed.returncode == -9 and not Store(tmp_path).has("second")
    made = []

    def task(name: str, needs: tuple[str, ...] = (), beside: bool = False) -> Task:
        return Task(name, lambda: made.append(name) or {"name": name}, "kind", name, needs, beside)

    tasks = [task("first"), task("second"), task("third", ("second",), True), task("fourth", (), True)]
    monkeypatch.setattr(running, "plan", lambda bench: tasks)
    run = bench(tmp_path, load=tiny)
    running.run_all(run, ["third"])
    assert made == ["second", "third"]  # what was asked for, after what it needs
    running.run_all(run)
    assert made == ["second", "third", "fourth"] and run.store.read("first") == {"value": 1}


def test_other_data_of_the_same_name_is_refused(tmp_path: Path) -> None:
    assert bench(tmp_path, load=tiny).arenas[ALL].train.n_codes == 3
    with pytest.raises(SystemExit, match="other data"):
        _ = bench(tmp_path, load=lambda: tiny(21)).arenas


def test_records_and_models_come_back_without_pickle(tmp_path: Path) -> None:
    store = Store(tmp_path)
    records = Records.from_sets([{0, 2}, set(), {1}], 3)
    store.save_records("cohort/x", records)
    assert np.array_equal(store.load_records("cohort/x").to_dense(), records.to_dense())
    store.save_model("model/x", IndependentGenerator(np.array([0.1, 0.9])))
    loaded = store.load_model("model/x")
    assert isinstance(loaded, IndependentGenerator) and loaded.prevalence.tolist() == [0.1, 0.9]


@pytest.mark.parametrize(("seed", "repetitions"), [(0, range(5)), (2, range(2_000, 2_005))])
def test_augmentation_draws_with_the_seed_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, repetitions: range
) -> None:
    drawn, split = set(), set()
    records = Records.from_sets([{0}] * 20, 3)

    def sample(request: SampleRequest) -> Records:
        drawn.add(request.seed)
        return records

    def augmented(*arguments: Any) -> dict[str, Any]:
        split.add(arguments[-1])
        return {}

    monkeypatch.setattr("benchmarks.paper.plan._ours", lambda bench: SimpleNamespace(sample=sample))
    monkeypatch.setattr("benchmarks.paper.plan.augmented", augmented)
    labels = [Label(name, (0,)) for name in DISEASES]
    run = replace(bench(tmp_path, load=lambda: arenas(records, records, records, labels)), seed=seed)
    for task in plan(run):
        if task.kind in ("pool", "augmentation"):
            run.store.run(task)
    assert drawn == {1_000 + repetition for repetition in repetitions} and split == set(repetitions)
    assert run.store.has(f"augmentation/{RAREST}/seed4/guided-20000")  # the same names in every run


# ---- what is asked for


def asked(monkeypatch: pytest.MonkeyPatch, *options: str) -> tuple[argparse.Namespace, Bench]:
    monkeypatch.setattr(sys, "argv", ["paper", *options])
    arguments = paper._arguments()
    return arguments, paper._bench(arguments)


@pytest.mark.parametrize(
    ("options", "noted"),
    [
        (["--data", "somewhere/nhds-adult"], "--data PATH/nhds-adult --budget 3 --seed 0"),
        (["--budget", "10", "--drawing", "240", "--seed", "2"], "--budget 10 --seed 2 --drawing 240"),
        (["--drawing", "90"], "--budget 3 --seed 0"),
    ],
)
def test_the_command_that_is_noted_can_be_run_elsewhere(
    monkeypatch: pytest.MonkeyPatch, options: list[str], noted: str
) -> None:
    assert " ".join(paper._without_places(*asked(monkeypatch, *options))) == noted


def test_the_command_of_the_largest_limit_is_kept(tmp_path: Path) -> None:
    run = bench(tmp_path, load=tiny)  # whose cells are from before limits were noted
    for drawing, kept in ((90.0, 90.0), (240.0, 240.0), (90.0, 240.0)):
        run.begin({"drawing": drawing, "command": f"--drawing {drawing:g}"})
        facts = run.store.read(RUN)
        assert facts["drawing"] == kept and facts["command"] == f"--drawing {kept:g}" and facts["train"] == 900


def test_a_part_or_another_run_does_not_replace_the_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = tmp_path / "docs"
    monkeypatch.setattr(paper, "RESULTS", results)

    def out(*options: str) -> Path:
        arguments, run = asked(monkeypatch, "--work", str(tmp_path), *options)
        found = paper._out(run, arguments)
        assert found in (results / "simulated", run.store.folder / "results")
        return found

    assert out("--budget", "10") == results / "simulated"  # nothing is there yet
    (results / "simulated").mkdir(parents=True)
    (results / "simulated" / "results.json").write_text(json.dumps({"run": {"minutes": 3.0, "seed": 0}}))
    for options in ([], ["--budget", "3", "--seed", "0"], ["--report-only", "--seed", "1"]):
        assert out(*options) == results / "simulated"
    for options in (["--only", "rival"], ["--budget", "10"], ["--seed", "1"]):
        assert out(*options) != results / "simulated"


# ---- budgets

ROW = Contender("rival", "rival", RivalSettings().model_dump())


@pytest.fixture
def _own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "perf_counter", lambda: Rival.clock)


@pytest.mark.usefixtures("_own_clock")
def test_training_takes_the_budget() -> None:
    train = Records.from_sets([{0}] * 100, 3)
    _, cell = train_within(ROW, train, train, seconds=60, seed=0)
    # in whole epochs of 10 steps of 0.02 s
    assert cell["epochs"] in (299, 300) and cell["seconds"] == pytest.approx(60, abs=0.3)
    assert cell["records"] == 100 and cell["records_seen"] == 100 * cell["epochs"]
    assert cell["records_per_second"] == pytest.approx(500)
    _, short = train_within(Contender("rival", "rival", RivalSettings(epochs=3).model_dump()), train, train, 60, 0)
    assert short["epochs"] == 3 and short["seconds"] == pytest.approx(0.6)  # never more than published


@pytest.mark.usefixtures("_own_clock")
@pytest.mark.parametrize("budget", [10, 0.01])
def test_an_epoch_that_does_not_fit_is_cut_to_a_part_of_the_records(budget: float) -> None:
    train = Records.from_sets([{0}] * 10_000, 3)
    _, cell = train_within(ROW, train, train, seconds=budget, seed=0)
    steps = {10: 500, 0.01: 1}[budget]  # at least one
    assert cell["epochs"] == 1 and cell["of_records"] == 10_000
    assert cell["records"] == pytest.approx(10 * steps, abs=10) and cell["records_seen"] == cell["records"]


@pytest.mark.usefixtures("_own_clock")
def test_a_method_of_two_phases_has_an_epoch_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    class TwoPhases(RivalSettings):
        epochs: int = Field(1000, ge=2)

    monkeypatch.setattr("ehr.generators.GENERATORS", (D3PM, INDEPENDENT, replace(RIVAL, settings=TwoPhases)))
    train = Records.from_sets([{0}] * 10_000, 3)
    _, cell = train_within(ROW, train, train, seconds=10, seed=0)
    assert cell["epochs"] == 2 and cell["records"] == pytest.approx(2_500, abs=10)
    assert cell["seconds"] == pytest.approx(10, rel=0.01)


@pytest.mark.usefixtures("_own_clock")
def test_who_was_given_too_little_begins_again(monkeypatch: pytest.MonkeyPatch, rival: type[Rival]) -> None:
    """A trial of slow first steps sees none of the quick ones that follow."""
    plain = rival.fit.__func__  # type: ignore[attr-defined]

    def fit(cls: type[Rival], request: FitRequest) -> Rival:
        told = request.hooks.on_progress
        assert told is not None

        def on_progress(progress: TrainingProgress) -> None:
            cls.clock += 0.1 if progress.step <= 30 else 0.0
            told(progress)

        hooks = replace(request.hooks, on_progress=on_progress)
        return plain(cls, replace(request, hooks=hooks))

    monkeypatch.setattr(rival, "fit", classmethod(fit))
    _, cell = train_within(ROW, Records.from_sets([{0}] * 100, 3), Records.from_sets([{0}], 3), seconds=60, seed=0)
    assert 48 < cell["seconds"] < 61


@pytest.mark.usefixtures("_own_clock")
def test_drawing_makes_the_published_calls_or_none_at_all(monkeypatch: pytest.MonkeyPatch, rival: type[Rival]) -> None:
    monkeypatch.setattr(rival, "call_seconds", 1e-3)
    records, cell = draw_within(rival(), 100, 200.0, 0)
    assert records is not None and cell["calls"] == 1000 and cell["seconds"] == pytest.approx(100)
    records, cell = draw_within(rival(), 100, 50.0, 0)
    assert records is None and "would take 1.7 minutes with the published 1,000 network calls" in cell["absent"]
    assert cell["records_per_second"] == pytest.approx(1) and cell["calls"] == 1000


@pytest.mark.usefixtures("_own_clock")
def test_a_cohort_that_would_take_too_long_tells_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rival: type[Rival]
) -> None:
    monkeypatch.setattr(rival, "call_seconds", 1e-3)
    run = replace(bench(tmp_path), drawing=300.0)
    run.store.write(f"model/{ALL}/rival", {"seconds": 180.0})
    run.store.save_model(f"model/{ALL}/rival", rival())
    cell = run.store.run(next(task for task in plan(run) if task.name == f"cohort/{ALL}/rival"))
    assert "would take 6.9 hours" in cell["absent"] and cell["limit_minutes"] == 300.0


# ---- who is compared


def test_rounded_baselines_are_drawn_too_with_the_weights_they_have() -> None:
    rows = {row.name: row for row in contenders(ALL)}
    assert list(rows) == [OURS, PLAIN, "d3pm paper-mimic", "independent", "rival", "rival bernoulli"]
    assert rows["rival bernoulli"].trained_as == "rival" and rows["rival bernoulli"].redrawn == {
        "binarise": "bernoulli"
    }
    assert [name for name, row in rows.items() if row.published] == ["rival", "rival bernoulli"]
    assert contenders(COMMON) == []  # nobody who needs few codes


def test_the_common_codes_keep_their_labels() -> None:
    sets = [{0, 149}] * 60 + [{k} for k in range(150)]
    records = Records.from_sets(sets, 150)
    rare, common = Label("rare", (120,)), Label("common", (149, 0))
    cut = arenas(records, records, records, [rare, common])[COMMON]
    assert cut.train.n_codes == 100 and [label.name for label in cut.labels] == ["common"]
    assert np.array_equal(cut.labels[0].of(cut.test), common.of(records))


# ---- privacy


def test_only_data_that_may_be_attacked_is(tmp_path: Path) -> None:
    records = Records.from_sets([{0}] * 60, 3)
    arena = Arena(ALL, records, records, records, ())
    for name in ("nhds-adult", "nhds", "anything"):
        with pytest.raises(AttackRefusedError, match="never attacked"):
            attacked(name, records, arena, 0)
        assert not [task for task in plan(bench(tmp_path / name, name)) if task.kind == "privacy"]
    for name in ("synpuf-patients", "simulated"):
        assert [task for task in plan(bench(tmp_path / name, name)) if task.kind == "privacy"]


def test_a_link_by_another_name_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nhds-adult").mkdir()
    (tmp_path / "synpuf-patients").symlink_to(tmp_path / "nhds-adult")
    monkeypatch.setattr(sys, "argv", ["paper", "--data", str(tmp_path / "synpuf-patients"), "--work", str(tmp_path)])
    assert paper._bench(paper._arguments()).data == "nhds-adult"


def test_few_real_patients_are_not_told() -> None:
    records = Records.from_sets([{0}] * 3 + [{1}] * 97, 2)
    arena = Arena(ALL, records, Records.from_sets([], 2), Records.from_sets([], 2), ())

    class Both(IndependentGenerator):
        spec = replace(INDEPENDENT, methods=("exact", "langevin"))

    cell = guided_prevalence(Both(np.array([0.03, 0.97])), Label("rare", (0,)), arena, records, 50, 0)
    assert cell["real"] == {"absent": "too few patients"} and cell["exact"]["value"] == 1.0
    assert cell["exact"]["low"] < 1 and cell["exact"]["high"] == 1.0


# ---- the report

SPEARMAN, DISTANCE = ("prevalence_spearman", "prevalence_spearman_rare"), ("cmd", "mmd", "mcad")


def around(value: float, half: float = 0.01) -> dict[str, float]:
    return {"value": value, "low": value - half, "high": value + half}


def finish(run: Bench) -> None:
    """Made-up cells: ours leads Spearman and CMD, ties on MMD, loses on MCAD; guided beats real by a tenth."""
    distances = {"real": (0.1, 0.1, 0.1), OURS: (0.2, 0.305, 0.5), "rival": (0.4, 0.30, 0.3)}
    areas = {"real": 0.9, OURS: 0.8, "rival": 0.85, "rival bernoulli": 0.6}
    for task in plan(run):
        kind, *rest = task.name.split("/")
        row = rest[1] if len(rest) > 1 else ""
        if kind == "model":
            cell: dict[str, Any] = {"seconds": 180.0, "epochs": 3, "epochs_published": 40, "records": 900}
            cell |= {"of_records": 900, "records_seen": 2_700, "records_per_second": 15.0, "parameters": 10}
            cell |= {"peak_gib": 0.5}
        elif kind == "cohort":
            cell = {"records": 25_000, "records_per_second": 100.0, "calls": 16}
            if row == "d3pm paper-mimic":
                cell = {"absent": "it would take hours", "calls": 64, "records_per_second": 0.1}
        elif row == "d3pm paper-mimic":
            cell = {"absent": "it would take hours"}
        elif kind == "fidelity":
            cell = {name: around(0.9 if row == OURS else 0.95 if row == "real" else 0.5) for name in SPEARMAN}
            values = distances.get(row, (0.9, 0.9, 0.9))
            cell |= {name: around(value) for name, value in zip(DISTANCE, values, strict=True)}
        elif kind == "utility":
            area = areas.get(row, 0.5) - (0.2 if row == "rival" and rest[-1] == RAREST else 0)
            cell = {"auroc": around(area, 0.02), "auprc": around(area, 0.06)}
        elif kind == "memory":
            cell = {"peak_gib": 0.5}
        elif kind == "augmentation":
            seed = int(rest[1].removeprefix("seed"))
            value = {"guided": 0.55 * 1.1**seed, "real": 0.5}.get(rest[-1].split("-")[0], 0.4)
            cell = {"auroc": around(0.7), "auprc": around(value)}
        elif kind == "privacy":
            cell = {name: {role: around(0.5) for role in ("attack", "control", "gain")} for name in ("air", "mir")}
        elif kind == "guided":
            cell = {way: around(0.5) for way in ("real", "unconditional", "langevin", "exact")}
        else:
            cell = {"records": 20_000}
        run.store.write(task.name, cell)


@pytest.mark.parametrize(
    ("noted", "same", "larger"),
    [({"limit_minutes": 90.0}, 90.0, 91.0), ({}, 4_000.0, 5_000.0)],  # 25,000 records at 0.1 a second: 4,167 minutes
    ids=["limit noted", "an older cell"],
)
def test_a_larger_limit_gives_a_cohort_another_chance(
    tmp_path: Path, noted: dict[str, float], same: float, larger: float
) -> None:
    run, row = bench(tmp_path), "d3pm paper-mimic"
    finish(run)
    cohort = f"cohort/{ALL}/{row}"
    run.store.write(cohort, run.store.read(cohort) | noted)

    def todo(drawing: float, only: list[str] | None = None) -> list[str]:
        return [task.name for task in running._todo(replace(run, drawing=drawing), plan(run), only)]

    again = [cohort, f"memory/{ALL}/{row}", f"fidelity/{ALL}/{row}"]
    again += [*(f"utility/{ALL}/{row}/{disease}" for disease in DISEASES), f"privacy/{row}"]
    assert todo(same) == [] and todo(larger, ["guided"]) == []
    assert todo(larger, ["fidelity"]) == [cohort, f"fidelity/{ALL}/{row}"]
    assert todo(same) == again  # what was measured of the old cell, whether it was asked for or not


def test_wins_are_counted_by_their_definition(tmp_path: Path) -> None:
    run = bench(tmp_path)
    finish(run)
    found = {name: value for name, value, _ in figures(run)}
    assert found["wins.fidelity"] == 3
    # both diseases tie within 0.06 of AUPRC; AUROC, within 0.02, is lost for diabetes
    assert (found["wins.auprc"], found["wins.auroc"], found["wins.auprc_outright"]) == (2, 1, 1)
    # five draws of 1.1 times 1, 1.1, 1.21, ...: their geometric mean is the third
    assert found["augmentation.402_over_real"] == pytest.approx(1.1**3)
    assert found["augmentation.402_over_real.20000"] == pytest.approx(1.1**3)


@pytest.mark.parametrize(
    ("direction", "ours", "rivals", "within", "outright"),
    [
        ("higher", 0.80, [0.79, 0.5], True, True),
        ("higher", 0.80, [0.809], True, False),
        ("higher", 0.80, [0.811], False, False),
        ("lower", 0.80, [0.789, 0.9], False, False),
        ("lower", 0.80, [0.81], True, True),
        ("higher", 0.80, [0.80, 0.5], True, False),  # a tie
        ("lower", 0.80, [0.80], True, False),
    ],
)
def test_a_lead(direction: str, ours: float, rivals: list[float], within: bool, outright: bool) -> None:
    lead = compare("m", direction, around(ours), [around(r) for r in rivals])
    assert (lead.within_interval, lead.outright) == (within, outright)


def test_who_was_not_compared_is_not_beaten() -> None:
    absent = {"absent": "collapsed"}
    for ours, rival in ((absent, around(0.5)), (around(0.5), absent)):
        lead = compare("m", "higher", ours, [rival])
        assert not lead.within_interval and not lead.outright
    for rival, led in ((around(0.4), True), (around(0.6), False)):
        lead = compare("m", "higher", around(0.5), [absent, rival])
        assert (lead.within_interval, lead.outright) == (led, led)


def test_figures_say_against_how_many_baselines(tmp_path: Path) -> None:
    run = bench(tmp_path)
    finish(run)
    for task in plan(run):
        if task.about == "rival bernoulli":
            run.store.write(task.name, {"absent": "collapsed"})
    units = {name: unit for name, _, unit in figures(run) if name.startswith("wins.")}
    assert units.pop("wins.fidelity") == "of 5 metrics, against 1 of 2 baselines"
    assert set(units.values()) == {"of 2 diseases, against 1 of 2 baselines"}


def test_fidelity_tells_how_many_codes_a_record_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metric = SimpleNamespace(measure=lambda *_: Measurement(absent="not here"))
    monkeypatch.setattr("benchmarks.paper.measure.fidelity_metric", lambda name: metric)
    records = Records.from_sets([{0}, {0, 1, 2}, set()] * 20, 3)
    measured = fidelity_of(records, Arena(ALL, records, records, records, ()), 0)
    assert measured["codes_per_record"] == pytest.approx(4 / 3)
    run, name = bench(tmp_path), f"fidelity/{ALL}/rival"
    finish(run)
    run.store.write(name, run.store.read(name) | {"codes_per_record": 8.27})

    def codes() -> dict[str, str]:
        table = fidelity_table(run, ALL)
        assert table.header[-1] == "codes per record"
        return {row[0]: row[-1] for row in table.rows}

    assert (codes()["rival"], codes()["independent"], codes()["d3pm paper-mimic"]) == ("8.3", "\u2013", "\u2013")
    run.store.forget(name)
    assert codes()["rival"] == "missing"


def test_who_is_worse_than_independent_codes_is_named(tmp_path: Path) -> None:
    run = bench(tmp_path)
    finish(run)

    def named() -> list[str]:
        return [note.split(":")[0] for note in fidelity_table(run, ALL).notes if "worse than independent" in note]

    assert named() == []
    cells = {row: f"fidelity/{ALL}/{row}" for row in ("independent", "rival", "rival bernoulli")}
    good = {name: around(0.8) for name in SPEARMAN} | {name: around(0.2) for name in DISTANCE}
    run.store.write(cells["independent"], good)
    assert named() == ["rival, rival bernoulli"]
    run.store.write(cells["rival"], run.store.read(cells["rival"]) | {"mmd": around(0.2)})
    bernoulli = run.store.read(cells["rival bernoulli"])
    run.store.write(cells["rival bernoulli"], bernoulli | {"cmd": {"absent": "too few codes"}})
    assert named() == ["rival bernoulli"]  # what only one of them has does not count
    run.store.write(cells["rival bernoulli"], {"absent": "collapsed"})
    assert named() == []


def test_ehrdiffs_probabilities_are_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not [note for note in fidelity_table(bench(tmp_path), ALL).notes if "no probabilities" in note]
    monkeypatch.setattr("ehr.generators.GENERATORS", (D3PM, INDEPENDENT, replace(RIVAL, name="ehrdiff")))
    (note,) = (note for note in fidelity_table(bench(tmp_path), ALL).notes if "no probabilities" in note)
    assert note.startswith("ehrdiff bernoulli: ")


def test_costs_that_were_not_measured_are_not_told(tmp_path: Path) -> None:
    run = bench(tmp_path)
    finish(run)
    drawing = {row[0]: row[-3:] for row in cost_table(run, ALL).rows}  # network calls, records a second, memory
    assert drawing["d3pm (ours)"] == drawing["rival bernoulli"] == ["16", "100", "0.50"]
    assert drawing[PLAIN] == ["16", "100", "\u2013"]
    assert drawing["d3pm paper-mimic"] == ["64", "about 0.1", "\u2013"]


def test_the_report_is_made_of_cells_alone(tmp_path: Path) -> None:
    run = bench(tmp_path / "work")
    finish(run)
    rows = [{"name": name, "value": value, "unit": unit} for name, value, unit in figures(run)]
    write_results(run, tmp_path / "out", rows, [])
    page = (tmp_path / "out" / "results.md").read_text()
    assert "missing" not in page and "Not finished" not in page and "1.33 (1.10\u20131.60, 5 draws)" in page
    assert "| d3pm (ours) | 0.9000 (0.8900\u20130.9100) |" in page
    assert "d3pm paper-mimic: not measured, it would take hours." in page
    images = sorted(path.name for path in (tmp_path / "out").glob("*.svg"))
    assert {"augmentation-auprc.svg", "cmd-all-codes.svg"} <= set(images) and all(
        f"]({name})" in page for name in images
    )
    for name in images:
        root = ElementTree.fromstring((tmp_path / "out" / name).read_text())
        assert root.tag == "{http://www.w3.org/2000/svg}svg" and "prefers-color-scheme: dark" in root[0].text
    kept = json.loads((tmp_path / "out" / "results.json").read_text())
    assert kept["figures"] == rows and len(kept["cells"]) == len(plan(run))


def test_values_of_several_magnitudes_lie_apart_on_a_logarithmic_axis() -> None:
    values = (0.66, 7e-4, 5e-5, -2e-6)
    rows = [(f"{value}", Mark("", value, value - 1e-5, value + 1e-5), False) for value in values]
    root = ElementTree.fromstring(dot_plot("MMD", rows, 0.0, "floor", log=True))
    dots = root.findall("{http://www.w3.org/2000/svg}circle")
    places = [float(dot.attrib["cx"]) for dot in dots]
    assert min(right - left for left, right in pairwise(reversed(places))) > 15
    ticks = [line for line in root.iter("{http://www.w3.org/2000/svg}line") if line.attrib["class"] == "grid"]
    assert places[-1] == min(float(tick.attrib["x1"]) for tick in ticks)
    assert [dot.attrib["class"] for dot in dots] == ["k2", "k2", "k2", "k2 ring"]
    words = "".join(root.itertext())
    assert "dashed: floor (0 or less); ring: 0 or less" in words and "10\u207b\u2075" in words


def test_what_is_missing_of_the_most_common_codes_leaves_the_other_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = bench(tmp_path)
    finish(run)
    before = figures(run)
    few_codes = replace(RIVAL, name="tabsyn", most_codes=200)
    monkeypatch.setattr("ehr.generators.GENERATORS", (D3PM, INDEPENDENT, RIVAL, few_codes))
    missing = unfinished(run)
    assert missing and all("/100 codes/" in name for name in missing)
    assert figures(run) == before
    write_results(run, tmp_path / "out", [], missing)
    assert "**Not finished:** model/100 codes/d3pm, " in (tmp_path / "out" / "results.md").read_text()


def test_missing_cells_are_named_and_nothing_is_invented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = bench(Store.of(tmp_path, "simulated", 3.0, 0, False).folder)
    finish(run)
    figures_file, out = tmp_path / "figures.json", tmp_path / "out"
    options = ["paper", "--work", str(tmp_path), "--report-only", "--out", str(out), "--json", str(figures_file)]
    monkeypatch.setattr(sys, "argv", options)
    paper.main()
    of = "of 5 metrics, against 2 of 2 baselines"
    assert {"name": "wins.fidelity", "value": 3.0, "unit": of} in json.loads(figures_file.read_text())
    figures_file.unlink()
    written = (out / "results.md").read_text()
    monkeypatch.setattr(sys, "argv", [*options, "--work", str(tmp_path / "elsewhere")])
    paper.main()  # from the cells that the results have kept
    assert figures_file.exists() and (out / "results.md").read_text() == written
    figures_file.unlink()
    for other in (["--budget", "10"], ["--seed", "1"]):
        monkeypatch.setattr(sys, "argv", [*options, "--work", str(tmp_path / "elsewhere"), *other])
        with pytest.raises(SystemExit, match="another run, with 3 minutes of training and seed 0"):
            paper.main()
    monkeypatch.setattr(sys, "argv", options)
    (run.store.folder / "utility" / "all-codes" / "rival" / "diabetes.json").unlink()
    with pytest.raises(MissingCellsError, match="1 cells are not finished: utility/all codes/rival/diabetes"):
        figures(run)
    with pytest.raises(SystemExit, match="utility/all codes/rival/diabetes"):
        paper.main()
    assert not figures_file.exists()
    page = (out / "results.md").read_text()
    assert "**Not finished:** utility/all codes/rival/diabetes." in page and "| rival | missing |" in page
