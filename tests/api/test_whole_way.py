"""Upload, train, generate, download, report: through HTTP, with a real worker, on both databases."""

import csv
import gzip
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from ehr_d3pm import ApiError, Client, JobFailedError
from tests.api.front import Front
from tests.service.servers import wait_until
from tests.service.stand import TINY, Stand, long_csv


def test_the_whole_way(shared_stand: Stand, tmp_path: Path) -> None:
    table = tmp_path / "records.csv.gz"
    table.write_bytes(gzip.compress(long_csv(600)))
    with Front(shared_stand.settings) as front, Client(front.url, front.key("researcher")) as client:
        assert client.ready()["status"] == "ready"
        dataset = client.wait(client.upload([table], name="ward"))["result"]["dataset_id"]
        assert client.dataset(dataset)["summary"]["records"] == 600
        settings = TINY | {"training": {"epochs": 2, "batch_size": 64, "holdout_draws": 1}}
        told: list[str] = []
        trained = client.wait(client.train(dataset, settings=settings), lambda job: told.append(job["state"]))
        model = trained["result"]["model_id"]
        assert told[-1] == "succeeded"

        conditions = {"all_of": ["ICD9DX:001"], "none_of": ["ICD9DX:01*"]}
        cohort = client.wait(client.generate(model, 200, seed=3, **conditions))
        target = tmp_path / "cohort.csv"
        client.download(cohort["id"], target)
        with target.open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert {row["vocabulary"] for row in rows} == {"ICD9DX"} and {len(row["code"]) for row in rows} == {3}
        assert max(int(row["record_id"]) for row in rows) < 200

        client.wait(cohort["result"]["evaluate_job_id"])
        report = client.report(cohort["id"])
        assert report["conditional"]["metrics"]["attainment"]["figures"]["value"]["value"] == 1
        assert "<table>" in client.report_page(cohort["id"])
        assert client.download_bundle(model, tmp_path / "model.zip") > 1000
        events = [event["data"].get("state") for event in client.events(cohort["id"]) if event["event"] == "state"]
        assert events == ["queued", "running", "succeeded"]

        # the same model, request and seed give the same bytes
        again = client.wait(client.generate(model, 200, seed=3, evaluate=False, **conditions))
        client.download(again["id"], tmp_path / "again.csv")
        assert (tmp_path / "again.csv").read_bytes() == target.read_bytes()

        # an estimate is near what a job then takes; on a busy machine it cannot be nearer than this
        wait_until(lambda: client.estimate(model, 5)["workers"] == 1, "a worker that tells of itself")
        large: dict[str, Any] = {"n": 100_000, "steps": 16, **conditions}
        expected = client.estimate(model, **large)
        assert expected["method"] == "exact" and 0.1 < expected["memory_gib"] < 4
        taken = client.wait(client.generate(model, evaluate=False, **large))
        started, finished = (datetime.fromisoformat(taken[name]) for name in ("started_at", "finished_at"))
        assert 1 / 4 < expected["seconds"] / (finished - started).total_seconds() < 4

        with pytest.raises(ApiError, match="did you mean"):
            client.generate(model, 5, all_of=["ICD9DX:0001"])
        with pytest.raises(ApiError, match="absorbing"):
            client.train(dataset, settings={"noise": "loud"})
        table.write_bytes(b"nothing,of,use\n1,2,3\n")
        with pytest.raises(JobFailedError):
            client.wait(client.upload([table]))


def test_a_published_generator_the_whole_way(sqlite_stand: Stand, tmp_path: Path) -> None:
    """Hardly trained it draws every code in half of the records: a condition on one is common, one on many is not."""
    table = tmp_path / "records.csv"
    table.write_bytes(long_csv(600))
    with Front(sqlite_stand.settings) as front, Client(front.url, front.key("comparer")) as client:
        dataset = client.wait(client.upload([table]))["result"]["dataset_id"]
        settings = {"epochs": 2, "batch_size": 64, "width": 16, "layers": 2, "binarise": "bernoulli"}
        trained = client.wait(client.train(dataset, generator="emr-wgan", settings=settings))
        model = trained["result"]["model_id"]
        told = client.model(model)
        assert told["generator"] == "emr-wgan" and told["details"]["settings"]["critic_steps"] == 2
        assert len(told["details"]["curve"]) == 2

        asked = {"all_of": ["ICD9DX:001"], "none_of": ["ICD9DX:002"], "targets": {"ICD9DX:004": 0.25}}
        expected = client.estimate(model, 100, **asked)
        assert expected["seconds"] is None
        cohort = client.wait(client.generate(model, 100, **asked))
        if expected["withheld"] is not None:  # how common these are is up to a model that has hardly learned anything
            client.release(cohort["id"], "nobody is behind these records")
        client.download(cohort["id"], tmp_path / "cohort.csv")
        with (tmp_path / "cohort.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        having = {code: {row["record_id"] for row in rows if row["code"] == code} for code in ("001", "002", "004")}
        assert len(having["001"]) == 100 and not having["002"] and abs(len(having["004"]) - 25) <= 1
        client.wait(cohort["result"]["evaluate_job_id"])
        assert client.report(cohort["id"])["conditional"]["metrics"]["attainment"]["figures"]["value"]["value"] == 1

        many = [f"ICD9DX:{code:03d}" for code in range(12)]
        with pytest.raises(JobFailedError, match="too rare for this generator"):
            client.wait(client.generate(model, 100, all_of=many))
        with pytest.raises(ApiError, match="one network call"):
            client.generate(model, 100, steps=16)
