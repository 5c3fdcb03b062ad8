"""Cohorts that are written elsewhere instead of being downloaded."""

from fastapi import APIRouter, Response

from app.access import Maker, Services_
from app.schemas.answers import JobAnswer
from app.schemas.requests import ExportRequest
from app.submissions import (
    NORMAL,
    IdempotencyKey,
    Named,
    Priority,
    Submission,
    accepted,
    checked_payload,
    replayed_job,
    submit,
)
from ehr.errors import RequestError
from ehr.references import OmopSchema, Sink
from model_store.repositories import CohortRepository, WithholdingRepository
from model_store.tables import Audit
from runtime.places import Places, database_place, object_place
from worker.contract import ExportPayload

router = APIRouter(tags=["cohorts"])


@router.post("/cohorts/{job_id}/exports", status_code=202)
def export_cohort(
    job_id: str,
    body: ExportRequest,
    response: Response,
    services: Services_,
    identity: Maker,
    key: IdempotencyKey = None,
    priority: Priority = NORMAL,
) -> JobAnswer:
    """Write a cohort to a place that `GET /places` lists among the sinks: as Parquet files or a Delta table at an
    `s3://` address, or as tables of the OMOP CDM in a schema of Postgres.

    It is withheld as a download is, now and when it is written.
    """
    asked = body.model_dump(mode="json") | {"cohort_id": job_id}
    submission = Submission(identity, "POST /cohorts/exports", key, asked, priority=priority)
    if (job := replayed_job(services, submission)) is not None:
        return accepted(identity, response, job, replayed=True)
    with services.database.read_scope() as session:
        WithholdingRepository(session).check(identity.owner, job_id)
    check_sink(services.settings.sink_places, identity.owner, body.sink)
    payload = checked_payload(ExportPayload, cohort_job_id=job_id, sink=body.sink)
    named: Named = {CohortRepository: job_id}
    detail = {"sink": body.sink.kind, "job": submission.job_id}
    row = Audit(
        owner=identity.owner, key_prefix=identity.key_prefix, action="export cohort", target=job_id, detail=detail
    )
    return accepted(identity, response, *submit(services, submission, "export", payload, named, rows=[row]))


def check_sink(places: Places, owner: str, sink: Sink) -> None:
    """RequestError if the owner may not write there; the worker looks again before it does."""
    if isinstance(sink, OmopSchema):
        database_place(places, owner, sink.connection, {"sink.cdm_schema": sink.cdm_schema})
        return
    if not sink.url.startswith("s3://") or not sink.url.endswith("/"):
        raise RequestError("sink.url: must begin with s3:// and end in /")
    object_place(places, owner, sink.url, "sink.url")
