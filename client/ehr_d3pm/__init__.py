"""The Python client of an EHR-D3PM service.

    from ehr_d3pm import Client

    client = Client("http://127.0.0.1:8000", api_key=None)
    dataset = client.wait(client.upload("records.csv.gz", name="cardiology"))["result"]["dataset_id"]
    model = client.wait(client.train(dataset))["result"]["model_id"]
    cohort = client.wait(client.generate(model, 10_000, all_of="ICD10CM:E84"))
    client.download(cohort["id"], "cohort.csv")

Answers are the service's JSON as dictionaries. AsyncClient has the same methods, to be awaited.
"""

from ehr_d3pm.client import AsyncClient, Client
from ehr_d3pm.errors import ApiError, ClientError, JobFailedError, UnreachableError

__all__ = ["ApiError", "AsyncClient", "Client", "ClientError", "JobFailedError", "UnreachableError"]
