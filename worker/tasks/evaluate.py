"""Measure a cohort against real records the model has never seen; the report is versioned JSON."""

import numpy as np
from sqlalchemy.orm import Session

from ehr.audits import ModelAudit
from ehr.disclosure import shown
from ehr.errors import DataError, NotFoundError
from ehr.histories import Histories
from ehr.records import Records
from ehr.reports import REPORT_VERSION, Asked, AskedOverTime, AttainedTarget, Report
from ehr.shareable import ModelReport
from ehr.vocabulary import Vocabulary
from model_store.blobs import BlobStore
from model_store.cohorts import effective_records, iter_histories, iter_records
from model_store.datasets import StoredDataset
from model_store.manifests import CohortManifest, vocabulary_in
from model_store.repositories import CohortRepository, DatasetRepository, ModelRepository, ReportRepository
from model_store.tables import Cohort, ReportRow
from worker.contract import EvaluatePayload
from worker.engine.generators import Generator
from worker.engine.histories.protocol import HistoryGenerator, join
from worker.evaluation import ReportPlan, Subject
from worker.evaluation.subject import OverTime, Part
from worker.evaluation.verdicts import privacy_verdict
from worker.execution import JobRun, Outcome
from worker.tasks.loading import dataset_of, model_of, plain

PARTS: tuple[Part, ...] = ("cohort", "train", "holdout", "test")


def evaluate(run: JobRun) -> Outcome:
    """Load cohort and dataset, measure, store the report."""
    payload = EvaluatePayload.model_validate(run.claim.payload)
    run.progress.step("load", maximum=1)
    subject = _subject(run, payload)
    run.check()
    plan = ReportPlan.of(subject, np.random.default_rng(payload.seed))
    run.progress.step("measure", len(plan.steps), unit="measurements")

    def watch(metric: str, done: int) -> None:
        run.check()
        run.progress.advance(done, metric=metric)

    report = plan.carry_out(watch)
    run.progress.step("store", maximum=1)
    privacy = privacy_verdict(report.families)
    forbidden = subject.own_data and not subject.attack
    withholds = privacy is not None and (privacy.level == "fail" or forbidden)
    row = ReportRow(
        job_id=run.claim.job_id,
        cohort_job_id=payload.cohort_job_id,
        owner=run.claim.owner,
        version=REPORT_VERSION,
        body=plain(report.model_dump(mode="json")),
        privacy=None if privacy is None else privacy.level,
        withholds=privacy.reason if privacy is not None and withholds else None,
    )

    def add_rows(session: Session) -> None:
        ReportRepository(session).add(row)
        if _judges_the_model(subject, payload):
            said = _said_of_model(report, withholds)
            ModelRepository(session).remember_report(run.claim.owner, report.model_id, said)

    result = {"report_id": run.claim.job_id, "cohort_id": payload.cohort_job_id, "verdict": report.verdict.level}
    return Outcome(result, add_rows, keep=[])


def _judges_the_model(subject: Subject, payload: EvaluatePayload) -> bool:
    """Whether what is said of this cohort holds for its model: nothing was chosen, of the cohort or of its report."""
    return subject.own_data and not subject.is_conditioned and not subject.targets and payload.labels is None


def _said_of_model(report: Report, withholds: bool) -> ModelReport:
    judged = {name: family.verdict for name, family in report.families.items() if family.verdict is not None}
    return ModelReport(report_id=report.job_id, records=report.records, families=judged, withholds=withholds)


def _subject(run: JobRun, payload: EvaluatePayload) -> Subject:
    with run.runtime.database.read_scope() as session:
        cohort = CohortRepository(session).get(run.claim.owner, payload.cohort_job_id)
    manifest = CohortManifest.read(run.runtime.store, cohort.prefix, cohort.manifest_hash)
    dataset = dataset_of(run.runtime, run.claim.owner, payload.dataset_id or cohort.dataset_id)
    own_data = _is_own(cohort, manifest, dataset, payload)
    # A copy of the data may have other shares: what the model has not seen is for the model to say.
    shares = (manifest.model.holdout_share, manifest.model.test_share) if own_data else (None, None)
    over_time, left_out = _over_time(run.runtime.store, manifest, dataset, shares)
    if over_time is not None:
        synth, train, holdout, test = (over_time.part(name).ever() for name in PARTS)
    else:
        # of patients over time, what each ever has
        train, holdout, test = (
            dataset.split(name, *shares) if dataset.histories is None else dataset.split_histories(name, *shares).ever()
            for name in PARTS[1:]
        )
        known = vocabulary_in(manifest)
        blocks = [Records.from_sets([], len(known)), *iter_records(run.runtime.store, manifest)]
        synth, left_out = translated(Records.concatenate(blocks), known, dataset.vocabulary)
    asked = manifest.condition
    condition, reported = None, None
    if not asked.is_empty:
        condition = dataset.vocabulary.resolve(asked)
        support = shown(int(condition.satisfied_by(train).sum()))
        reported = Asked(**asked.model_dump(), support_in_training=support)
    is_conditioned = condition is not None or manifest.history is not None
    model = _model(run, cohort)
    return Subject(
        cohort=synth,
        vocabulary=dataset.vocabulary,
        train=train,
        holdout=holdout,
        test=test,
        ids={
            "job_id": run.claim.job_id,
            "cohort_id": cohort.job_id,
            "model_id": cohort.model_id,
            "dataset_id": payload.dataset_id or cohort.dataset_id,
        },
        asked=reported,
        condition=condition,
        targets=_attained(manifest, dataset.vocabulary, synth),
        sampling=manifest.resolved.get("sampling"),
        generator=None if model is None or not own_data else model[1],
        audit=None if model is None else model[0],
        own_data=own_data,
        effective=effective_records(run.runtime.store, manifest) if is_conditioned else None,
        labels=payload.labels,
        codes_left_out=left_out,
        # of patients over time, both hold at each visit
        groups=dataset.groups if dataset.histories is None or over_time is not None else None,
        rules=dataset.rules if dataset.histories is None or over_time is not None else None,
        over_time=over_time,
        attack=dataset.may_be_attacked and (not own_data or _may_attack_own(run, cohort)),
    )


def _over_time(
    store: BlobStore, manifest: CohortManifest, dataset: StoredDataset, shares: tuple[float | None, float | None]
) -> tuple[OverTime | None, int]:
    """Cohort and real patients with their visits, and how many codes of the cohort the data lacks; None where one of
    the two has no time."""
    if manifest.origin is None or dataset.histories is None:
        if manifest.history is not None:
            raise DataError("the cohort was asked for something over time, and this dataset has none")
        return None, 0
    known = vocabulary_in(manifest)
    cohort, left_out = translated_histories(
        join(list(iter_histories(store, manifest)), len(known)), known, dataset.vocabulary
    )
    train, holdout, test = (dataset.split_histories(name, *shares) for name in PARTS[1:])
    if (asked := manifest.history) is None:
        return OverTime(cohort, train, holdout, test), left_out
    condition = asked.resolve(dataset.vocabulary)
    support = shown(int(condition.satisfied_by(train).sum()))
    reported = AskedOverTime(condition=asked, support_in_training=support)
    return OverTime(cohort, train, holdout, test, reported, condition), left_out


def _attained(manifest: CohortManifest, vocabulary: Vocabulary, synth: Records) -> list[AttainedTarget]:
    """The share that was asked for and the share that has one of the codes, for each target."""
    targets = []
    for target in manifest.targets:
        having = synth.having_any(vocabulary.matching_any(target.codes))
        attained = float(having.mean()) if len(having) else 0.0
        targets.append(AttainedTarget(codes=target.codes, asked=target.share, attained=attained))
    return targets


def _is_own(cohort: Cohort, manifest: CohortManifest, dataset: StoredDataset, payload: EvaluatePayload) -> bool:
    """Whether the model learned from this dataset. A copy of the same data under another id is the same data."""
    own = payload.dataset_id in (None, cohort.dataset_id) or manifest.model.data_hash == dataset.data_hash
    if own and manifest.vocabulary_hash != dataset.vocabulary.hash:
        raise DataError("the cohort and its dataset have different vocabularies")
    return own


def _may_attack_own(run: JobRun, cohort: Cohort) -> bool:
    """What the data the model learned from says; a copy of it, uploaded again, cannot allow what that forbids, nor can
    removing it."""
    try:
        with run.runtime.database.read_scope() as session:
            row = DatasetRepository(session).get(run.claim.owner, cohort.dataset_id)
    except NotFoundError:
        return False
    return bool(row.summary.get("may_be_attacked", True))


def _model(run: JobRun, cohort: Cohort) -> tuple[ModelAudit | None, Generator | None] | None:
    try:
        row, _, generator = model_of(run.runtime, run.claim.owner, cohort.model_id)
    except NotFoundError:
        return None  # a cohort outlives its model; what needs the model is absent with its reason
    return ModelAudit.of(row.details), None if isinstance(generator, HistoryGenerator) else generator


def translated_histories(histories: Histories, known: Vocabulary, wanted: Vocabulary) -> tuple[Histories, int]:
    """The same for patients over time."""
    visits, left_out = translated(histories.visits, known, wanted)
    static, _ = translated(histories.static, known, wanted)
    return Histories(visits, histories.offsets, histories.gaps, static), left_out


def translated(records: Records, known: Vocabulary, wanted: Vocabulary) -> tuple[Records, int]:
    """The records in another vocabulary, without the codes it lacks; and how many codes those are."""
    if known.codes == wanted.codes:
        return records, 0
    number = np.array([wanted.positions.get(code, -1) for code in known.codes], dtype=np.int64)
    if not (number >= 0).any():
        raise DataError("the cohort and this dataset have no code in common")
    codes = number[records.indices]
    kept = codes >= 0
    return Records.from_pairs(records.rows()[kept], codes[kept], len(records), len(wanted)), int((number < 0).sum())
