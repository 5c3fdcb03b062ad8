"""Where a report and its cohort come from, for the head of its page: what it takes to file it as evidence."""

from collections.abc import Iterator
from datetime import UTC, datetime

from sqlalchemy.orm import Session

from app.openapi import VERSION
from ehr.errors import NotFoundError
from ehr.reports import Report
from ehr.shareable import ShareableReport
from model_store.repositories import CohortRepository, DatasetRepository, ModelRepository, ReportRepository
from model_store.repositories.base import OwnedRepository, Row
from model_store.tables import Cohort, Model


def provenance_of(session: Session, owner: str, report: Report | ShareableReport) -> dict[str, str]:
    """What each line is called, and what it says, as far as the report's reader may know it. What was deleted since is
    left out."""
    with_real_records = isinstance(report, Report)
    return dict(_lines(session, owner, report, with_real_records))


def _lines(
    session: Session, owner: str, report: Report | ShareableReport, with_real_records: bool
) -> Iterator[tuple[str, str]]:
    made_by = report.job_id if isinstance(report, Report) else report.cohort_id
    row = _found(ReportRepository(session), owner, made_by)
    if row is not None:
        yield "Report made", _date(row.created_at)
    model = _found(ModelRepository(session), owner, report.model_id)
    if model is not None:
        yield "Model's name", f"{model.name} ({_settings(model, with_real_records)})"
    dataset = _found(DatasetRepository(session), owner, report.dataset_id)
    if dataset is not None:
        yield "Data's name", dataset.name
        if with_real_records:
            yield "Data hash", dataset.data_hash
    cohort = _found(CohortRepository(session), owner, report.cohort_id)
    if cohort is not None:
        yield "Cohort made", _date(cohort.created_at)
        yield from _cohort(cohort)
    yield "Shown by", f"EHR-D3PM {VERSION}"


def _cohort(cohort: Cohort) -> Iterator[tuple[str, str]]:
    request, resolved = cohort.manifest.get("request") or {}, cohort.manifest.get("resolved") or {}
    if "seed" in request:
        yield "Seed", str(request["seed"])
    known = [f"{name} {value}" for name, value in resolved.items() if value is not None]
    if known:
        yield "Drawn by", ", ".join(known)
    libraries = cohort.manifest.get("libraries") or {}
    if libraries:
        yield "Versions", ", ".join(f"{name} {version}" for name, version in libraries.items())


def _settings(model: Model, with_seed: bool) -> str:
    details = model.details
    named = (("preset", details.get("preset")), ("seed", details.get("seed") if with_seed else None))
    return ", ".join([model.generator, *(f"{name} {value}" for name, value in named if value is not None)])


def _found(repository: OwnedRepository[Row], owner: str, row_id: str) -> Row | None:
    try:
        return repository.get(owner, row_id)
    except NotFoundError:
        return None


def _date(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%d %b %Y, %H:%M} UTC"
