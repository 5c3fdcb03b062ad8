"""The comparison with peers: drivers see files alone, cells are made once, and it is told where a peer leads."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks._shapes import DataShape
from benchmarks.paper.contenders import Arena
from benchmarks.paper.measure import FIDELITY
from benchmarks.paper.store import Store
from benchmarks.peers import cells, environments
from benchmarks.peers.cells import ALONE, OURS, REAL, Bench, plan
from benchmarks.peers.drivers.files import Records as DriverRecords
from benchmarks.peers.drivers.files import read, write_sets
from benchmarks.peers.environments import Peer, drive, python_of
from benchmarks.peers.leads import cost_rows, figures, leads
from ehr.records import Records
from worker.engine.metrics.classifier import Label

COPYING = """
import sys
from pathlib import Path
from files import read, tell, write_sets
folder = Path(sys.argv[1])
asked, records = read(folder)
rows = [row % len(records) for row in range(asked.records)]
write_sets(folder / "cohort.npz", [set(records.of(row).tolist()) for row in rows], records.n_codes)
tell(folder, {"version": "1", "train_seconds": asked.seconds, "sampling_seconds": 0.5})
"""
SHAPE = DataShape(500, 12, 3)
COPIER = Peer("copier", "copier", "copier.py", "json")


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """With a peer that gives back what it was shown, in an environment that is there already."""
    drivers = tmp_path / "drivers"
    drivers.mkdir()
    (drivers / "copier.py").write_text(COPYING)
    (drivers / "files.py").write_text((environments.DRIVERS / "files.py").read_text())
    monkeypatch.setattr(environments, "DRIVERS", drivers)
    interpreter = tmp_path / "work" / "environments" / "copier" / "bin" / "python"
    interpreter.parent.mkdir(parents=True)
    interpreter.symlink_to(sys.executable)
    (interpreter.parents[1] / environments.INSTALLED).touch()
    arena = Arena("all", SHAPE.draw(0), SHAPE.draw(1, 50), SHAPE.draw(2, 300), (Label("first", (0,)),))
    return Bench(Store(tmp_path / "cells"), tmp_path / "work", "simulated", 1.0, 0, True, lambda: arena, (COPIER,))


def test_a_peer_is_driven_by_files_and_its_cohort_is_measured(bench: Bench) -> None:
    tasks = {task.name: task for task in plan(bench)}
    cohort = bench.store.run(tasks["cohort/copier"])
    assert cohort["records"] == 600
    assert cohort["records_per_second"] == cohort["records"] / 0.5
    assert cohort["condition_note"].startswith("computed")
    first = bench.store.load_records("cohort/copier").take(np.arange(5))
    assert first.indices.tolist() == bench.arena.train.take(np.arange(5)).indices.tolist()
    assert not (bench.store.folder / "driven" / "copier").exists()  # what it was shown does not stay
    fidelity = bench.store.run(tasks["fidelity/copier"])
    assert set(FIDELITY) <= set(fidelity)
    before = bench.store.folder / "cohort" / "copier.json"
    made = before.stat().st_mtime_ns
    bench.store.run(tasks["cohort/copier"])
    assert before.stat().st_mtime_ns == made  # finished cells are not made again


def test_a_peer_that_cannot_be_installed_or_fails_is_absent_with_the_reason(bench: Bench, tmp_path: Path) -> None:
    (environments.DRIVERS / "copier.py").write_text("raise SystemExit('no such luck')")
    assert bench.store.run(plan(bench)[3])["absent"] == "it ended with exit code 1: no such luck"
    nothing = replace(COPIER, package="../none")
    assert isinstance(python_of(tmp_path / "elsewhere", nothing), str)
    measured = bench.store.run(next(task for task in plan(bench) if task.name == "fidelity/copier"))
    assert "absent" in measured
    assert cost_rows([bench])[-1][-1] == "it ended with exit code 1: no such luck"


def test_a_driver_that_hangs_is_ended(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (environments.DRIVERS / "copier.py").write_text("import time; time.sleep(600)")
    monkeypatch.setattr(environments, "LEAST_SECONDS", 0.5)
    found = drive(Path(sys.executable), COPIER, tmp_path, 0.01)
    assert found is not None and "it was not done after" in found["absent"]


@pytest.mark.parametrize(("data", "attacked"), [("simulated", True), ("nhds-adult", False), ("unknown", False)])
def test_only_data_that_may_be_attacked_is(bench: Bench, data: str, attacked: bool) -> None:
    kinds = {task.kind for task in plan(replace(bench, data=data))}
    assert ("privacy" in kinds) is attacked
    assert {"training", "sampling", "peer", "fidelity", "utility", "distinguisher"} <= kinds


def test_it_is_told_where_a_peer_leads(bench: Bench) -> None:
    for row, better in ((OURS, 0.0), (ALONE, 0.0), ("copier", 1.0), (REAL, 2.0)):
        values = {name: {"value": 0.5 + 0.1 * better} for name in FIDELITY}
        bench.store.write(f"fidelity/{row}", values)
        bench.store.write(f"distinguisher/{row}", {"value": 0.6 + 0.1 * better})
        bench.store.write(f"utility/first/{row}", {"auroc": {"value": 0.7 + 0.1 * better}, "auprc": {"value": 0.2}})
        bench.store.write(f"cohort/{row}", {"records_per_second": 100.0 if row == OURS else 40.0})
    told = {lead.metric: lead.is_ours for lead in leads([bench])}
    # a peer has more of everything: it leads where more is better, and a tie is no lead
    assert told == {
        "prevalence_spearman": False,
        "prevalence_spearman_rare": False,
        "cmd": True,
        "mmd": True,
        "mcad": True,
        "auroc": False,
        "auprc": False,
        "distinguisher": True,
    }
    found = {name: value for name, value, _ in figures([bench])}
    assert found == {"peers.led": 4, "peers.led_independent": 4, "peers.of": 8, "peers.sampling_ratio": 2.5}


def test_ours_learns_within_the_budget_and_draws_in_both_ways(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    small = cells.D3PM.changed(cells.D3PMConfig(), {"denoiser": {"width": 8, "blocks": 1}, "timesteps": 20}).config
    monkeypatch.setattr(cells, "D3PM", replace(cells.D3PM, rule=lambda shape: small))
    for task in plan(bench)[:3]:
        cell = bench.store.run(task)
    assert cell["condition_attained"] == 1 and cell["records_per_second"] > 0
    drawn = [bench.store.load_records(f"cohort/{row}") for row in (OURS, ALONE)]
    assert [len(records) for records in drawn] == [600, 600]
    assert drawn[0].indices.tolist() != drawn[1].indices.tolist()


def test_files_of_drivers_say_the_same_on_both_sides(tmp_path: Path) -> None:
    records = Records.from_sets([{3, 1}, set(), {0, 2}], 4)
    np.savez(tmp_path / "train.npz", indptr=records.indptr, indices=records.indices, n_codes=4)
    asked = {"way": "wide", "seconds": 1.0, "seed": 0, "records": 1, "code": 2, "conditioned": 1, "held_out": 0.1}
    (tmp_path / "request.json").write_text(json.dumps(asked))
    request, shown = read(tmp_path)
    assert request.code == 2 and isinstance(shown, DriverRecords)
    assert shown.dense().tolist() == records.to_dense(np.int8).tolist()
    assert shown.by_commonness().tolist() == [0, 1, 2, 3]
    write_sets(tmp_path / "cohort.npz", [{3, 1}, set(), {0, 2}], 4)
    with np.load(tmp_path / "cohort.npz") as arrays:
        assert arrays["indptr"].tolist() == records.indptr.tolist()
        assert arrays["indices"].tolist() == records.indices.tolist()


def test_simulated_shapes_have_their_shape() -> None:
    drawn = DataShape(2_000, 300, 8).draw(0)
    assert (len(drawn), drawn.n_codes) == (2_000, 300)
    assert 6 < drawn.sizes().mean() <= 8.2
    assert drawn.indices.tolist() != DataShape(2_000, 300, 8).draw(1).indices.tolist()
    together = drawn.to_dense(np.float64)
    strength = np.abs(np.corrcoef(together.T[together.mean(0) > 0.01]))
    assert np.sort(strength[np.triu_indices_from(strength, 1)])[-5:].min() > 0.1  # codes go together
