"""Generate a cohort in parts that any number of workers make; a later attempt makes only the missing ones."""

import hashlib
import secrets
import time
from collections.abc import Callable

from sqlalchemy.orm import Session

from ehr.errors import JobInterruptedError, LeaseLostError
from ehr.formats.write.dates import HISTORY_ORIGIN
from ehr.generators import CHUNK
from model_store import layout
from model_store.cohorts import cohort_manifest, save_cohort_manifest
from model_store.files import CDM, MANIFEST
from model_store.ids import JOB, new_id
from model_store.manifests import CohortPart, SourceModel
from model_store.repositories import CohortRepository, JobRepository, LeaseRepository, PartClaim, ReportRepository
from model_store.tables import Cohort, Job
from runtime.broker import BrokerError
from runtime.traces import CONSUMER, HEADER, Context, carried
from worker.contract import HELP_TASK, QUEUES, ROUTES, EvaluatePayload
from worker.execution import JobRun, Outcome, Task, execute_next, new_worker_name
from worker.heartbeat import Heartbeat, StopSignal
from worker.patience import patiently
from worker.runtime import Runtime
from worker.tasks.describe import describe
from worker.tasks.sources import HistorySource, Source, source_of

NOT_IN_ROWS = ("vocabulary", "names", "parts", "files", "lab_curves")  # of a manifest: what is large and in its file
WAIT_SECONDS = 0.2  # between looks at parts that other workers are making
LOOK_SECONDS = 1.0  # between looks at how far all workers are
MOST_HELPERS = 16


class Tally:
    """How many records of a cohort there are: finished parts of all workers, and the part this worker is making.

    Asking the database for every chunk would cost more than the chunk.
    """

    def __init__(self, runtime: Runtime, job_id: str) -> None:
        self.runtime, self.job_id = runtime, job_id
        self._finished, self._looked_at = 0, -LOOK_SECONDS

    def records(self, in_this_part: int = 0) -> int:
        if time.monotonic() - self._looked_at >= LOOK_SECONDS or in_this_part == 0:
            self._finished, self._looked_at = self._done_records(), time.monotonic()
        return self._finished + in_this_part

    def _done_records(self) -> int:
        scope = self.runtime.database.read_scope
        return patiently(scope, lambda session: CohortRepository(session).done_records(self.job_id))


def generate(run: JobRun) -> Outcome:
    """Load, draw all parts, store the manifest."""
    run.progress.step("load", maximum=1)
    source = source_of(run.runtime, run.claim.owner, run.claim.payload)
    job_id, n = run.claim.job_id, source.payload.n
    done = _prepare_parts(run, n)
    run.progress.step("generate", n, done, "records")
    _ask_for_help(run.runtime, job_id)
    tally = Tally(run.runtime, job_id)
    run.begin_turn()

    def on_progress(in_this_part: int) -> None:
        run.check()
        run.progress.advance(tally.records(in_this_part))

    while True:
        run.check()
        part = _claim_part(run.runtime, job_id, run.claim.worker)
        if part is not None:
            _make_part(run.runtime, source, part, on_progress)
            run.stop.check_turn()
        elif tally.records() == n:
            break
        else:
            time.sleep(WAIT_SECONDS)  # others are at work on the last parts, or their leases are running out
        run.progress.advance(tally.records())
    run.progress.step("store", maximum=1)
    return _store(run, source)


def take_parts_of(runtime: Runtime, job_id: str, task_of: Callable[[str], Task]) -> None:
    """Help with someone else's generate job for as long as there are parts to take; jobs that wait go before each."""
    with runtime.database.read_scope() as session:
        job = session.get(Job, job_id)
    if job is None or job.state != "running":
        return
    source: Source | HistorySource | None = None
    while True:
        while execute_next(runtime, task_of):
            source = None  # what somebody else's job needs, it may have
        part = _claim_part(runtime, job_id, new_worker_name())
        if part is None:
            return
        source = source or source_of(runtime, job.owner, job.payload)
        try:
            with runtime.tracer.span("help generate", CONSUMER, Context.of(job.payload.get(HEADER))):
                _make_part(runtime, source, part)
        except JobInterruptedError:
            return


def _prepare_parts(run: JobRun, n: int) -> int:
    """Make the part rows or find those of an earlier attempt; returns how many records are already there."""
    part_records = max(run.runtime.settings.part_records // CHUNK, 1) * CHUNK

    def prepare(session: Session) -> int:
        LeaseRepository(session).check(run.claim)
        cohorts = CohortRepository(session)
        cohorts.ensure_parts(run.claim.job_id, n, part_records)
        for part in cohorts.parts(run.claim.job_id):
            if part.state == "done" and not (part.blob and run.runtime.store.exists(part.blob)):
                cohorts.forget_part(part.job_id, part.number)
        return cohorts.done_records(run.claim.job_id)

    return patiently(run.runtime.database.session_scope, prepare)


def _ask_for_help(runtime: Runtime, job_id: str) -> None:
    with runtime.database.read_scope() as session:
        open_parts = sum(part.state != "done" for part in CohortRepository(session).parts(job_id))
    try:
        for _ in range(min(open_parts - 1, MOST_HELPERS)):
            runtime.broker.send(HELP_TASK, QUEUES["generate"], job_id)
    except BrokerError:
        return  # then this worker makes all parts by itself


def _claim_part(runtime: Runtime, job_id: str, worker: str) -> PartClaim | None:
    seconds = runtime.settings.lease_seconds
    scope = runtime.database.session_scope
    return patiently(scope, lambda session: CohortRepository(session).claim_part(job_id, worker, seconds))


def _make_part(
    runtime: Runtime, source: Source | HistorySource, part: PartClaim, watch: Callable[[int], None] | None = None
) -> None:
    """Draw a part and put it into the store, keeping its lease meanwhile. `watch` is the job's own worker's: it gets
    the number of records there are, and may raise."""
    signal = StopSignal()

    def beat() -> bool:
        with runtime.database.session_scope() as session:
            return CohortRepository(session).renew_part(part, runtime.settings.lease_seconds)

    def on_progress(done: int, _: int) -> None:
        signal.check()
        if watch is not None:
            watch(done)

    blob = f"{layout.cohort_folder(part.job_id)}/parts/p{part.number:d}-{secrets.token_hex(8)}.parquet"
    # A job's own heartbeat ends the process when it must; for a helper this one does.
    last_word = None if watch is not None else lambda: _free_part(runtime, part)
    with Heartbeat(runtime.settings, signal, beat, last_word), runtime.tracer.span("part") as span:
        if span is not None:
            span.set(job_id=part.job_id, part=part.number, records=part.n_records)
        try:
            data = source.draw(part, on_progress)
            runtime.store.write(blob, data)
            written = (blob, hashlib.sha256(data).hexdigest(), len(data))
            scope = runtime.database.session_scope
            attempts = runtime.settings.max_attempts
            patiently(scope, lambda session: CohortRepository(session).finish_part(part, *written, attempts))
        except BaseException as error:
            runtime.store.delete(blob)
            if isinstance(error, Exception) and not isinstance(error, LeaseLostError):
                _free_part(runtime, part)
            raise


def _free_part(runtime: Runtime, part: PartClaim) -> None:
    try:
        with runtime.database.session_scope() as session:
            CohortRepository(session).free_part(part)
    except LeaseLostError:
        return  # already someone else's, or gone with its job


def _store(run: JobRun, source: Source | HistorySource) -> Outcome:
    with run.runtime.database.read_scope() as session:
        rows = CohortRepository(session).parts(run.claim.job_id)
    names = ("number", "blob", "sha256", "bytes", "first_record", "n_records")
    parts = [CohortPart(**{name: getattr(row, name) for name in names}) for row in rows]
    model = SourceModel(
        id=source.row.id,
        generator=source.row.generator,
        manifest_hash=source.row.manifest_hash,
        dataset_id=source.row.dataset_id,
        data_hash=source.bundle.manifest.data_hash,
        test_share=source.bundle.manifest.test_share,
        holdout_share=source.bundle.manifest.holdout_share,
    )
    request = source.payload.stored()
    remarks = {"warnings": request.pop("warnings"), "resolved": source.resolved()}
    if isinstance(source, HistorySource):
        remarks["origin"] = source.payload.origin or HISTORY_ORIGIN
    if source.bundle.manifest.lab_curves:
        remarks["lab_curves"] = source.bundle.manifest.lab_curves
    folder = f"{layout.cohort_folder(run.claim.job_id)}/a{run.claim.attempt:d}"
    run.own_folders.append(folder)
    if source.bundle.cdm is not None:
        run.runtime.store.write(f"{folder}/{CDM}", source.bundle.cdm)
        remarks["files"] = {CDM: hashlib.sha256(source.bundle.cdm).hexdigest()}
    manifest = cohort_manifest(model, request, source.bundle.vocabulary, parts, **remarks)
    manifest_hash = save_cohort_manifest(run.runtime.store, f"{folder}/{MANIFEST}", manifest)
    evaluate_id = new_id(JOB) if source.payload.evaluate and source.payload.against_real else None
    description = describe(run.runtime.store, run.claim.job_id, manifest, source.bundle.manifest.config)

    def add_rows(session: Session) -> None:
        ReportRepository(session).add_description(run.claim.owner, run.claim.job_id, description)
        CohortRepository(session).add(
            Cohort(
                job_id=run.claim.job_id,
                owner=run.claim.owner,
                model_id=source.row.id,
                dataset_id=source.row.dataset_id,
                n_records=source.payload.n,
                bytes=sum(part.bytes or 0 for part in parts),
                prefix=folder,
                manifest_hash=manifest_hash,
                manifest=manifest.stored(without=NOT_IN_ROWS) | {"n_parts": len(parts)},
            )
        )
        if evaluate_id is not None:
            _submit_evaluation(session, run, evaluate_id)

    result = {"cohort_id": run.claim.job_id, "records": source.payload.n, "evaluate_job_id": evaluate_id}
    return Outcome(result, add_rows, keep=[folder, *(part.blob for part in parts)])


def _submit_evaluation(session: Session, run: JobRun, job_id: str) -> None:
    """In the transaction that makes the cohort visible: it is measured whatever happens next."""
    payload = EvaluatePayload(cohort_job_id=run.claim.job_id)
    JobRepository(session).submit(
        run.claim.owner,
        "evaluate",
        *ROUTES["evaluate"],
        payload.stored() | carried(),
        run.runtime.settings.max_attempts,
        job_id=job_id,
    )
