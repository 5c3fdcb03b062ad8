"""From an evaluate job to a cohort that may not leave: with real workers, and cohorts that betray their patients."""

import hashlib
from typing import Any

import pytest

from ehr.errors import WithheldError
from model_store import layout
from model_store.cohorts import cohort_manifest, pack_part, save_cohort_manifest
from model_store.datasets import load_dataset
from model_store.ids import JOB, new_id
from model_store.manifests import CohortManifest
from model_store.repositories import CohortRepository, DatasetRepository, ReportRepository, WithholdingRepository
from model_store.tables import ReportRow
from tests.service.stand import OWNER, Stand, long_csv
from worker.contract import EvaluatePayload

SHARES = {"test_share": 0.2, "holdout_share": 0.2}
# enough codes that no two patients have the same ones by chance
DATA = long_csv(900, n_codes=40)


def cohort_of(stand: Stand, **options: Any) -> tuple[str, str]:
    """(dataset, cohort) of a model that knows prevalences alone."""
    dataset_id = stand.succeed(stand.ingest(DATA, **SHARES, **options))["dataset_id"]
    model_id = stand.succeed(stand.train(dataset_id, generator="independent", settings={}))["model_id"]
    return dataset_id, stand.succeed(stand.generate(model_id, n=300, evaluate=False))["cohort_id"]


def replace_by_copies(stand: Stand, dataset_id: str, cohort_id: str) -> None:
    """The cohort becomes what a model that has learned its records by heart would give. The copies lie in a folder that
    no job has: in the folder of its own job, everything but the result is removed after the end."""
    folder = layout.cohort_folder(new_id(JOB))
    with stand.database.session_scope() as session:
        row = DatasetRepository(session).get(OWNER, dataset_id)
        dataset = load_dataset(stand.store, row.prefix, row.manifest_hash)
        cohort = CohortRepository(session).get(OWNER, cohort_id)
        before = CohortManifest.read(stand.store, cohort.prefix, cohort.manifest_hash)
        train = dataset.split("train")
        data = pack_part(0, train, dataset.vocabulary)
        blob = f"{folder}/parts/copies.parquet"
        stand.store.write(blob, data)
        part = {"number": 0, "blob": blob, "first_record": 0, "n_records": len(train)}
        part["sha256"] = hashlib.sha256(data).hexdigest()
        manifest = cohort_manifest(before.model, before.request, dataset.vocabulary, [part])
        cohort.prefix = folder
        cohort.manifest_hash = save_cohort_manifest(stand.store, f"{cohort.prefix}/manifest.json", manifest)
        cohort.n_records = len(train)


def evaluated(stand: Stand, cohort_id: str, dataset_id: str | None = None) -> ReportRow:
    payload = EvaluatePayload(cohort_job_id=cohort_id, dataset_id=dataset_id, labels=[])
    job_id = stand.submit("evaluate", payload)
    stand.succeed(job_id)
    with stand.database.read_scope() as session:
        return ReportRepository(session).newest(OWNER, job_id)


def check(stand: Stand, cohort_id: str) -> None:
    with stand.database.read_scope() as session:
        WithholdingRepository(session).check(OWNER, cohort_id)


def test_copies_are_found_out_and_withheld(postgres_stand: Stand) -> None:
    stand = postgres_stand
    dataset_id, cohort_id = cohort_of(stand)
    assert evaluated(stand, cohort_id).privacy != "fail"
    check(stand, cohort_id)
    replace_by_copies(stand, dataset_id, cohort_id)
    assert evaluated(stand, cohort_id).privacy == "fail"
    with pytest.raises(WithheldError, match="withheld"):
        check(stand, cohort_id)


def test_another_upload_of_the_data_does_not_make_training_records_unseen(sqlite_stand: Stand) -> None:
    """With other shares, records that the model has learned from would stand in for people it has never seen."""
    stand = sqlite_stand
    dataset_id, cohort_id = cohort_of(stand)
    replace_by_copies(stand, dataset_id, cohort_id)
    again = stand.succeed(stand.ingest(DATA, test_share=0.45, holdout_share=0.4))["dataset_id"]
    report = evaluated(stand, cohort_id, again)
    assert report.body["own_data"] and report.privacy == "fail"


def test_data_that_may_not_be_attacked_is_not_and_its_cohorts_wait_for_someone_to_answer(postgres_stand: Stand) -> None:
    stand = postgres_stand
    _, cohort_id = cohort_of(stand, may_be_attacked=False)
    report = evaluated(stand, cohort_id)
    assert report.body["privacy"]["metrics"] == {} and report.body["privacy"]["verdict"]["level"] == "caution"
    assert "mir" not in report.body["seconds"]
    assert report.body["audit"]["attacks"] == [] and report.body["audit"]["verdict"]["level"] == "caution"
    with pytest.raises(WithheldError, match="terms of this data forbid"):
        check(stand, cohort_id)


def test_a_report_on_other_data_hides_no_report_that_judges_privacy(sqlite_stand: Stand) -> None:
    stand = sqlite_stand
    _, cohort_id = cohort_of(stand)
    judging = evaluated(stand, cohort_id)
    other = stand.succeed(stand.ingest(long_csv(900, n_codes=40, seed=1), **SHARES))["dataset_id"]
    elsewhere = evaluated(stand, cohort_id, other)
    assert elsewhere.privacy is None and elsewhere.body["privacy"]["verdict"] is None
    with stand.database.read_scope() as session:
        assert ReportRepository(session).newest(OWNER, cohort_id).job_id == judging.job_id


def test_other_peoples_data_that_may_not_be_attacked_says_nothing_of_a_cohort(postgres_stand: Stand) -> None:
    stand = postgres_stand
    _, cohort_id = cohort_of(stand)
    judging = evaluated(stand, cohort_id)
    theirs = stand.ingest(long_csv(900, n_codes=40, seed=1), **SHARES, may_be_attacked=False)
    elsewhere = evaluated(stand, cohort_id, stand.succeed(theirs)["dataset_id"])
    assert elsewhere.privacy is None
    check(stand, cohort_id)
    with stand.database.read_scope() as session:
        assert ReportRepository(session).newest(OWNER, cohort_id).job_id == judging.job_id


def test_a_second_upload_does_not_allow_what_the_first_forbids(sqlite_stand: Stand) -> None:
    stand = sqlite_stand
    first, cohort_id = cohort_of(stand, may_be_attacked=False)
    again = stand.succeed(stand.ingest(DATA, **SHARES))["dataset_id"]
    for removed in (False, True):
        if removed:
            with stand.database.session_scope() as session:
                DatasetRepository(session).delete(OWNER, first)
        report = evaluated(stand, cohort_id, again)
        assert report.body["own_data"] and report.body["privacy"]["metrics"] == {}


def test_a_withheld_cohort_cannot_be_had_in_pieces_nor_with_another_seed(postgres_stand: Stand) -> None:
    """The first records of a larger cohort are those of a smaller one that was asked for in the same way."""
    stand = postgres_stand
    dataset_id, cohort_id = cohort_of(stand)
    with stand.database.read_scope() as session:
        model_id = CohortRepository(session).get(OWNER, cohort_id).model_id
    piece, other = (
        stand.succeed(stand.generate(model_id, n=200, evaluate=False, seed=seed))["cohort_id"] for seed in (0, 1)
    )
    for each in (piece, other):
        check(stand, each)
    replace_by_copies(stand, dataset_id, cohort_id)
    evaluated(stand, cohort_id)
    for each in (piece, other):
        with pytest.raises(WithheldError, match=f"{cohort_id}, which asked for the same people"):
            check(stand, each)
    with stand.database.session_scope() as session:
        CohortRepository(session).delete(OWNER, cohort_id)
    with pytest.raises(WithheldError, match=cohort_id):
        check(stand, piece)
    with stand.database.session_scope() as session:
        WithholdingRepository(session).release(OWNER, piece, "looked at by hand", None)
    check(stand, piece)
    with pytest.raises(WithheldError):
        check(stand, other)
