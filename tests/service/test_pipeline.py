"""The whole way with real workers: upload, train, generate, evaluate."""

from model_store.bundles import load_bundle
from model_store.cohorts import iter_blocks, iter_tables, load_cohort_manifest
from model_store.repositories import CohortRepository, DatasetRepository, ModelRepository, ReportRepository
from tests.service.stand import OWNER, Stand, long_csv


def test_from_upload_to_report(shared_stand: Stand) -> None:
    stand = shared_stand
    dataset_id = stand.succeed(stand.ingest(long_csv(600)))["dataset_id"]
    with stand.database.read_scope() as session:
        dataset = DatasetRepository(session).get(OWNER, dataset_id)
    assert dataset.summary["records"] == 600 and dataset.summary["patients"] == 300
    assert stand.blobs("uploads") == []  # patients' data is not kept twice

    model_id = stand.succeed(stand.train(dataset_id))["model_id"]
    with stand.database.read_scope() as session:
        model = ModelRepository(session).get(OWNER, model_id)
    bundle = load_bundle(stand.store, model.prefix, model.manifest_hash)
    assert bundle.vocabulary.codes[0] == "ICD9DX:000"
    assert stand.blobs("checkpoints") == []

    result = stand.succeed(stand.generate(model_id, n=2500, seed=5))
    with stand.database.read_scope() as session:
        cohort = CohortRepository(session).get(OWNER, result["cohort_id"])
    manifest = load_cohort_manifest(stand.store, cohort.prefix, cohort.manifest_hash)
    assert [part["n_records"] for part in manifest["parts"]] == [1024, 1024, 452]
    assert sum(len(block) for block in iter_blocks(stand.store, manifest)) == 2500
    rows = list(iter_tables(stand.store, manifest))
    assert rows[0].schema.names == ["record_id", "code"]

    stand.succeed(result["evaluate_job_id"])
    with stand.database.read_scope() as session:
        report = ReportRepository(session).newest(OWNER, result["cohort_id"])
    assert report.version == 1
    assert report.body["fidelity"]["cmd"]["value"]["value"] > 0
