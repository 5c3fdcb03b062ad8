"""The whole service, asked about single patients over HTTP with the lowest key there is."""

import csv
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np

from benchmarks import _one_patient
from benchmarks._estimate_attack import Accuracy, decision_attack, estimate_attack
from benchmarks._harness import Figures, console, show
from benchmarks.service import free_port
from ehr.records import Records
from ehr_d3pm import Client
from model_store.blobs import open_store
from model_store.database import Database
from model_store.datasets import StoredDataset, load_dataset
from model_store.repositories import DatasetRepository, KeyRepository
from model_store.repositories.access import ROLES
from runtime.settings import Settings
from worker.embedded import Supervisor

OWNER = "benchmark"
# An analyst may ask 200 conditions of a model; the attacks ask more, to see what the caps do not have to prevent.
CAPS = {"CAP_CONDITIONS": "1000000", "CAP_SMALL_CONDITIONS": "1000000", "CAP_RECORDS": "1000000000"}
SMALL = {"denoiser": {"kind": "sparse", "width": 64, "blocks": 1}, "training": {"epochs": 10}}
CONTROL = "control: every route that can be read, with a custodian's key"
SWAPPED = ("prefix", "manifest_hash", "data_hash", "vocabulary_hash", "n_codes", "summary")


@dataclass(frozen=True)
class Sizes:
    """Of the attacks: people, and questions about each."""

    records: int
    people: int
    queries: int
    deciding_people: int
    deciding_queries: int
    reference: int


FULL = Sizes(20_000, 40, 2_000, 10, 100, 200_000)
QUICK = Sizes(1_500, 4, 60, 2, 16, 8_192)


@dataclass(frozen=True)
class Service:
    """One that runs, and two keys to it."""

    url: str
    settings: Settings
    keys: dict[str, str]

    @property
    def database(self) -> Database:
        return Database(self.settings.resolved_database_url)

    def client(self, role: str) -> Client:
        return Client(self.url, self.keys[role], timeout=600)

    def http(self, role: str) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {self.keys[role]}"}, timeout=60)

    def stored(self, dataset: str) -> StoredDataset:
        with self.database.read_scope() as session:
            row = DatasetRepository(session).get(OWNER, dataset)
        return load_dataset(open_store(self.settings.resolved_store_url), row.prefix, row.manifest_hash)

    def swap(self, dataset: str, other: str) -> None:
        """Let a data set be what the other is, as though one patient had never been there."""
        with self.database.session_scope() as session:
            mine, theirs = (DatasetRepository(session).get(OWNER, each) for each in (dataset, other))
            for name in SWAPPED:
                setattr(mine, name, getattr(theirs, name))


@contextmanager
def running(sizes: Sizes) -> Iterator[Service]:
    """API, worker and broker of this checkout in a folder of their own."""
    environment = CAPS | {"REFERENCE_RECORDS": str(sizes.reference)}
    kept = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)  # the processes that are started read their settings there
    try:
        with tempfile.TemporaryDirectory(prefix="ehrbench", ignore_cleanup_errors=True) as folder:
            settings = Settings(data_dir=Path(folder), port=free_port())
            command = [sys.executable, "-m", "ehr_d3pm", "api", "--port", str(settings.port), "--log-level", "error"]
            with Supervisor(settings, command):
                url = f"http://{settings.host}:{settings.port}"
                _wait_until_ready(url)
                yield Service(url, settings, _keys(settings))
    finally:
        for name, value in kept.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)


def service(records: Records, vocabulary: tuple[str, ...], quick: bool, figures: Figures) -> None:
    """Attacks with an analyst's key on a model that the service has trained."""
    sizes = QUICK if quick else FULL
    rng = np.random.default_rng(5)
    with running(sizes) as served, served.client("custodian") as custodian, served.client("analyst") as analyst:
        people = records.take(rng.permutation(len(records))[: sizes.records])
        dataset = _uploaded(custodian, people, vocabulary)
        trained = custodian.wait(custodian.train(dataset, settings=SMALL))
        model = str(trained["result"]["model_id"])
        stored = served.stored(dataset)
        codes = [str(each["code"]) for each in analyst.codes(model)]
        members = _members(stored, sizes.people, rng)
        verdicts = analyst.model(model)["verdicts"]
        can_ask = analyst.estimate(model, 100, all_of=codes[:1])["support"]["matching"] is not None
        console.print(f"audit of the model: {verdicts['audit']['level']}; estimates can be asked: {can_ask}")
        found = estimate_attack(analyst, model, members, codes, sizes.queries, rng)
        few = members[: sizes.deciding_people]
        decided = decision_attack(analyst, model, few, codes, sizes.deciding_queries, rng)
        flipped, compared = _without_one(served, people, vocabulary, dataset, model)
    _tell(found, decided, flipped, compared, figures)


def _without_one(
    served: Service, people: Records, vocabulary: tuple[str, ...], dataset: str, model: str
) -> tuple[dict[str, list[str]], str]:
    """What an analyst sees differently if one training patient had not been in the data, and if nobody had."""
    rng = np.random.default_rng(6)
    with served.client("custodian") as custodian, served.client("analyst") as analyst, served.http("analyst") as http:
        codes = [str(each["code"]) for each in analyst.codes(model)]
        row = _rarest_member(served.stored(dataset), people, vocabulary, codes)
        left = people.take(np.delete(np.arange(len(people)), row))
        twin = _uploaded(custodian, left, vocabulary)
        person = [vocabulary[c] for c in people.take([row]).indices if vocabulary[c] in codes]
        asked = _one_patient.questions(person, codes, rng)
        made = list(_one_patient.cohorts(analyst, model, asked))
        ids, jobs = {"dataset_id": dataset, "model_id": model}, [job for _, job in made]

        def look() -> tuple[_one_patient.Answers, _one_patient.Answers]:
            found = _one_patient.answers(analyst, model, asked)
            return found | _one_patient.downloads(http, made), _one_patient.walked(http, ids, jobs)

        # A custodian sees that a patient is missing: where nothing flips for them, nothing was compared.
        with served.http("custodian") as theirs:
            control = _one_patient.walked(theirs, ids, jobs)
            told, walk = look()
            served.swap(dataset, twin)
            without_told, without_walk = look()
            seen = _one_patient.flips(control, _one_patient.walked(theirs, ids, jobs))
        again = dict(_one_patient.cohorts(analyst, model, asked))
        redrawn = _one_patient.downloads(http, list(again.items()))
        had = sum(answer.startswith("200 ") for answer in redrawn.values())
        custodian.delete("datasets", dataset)
        nobody, _ = look()
    return {
        "estimates and decisions, one patient less": _one_patient.flips(told, without_told),
        "cohorts and reports drawn anew, one patient less": _one_patient.flips(redrawn, told),
        "every route that can be read, one patient less": _one_patient.flips(walk, without_walk),
        "estimates, decisions and reports, no patient left": _one_patient.flips(told, nobody),
        CONTROL: seen,
    }, f"{len(told) + len(redrawn) + len(walk)} answers, {had} of them records and reports"


def _tell(found: Accuracy, decided: Accuracy, flipped: dict[str, list[str]], compared: str, figures: Figures) -> None:
    rows = [
        [
            name,
            f"{each.value:.3f} ({each.low:.3f} to {each.high:.3f})",
            f"{each.people}",
            f"{each.found}",
            f"{each.queries:,}",
        ]
        for name, each in (("POST /generate/estimate", found), ("POST /generate", decided))
    ]
    show("'has the code', with an analyst's key", ["asked", "balanced accuracy", "people", "borders", "queries"], rows)
    show(
        f"answers that change with one patient: {compared}",
        ["", "flips"],
        [[n, str(len(f))] for n, f in flipped.items()],
    )
    for name, changed in flipped.items():
        for each in changed[:8]:
            console.print(f"{name}: {each}")
    figures.add("estimate.balanced_accuracy", found.value, f"{found.low:.3f} to {found.high:.3f}; guessing 0.5")
    figures.add("estimate.balanced_accuracy.low", found.low, "95 % interval over people")
    figures.add("estimate.balanced_accuracy.high", found.high, "95 % interval over people")
    figures.add("decisions.balanced_accuracy", decided.value, f"{decided.low:.3f} to {decided.high:.3f}; guessing 0.5")
    figures.add("decisions.flips", sum(len(each) for name, each in flipped.items() if name != CONTROL), compared)
    figures.add("decisions.flips_of_custodian", len(flipped[CONTROL]), "control: more than 0")


def _uploaded(client: Client, records: Records, vocabulary: tuple[str, ...]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "records.csv"
        with table.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["record_id", "code"])
            rows = zip(records.rows().tolist(), records.indices.tolist(), strict=True)
            writer.writerows((f"p{row}", vocabulary[code]) for row, code in rows)
        return str(client.wait(client.upload([table]))["result"]["dataset_id"])


def _members(stored: StoredDataset, number: int, rng: np.random.Generator) -> list[list[str]]:
    """The codes of training patients who have enough of them to be told from others."""
    train, codes = stored.split("train"), stored.vocabulary.codes
    rows = rng.permutation(np.flatnonzero(train.sizes() >= min(6, int(train.sizes().max()))))[:number]
    return [[codes[c] for c in train.indices[train.indptr[r] : train.indptr[r + 1]]] for r in rows]


def _rarest_member(stored: StoredDataset, people: Records, vocabulary: tuple[str, ...], codes: list[str]) -> int:
    """The row of a training patient with many codes whom nobody resembles, none of them at the edge of being kept."""
    known = {tuple(sorted(codes_of)) for codes_of in _members(stored, len(stored.records), np.random.default_rng(0))}
    counts, kept = np.bincount(people.indices, minlength=people.n_codes), set(codes)
    best, found = np.inf, -1
    for row in range(len(people)):
        own = people.indices[people.indptr[row] : people.indptr[row + 1]]
        named = [vocabulary[c] for c in own]
        if len(own) < 4 or not set(named) <= kept or tuple(sorted(named)) not in known or counts[own].min() < 15:
            continue
        expected = float(np.log(counts[own] / len(people)).sum())
        if expected < best:
            best, found = expected, row
    assert found >= 0, "no training patient has four codes"
    return found


def _keys(settings: Settings) -> dict[str, str]:
    database = Database(settings.resolved_database_url)
    with database.session_scope() as session:
        return {role: KeyRepository(session).create(OWNER, role, ROLES[role])[1] for role in ("custodian", "analyst")}


def _wait_until_ready(url: str) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            httpx.get(f"{url}/readyz").raise_for_status()
            return
        except httpx.HTTPError:
            time.sleep(0.2)
    raise TimeoutError("the service did not start")
