"""Upload, train, generate, report, download with nothing embedded: Postgres, Valkey over TCP, and an S3 server."""

import csv
from pathlib import Path

from ehr_d3pm import Client
from model_store.blobs import S3Store
from tests.api.front import Front
from tests.service.servers import wait_until
from tests.service.stand import Stand, long_csv


def test_the_whole_way_without_a_shared_disk(distributed_stand: Stand, tmp_path: Path) -> None:
    stand = distributed_stand
    password = str(stand.valkey.password)
    assert isinstance(stand.store, S3Store) and stand.settings.redis_url.startswith(f"redis://:{password}@127.0.0.1:")
    table = tmp_path / "records.csv"
    table.write_bytes(long_csv(600))
    with Front(stand.settings) as front, Client(front.url, front.key("researcher")) as client:
        assert client.ready()["status"] == "ready"
        dataset = client.wait(client.upload([table], name="ward"))["result"]["dataset_id"]
        model = client.wait(client.train(dataset, generator="independent", settings={}))["result"]["model_id"]
        cohort = client.wait(client.generate(model, 1500, seed=3, all_of=["ICD9DX:001"]))
        client.wait(cohort["result"]["evaluate_job_id"])
        assert client.report(cohort["id"])["conditional"]["metrics"]["attainment"]["figures"]["value"]["value"] == 1
        client.download(cohort["id"], tmp_path / "cohort.csv")
        assert client.download_bundle(model, tmp_path / "model.zip") > 1000
        with (tmp_path / "cohort.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert {row["record_id"] for row in rows if row["code"] == "001"} == {str(i) for i in range(1500)}

        for kind, thing in (("datasets", dataset), ("models", model), ("cohorts", cohort["id"])):
            assert stand.blobs(f"{kind}/{thing}")
        wait_until(lambda: stand.blobs("uploads") == [], "removal of the upload")
        client.delete("datasets", dataset)
        wait_until(lambda: stand.blobs("datasets") == [], "removal of the dataset")
    assert not (stand.folder / "store").exists()
    assert list((stand.folder / "scratch").iterdir()) == []  # uploads were read there, under no name
    told = "".join(worker.log.read_text() for worker in stand.workers)
    assert "job succeeded" in told and password not in told
