"""Parts of a cohort: there as they finish, and still there when the job failed or was cancelled."""

from io import BytesIO
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from sqlalchemy.orm import Session

from app.access import Reader, Services_
from app.byte_ranges import ANY_BYTES, BINARY, RANGES, StoredBytes, is_download, ranged_response
from app.schemas.answers import PartAnswer, PartsAnswer
from app.submissions import audit
from ehr.errors import ConflictError, NotFoundError
from model_store.repositories import CohortRepository, WithholdingRepository
from model_store.tables import CohortPart, Job

router = APIRouter(tags=["cohorts"])
PartNumber = Annotated[int, Path(ge=0, lt=2**31)]
PARQUET = "application/vnd.apache.parquet"
PART: dict[int | str, dict[str, Any]] = {
    200: {"content": {PARQUET: BINARY, **ANY_BYTES}, "description": "columns record_id and code"},
    **RANGES,
}


@router.get("/cohorts/{job_id}/parts")
def list_cohort_parts(job_id: str, services: Services_, identity: Reader) -> PartsAnswer:
    """List the parts of a cohort that are finished, also while its job runs, or when it failed or was cancelled."""
    with services.database.read_scope() as session:
        job, parts = CohortRepository(session).finished_parts(identity.owner, job_id)
        told = identity.is_custodian or _may_leave(session, identity.owner, job)
    if parts and not services.store.exists(str(parts[0].blob)):
        parts = []  # the time in which the job could be tried again is over
    return PartsAnswer.of(
        job,
        job_id=job_id,
        n_records=job.payload["n"],
        finished_records=sum(part.n_records for part in parts),
        parts=[_answer(part, told) for part in parts],
    )


@router.get("/cohorts/{job_id}/parts/{number}", response_class=Response, responses=PART)
@router.head("/cohorts/{job_id}/parts/{number}", include_in_schema=False)
def download_cohort_part(
    job_id: str, number: PartNumber, request: Request, services: Services_, identity: Reader
) -> Response:
    """Download one finished part as Parquet, verified. Records are numbered as in the whole cohort. With `HEAD` and
    `Range`: a list of the parts' addresses can be read as one table.

    A cohort that is to be evaluated gives its parts away only when the evaluation lets it go.
    """
    with services.database.session_scope() as session:
        job, parts = CohortRepository(session).finished_parts(identity.owner, job_id)
        WithholdingRepository(session).check_part(identity.owner, job)
        part = next((part for part in parts if part.number == number), None)
        if part is None or not services.store.exists(str(part.blob)):
            raise NotFoundError("there is no finished part with this number")
        if is_download(request, services, identity, True, job_id, str(number)):
            audit(session, identity, "download part", job_id, part=number)
    data = services.store.read(str(part.blob), part.sha256)
    filename = f"{job_id}-{number}.parquet"
    return ranged_response(request, StoredBytes(lambda: BytesIO(data), len(data), str(part.sha256), PARQUET, filename))


def _may_leave(session: Session, owner: str, job: Job) -> bool:
    try:
        WithholdingRepository(session).check_part(owner, job)
    except ConflictError:
        return False
    return True


def _answer(part: CohortPart, told: bool) -> PartAnswer:
    """`told`: also what depends on the records of the part."""
    path = f"/cohorts/{part.job_id}/parts/{part.number}"
    depends = {"bytes": part.bytes or 0, "sha256": part.sha256 or ""} if told else {"bytes": None, "sha256": None}
    return PartAnswer.of(part, path=path, **depends)
