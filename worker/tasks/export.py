"""Write a cohort to a place outside: look whether it may leave, load it, write. Needs no torch."""

from dataclasses import replace

from sqlalchemy.orm import Session

from ehr.errors import ConflictError, UnevaluatedError, WithheldError
from ehr.references import OmopSchema, ParquetFolder
from model_store.cohorts import known_source
from model_store.manifests import CohortManifest
from model_store.repositories import CohortRepository, WithholdingRepository
from model_store.tables import Cohort, Dataset
from worker.contract import ExportPayload
from worker.execution import JobRun, Outcome, patiently
from worker.exporting.delta import write_delta
from worker.exporting.omop import write_schema
from worker.exporting.parquet import write_folder


def export(run: JobRun) -> Outcome:
    run.progress.step("load", maximum=1)
    payload = ExportPayload.model_validate(run.claim.payload)
    cohort, dataset = patiently(run.runtime.database.read_scope, lambda session: _load(session, run, payload))
    store, sink = run.runtime.store, payload.sink
    manifest = CohortManifest.read(store, cohort.prefix, cohort.manifest_hash)
    source = known_source(store, cohort, dataset, manifest)
    if isinstance(sink, OmopSchema):
        written = write_schema(run, source, sink, cohort.job_id)
    else:
        named = replace(source, with_names=sink.names)
        write = write_folder if isinstance(sink, ParquetFolder) else write_delta
        written = write(run, named, sink, cohort.job_id)  # type: ignore[arg-type]
    result = {"cohort_id": cohort.job_id, "written": written, "records": source.n_records}
    return Outcome(result, lambda _: None, keep=[])


def _load(session: Session, run: JobRun, payload: ExportPayload) -> tuple[Cohort, Dataset | None]:
    try:
        WithholdingRepository(session).check(run.claim.owner, payload.cohort_job_id)
    except (WithheldError, UnevaluatedError):
        # since it was submitted. Why is for those who may read the report: the download's answer tells each their part
        raise ConflictError("the cohort is withheld by now: see GET /cohorts/{id}/records") from None
    cohort = CohortRepository(session).get(run.claim.owner, payload.cohort_job_id)
    return cohort, session.get(Dataset, cohort.dataset_id)
