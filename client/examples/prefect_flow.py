"""From records that lie elsewhere to a cohort on S3, as a Prefect flow."""

from typing import Any

from prefect import flow, task

from ehr_d3pm import Client


@task(retries=2)
def dataset(source: dict[str, Any], key: str) -> str:
    with Client() as client:
        return str(client.wait(client.fetch(source, key=f"{key}-data"))["result"]["dataset_id"])


@task(retries=2)
def model(dataset_id: str, key: str) -> str:
    with Client() as client:
        return str(client.wait(client.train(dataset_id, preset="fast", key=f"{key}-model"))["result"]["model_id"])


@task(retries=2)
def cohort(model_id: str, n: int, sink: dict[str, Any], key: str) -> str:
    with Client() as client:
        made = client.wait(client.generate(model_id, n, key=f"{key}-cohort"))
        client.wait(made["result"]["evaluate_job_id"])  # which decides whether it may leave
        return str(client.wait(client.export(made["id"], sink, key=f"{key}-out"))["result"]["written"])


@flow
def synthesise(source: dict[str, Any], sink: dict[str, Any], key: str, n: int = 10_000) -> str:
    """`key` names this run: started again under the same one, nothing is done twice."""
    return cohort(model(dataset(source, key), key), n, sink, key)
