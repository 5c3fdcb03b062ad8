"""Whatever computes with a network does so on the worker's device. With a fake one, which refuses to mix with the CPU
and computes the same numbers, so that what it draws can be compared."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ehr.conditions import AskedCondition, Condition
from ehr.records import Records
from tests.engine.test_generators import EXAMPLES, TRAINED, same
from tests.engine.test_halo import SMALL as SMALL_HALO
from tests.engine.test_histories import SMALL, STATIC_GROUPS, toy
from tests.service.fake_device import DEVICE, FakeDevice
from tests.service.stand import Stand, long_csv
from worker.engine.generators import FitRequest, SampleRequest, generator_named, history_generator_named
from worker.engine.histories.protocol import HistoryFit, HistoryRequest

N = 12
BRIEF = {"epochs": 1, "batch_size": 64}
LINFORMER = {"kind": "linformer", "width": 16, "layers": 1, "heads": 2, "projection": 4}
OURS = EXAMPLES["d3pm"].settings | {"training": BRIEF}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, EXAMPLES[name].settings | BRIEF) for name in TRAINED if name != "d3pm"},
    "tabsyn": ("tabsyn", EXAMPLES["tabsyn"].settings | BRIEF | {"epochs": 2}),
    "d3pm": ("d3pm", OURS),
    "linformer": ("d3pm", OURS | {"denoiser": LINFORMER}),
    "marginal": ("d3pm", OURS | {"noise": "marginal"}),
}


def records(n: int, seed: int) -> Records:
    return Records.from_dense(np.random.default_rng(seed).random((n, N)) < 0.3)


def only_there(device: FakeDevice) -> None:
    """The network was used, and nothing of it here."""
    assert device.products["there"] > 0 and device.products["here"] == 0, device.products


@pytest.mark.parametrize("case", CASES)
def test_a_generator_learns_and_draws_there_what_it_would_here(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.engine.training.devices.multiplies_bfloat16", lambda: False)  # here as there
    name, settings = CASES[case]
    request = FitRequest(records(200, 0), records(50, 1), settings)
    asked = SampleRequest(20, condition=Condition.of(N, [2]))
    if case == "marginal":
        asked = replace(asked, method="langevin", steps=3)
    here = generator_named(name).fit(request)
    with FakeDevice() as device:
        there = generator_named(name).fit(replace(request, device=DEVICE.type))
        only_there(device)
    expected = [here.sample(SampleRequest(20)), here.sample(asked)]
    with FakeDevice() as device:
        moved = type(here).from_state(here.state())
        moved.to(DEVICE)
        for generator in (there, moved):
            found = [generator.sample(SampleRequest(20)), generator.sample(asked)]
            assert all(same(*pair) for pair in zip(found, expected, strict=True))
        only_there(device)


@pytest.mark.parametrize(("name", "settings"), [("visits", SMALL), ("halo", SMALL_HALO)])
def test_patients_over_time_too(name: str, settings: dict[str, Any]) -> None:
    brief = {"training": BRIEF} if "training" in settings else BRIEF
    fit = HistoryFit(toy(80), toy(20, 1), settings | brief, device=DEVICE.type, static_groups=STATIC_GROUPS)
    with FakeDevice() as device:
        there = history_generator_named(name).fit(fit)
        assert len(there.sample(HistoryRequest(10))) == 10
        only_there(device)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_every_job_of_a_worker(stand: Stand) -> None:
    """Training with its audit, its costs and its reference cohort, a cohort with a condition, and a report."""
    stand.worker(DEVICE=DEVICE.type)
    dataset_id = stand.succeed(stand.ingest(long_csv()))["dataset_id"]
    model_id = stand.succeed(stand.train(dataset_id))["model_id"]
    asked = AskedCondition(all_of=["ICD9DX:001"])
    cohort = stand.succeed(stand.generate(model_id, 300, conditions=asked))
    stand.succeed(cohort["evaluate_job_id"])
    used = {kind: json.loads((stand.folder / f"used-{kind}.json").read_text()) for kind in ("train", "generate")}
    for kind, products in used.items():
        assert products.get("there", 0) > 0 and products.get("here", 0) == 0, (kind, products)
    reported = json.loads((stand.folder / "used-evaluate.json").read_text())
    assert reported.get("here", 0) == 0, reported
