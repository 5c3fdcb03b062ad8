"""A cohort as an Airflow task. It is deferrable: while the job runs, only the triggerer is awake."""

from collections.abc import AsyncIterator
from typing import Any

from airflow.exceptions import AirflowException
from airflow.models import BaseOperator
from airflow.triggers.base import BaseTrigger, TriggerEvent

from ehr_d3pm import AsyncClient, Client, JobFailedError


class GenerateCohort(BaseOperator):
    """Gives the cohort's id to the tasks that follow. `conditions` are those of `Client.generate`."""

    template_fields = ("model_id", "conditions")

    def __init__(self, *, model_id: str, n: int, conditions: dict[str, Any] | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.model_id, self.n, self.conditions = model_id, n, conditions or {}

    def execute(self, context: Any) -> None:
        run = f"{context['run_id']}.{self.task_id}"  # the same for every try of this task
        with Client() as client:
            job = client.generate(self.model_id, self.n, key=run, **self.conditions)
        self.defer(trigger=JobEnds(job["id"]), method_name="finish")

    def finish(self, context: Any, event: dict[str, Any]) -> str:
        if event["state"] != "succeeded":
            raise AirflowException(f"{event['job_id']}: {event['detail']}")
        return str(event["job_id"])


class JobEnds(BaseTrigger):
    """Fires when a job has ended. The address and the key come from EHR_D3PM_URL and EHR_D3PM_KEY."""

    def __init__(self, job_id: str) -> None:
        super().__init__()
        self.job_id = job_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{type(self).__module__}.{type(self).__qualname__}", {"job_id": self.job_id}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        async with AsyncClient() as client:
            try:
                await client.wait(self.job_id)
                yield TriggerEvent({"job_id": self.job_id, "state": "succeeded", "detail": ""})
            except JobFailedError as error:
                yield TriggerEvent({"job_id": self.job_id, "state": error.job["state"], "detail": str(error)})
