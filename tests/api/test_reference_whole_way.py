"""Estimates of models that real workers have trained: a function of the bundle, whatever becomes of the patients."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._estimate_attack import decision_attack, estimate_attack
from ehr.records import Records
from ehr.vocabulary import Vocabulary
from ehr_d3pm import Client
from model_store.bundles import load_reference
from model_store.datasets import StoredDataset, load_dataset
from model_store.repositories import DatasetRepository, ModelRepository
from tests.api.front import Caller, Front
from tests.service.stand import TINY, Stand, long_csv

OWNER = "steward"
N_CODES = 20


def asked(client: Client, model: str) -> list[str]:
    """Every visible answer to conditions of many kinds, but times."""
    rng = np.random.default_rng(0)
    shown = []
    for _ in range(6):
        a, b, c = (f"ICD9DX:{code:03d}" for code in rng.choice(N_CODES, 3, replace=False))
        questions: list[dict[str, Any]] = [
            {"all_of": [a, b, c]},
            {"any_of": [[a, b], [a, c]]},
            {"targets": {a: 0.5, b: 0.2}},
        ]
        for question in questions:
            answer = client.estimate(model, 100, **question)
            shown.append(json.dumps(answer | {"workers": None, "seconds": None}))
    return shown


def test_estimates_are_made_of_the_bundle_alone(postgres_stand: Stand, tmp_path: Path) -> None:
    table = tmp_path / "records.csv"
    table.write_bytes(long_csv(800, N_CODES))
    stand = postgres_stand
    with Front(stand.settings) as front, Client(front.url, front.key(OWNER)) as client, _analyst(front) as analyst:
        dataset = client.wait(client.upload([table]))["result"]["dataset_id"]
        settings = TINY | {"training": {"epochs": 2, "batch_size": 64, "holdout_draws": 1}}
        trainings = [client.train(dataset, generator="independent"), client.train(dataset, settings=settings)]
        models = [client.wait(training)["result"]["model_id"] for training in trainings]
        stored = stored_dataset(stand, dataset)
        for model in models:
            with stand.database.read_scope() as session:
                row = ModelRepository(session).get(OWNER, model)
            drawn = load_reference(stand.store, row.prefix, row.manifest_hash)
            assert len(drawn) == row.details["reference"]["records"] == 4_096
            told = client.estimate(model, 100, all_of=["ICD9DX:003"])["support"]
            assert told["matching"] == int(drawn.having_any([3]).sum()) and told["drawn"] == 4_096

        before = [asked(analyst, model) for model in models]
        people = people_of(stored.split("train"), stored.vocabulary)
        codes = stored.vocabulary.codes
        attacked = [
            attack(client, models[1], people, codes, queries, np.random.default_rng(1))
            for attack, queries in ((estimate_attack, 40), (decision_attack, 16))
        ]
        other = Caller(front, OWNER, front.key(OWNER)).dataset(n=50, codes=codes)
        with stand.database.session_scope() as session:
            mine, theirs = (DatasetRepository(session).get(OWNER, each) for each in (dataset, other))
            mine.prefix, mine.manifest_hash = theirs.prefix, theirs.manifest_hash
        assert len(stored_dataset(stand, dataset).records) == 50
        assert [asked(analyst, model) for model in models] == before
        client.delete("datasets", dataset)
        assert [asked(analyst, model) for model in models] == before
        again = estimate_attack(client, models[1], people, codes, 40, np.random.default_rng(1))
        assert again == attacked[0]  # what an attacker hears of people who are no longer there
        assert all(attack.queries > 16 for attack in attacked)


def _analyst(front: Front) -> Client:
    return Client(front.url, front.key(OWNER, "generate", "read"))


def stored_dataset(stand: Stand, dataset: str) -> StoredDataset:
    with stand.database.read_scope() as session:
        row = DatasetRepository(session).get(OWNER, dataset)
    return load_dataset(stand.store, row.prefix, row.manifest_hash)


def people_of(records: Records, vocabulary: Vocabulary) -> list[list[str]]:
    """The codes of two patients with many of them."""
    rows = np.argsort(-records.sizes(), kind="stable")[:2]
    return [[vocabulary.codes[c] for c in records.indices[records.indptr[r] : records.indptr[r + 1]]] for r in rows]
