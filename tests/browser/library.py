"""Something of everything that the web application shows, made by no worker."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from runtime.settings import Settings
from tests.api.conftest import settings_for
from tests.api.front import Caller, Front
from tests.api.test_gate import audit, drawn
from tests.reporting import small_report

NAMES = {"ICD10CM:E11": "Type 2 diabetes mellitus", "ICD10CM:E84": "Cystic fibrosis"}
PAGES = [
    "/", "/app/data", "/app/data/{dataset}", "/app/models", "/app/models/new", "/app/models/{model}",
    "/app/models/compare?id={model}&id={other}", "/app/cohorts", "/app/cohorts/new?model={model}",
    "/app/cohorts/{cohort}", "/app/cohorts/{held}", "/app/jobs", "/app/jobs/{train}", "/app/reports",
    "/app/reports/compare?id={cohort}&id={second}", "/app/access", "/docs", "/reports/{cohort}.html",
    "/reports/{cohort}.html?reader=shareable", "/app/data/ds_missing",
]  # fmt: skip


# places that pages offer; nobody reaches them
PLACES = {
    "sources": [
        {"kind": "objects", "url": "s3://lake/in/"},
        {"kind": "postgres", "name": "warehouse", "url": "postgresql://x:secret@127.0.0.1/x", "schemas": ["cdm"]},
        {"kind": "fhir", "name": "hospital", "url": "https://fhir.example.org"},
    ],
    "sinks": [
        {"kind": "objects", "url": "s3://lake/out/"},
        {"kind": "postgres", "name": "warehouse", "url": "postgresql://x:secret@127.0.0.1/x", "schemas": ["drawn_*"]},
    ],
}


def library_settings(folder: Path) -> Settings:
    places = {name: json.dumps(value) for name, value in PLACES.items()}
    return settings_for(folder, f"sqlite:///{folder / 'db.sqlite'}", **places)


@dataclass(frozen=True)
class Library:
    """Whose it is, and the ids of what is there."""

    caller: Caller
    ids: dict[str, str]

    @classmethod
    def in_front(cls, front: Front) -> Self:
        caller = front.as_owner("librarian")
        dataset = caller.dataset(names=NAMES)
        options: dict[str, Any] = {"drawn": drawn(), "audit": audit("good", rare="good"), "names": NAMES}
        curve = [{"epoch": i, "loss": 30 - i, "held_out": 31 - i / 2} for i in range(5)]
        model = caller.model(dataset_id=dataset, more={"curve": curve, "preset": "fast"}, **options)
        other = caller.model(dataset_id=dataset, **options)
        made = {f"of {each}": {"model_id": each, "n": 5, "evaluate": False} for each in (model, other)}
        cohort, second = (caller.made(request, [[[0, 1], [0]]]) for request in made.values())
        held = caller.made(made[f"of {other}"] | {"seed": 3}, [[[0, 1], [0]]])
        for each in (cohort, second):
            caller.report(small_report().model_dump(mode="json"), each)
        caller.report(small_report().model_dump(mode="json"), held, privacy="fail", withholds="Someone is in it.")
        train = caller.job("train", name="waiting", model_id=model)
        ids = {"dataset": dataset, "model": model, "other": other, "train": train, "held": held}
        return cls(caller, ids | {"cohort": cohort, "second": second})

    def pages(self) -> list[str]:
        return [path.format(**self.ids) for path in PAGES]
