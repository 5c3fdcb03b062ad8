"""A cohort as a Dagster asset."""

from dagster import AssetExecutionContext, ConfigurableResource, MaterializeResult, asset

from ehr_d3pm import Client


class Service(ConfigurableResource):
    """Where the service is, and which model."""

    url: str
    model_id: str
    key: str = ""

    def client(self) -> Client:
        return Client(self.url, self.key or None)


@asset
def synthetic_cohort(context: AssetExecutionContext, service: Service) -> MaterializeResult:
    """5,000 records; a run that is tried again finds the job of the first try."""
    with service.client() as client:
        job = client.wait(client.generate(service.model_id, 5_000, key=f"dagster-{context.run_id}"))
        cohort = client.cohort(job["id"])
    told = {"cohort_id": job["id"], "records": cohort["n_records"], "warnings": len(job["warnings"])}
    return MaterializeResult(metadata=told)
