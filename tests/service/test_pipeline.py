"""The whole way with real workers: upload, train, generate, evaluate."""

from ehr.audits import ModelAudit
from ehr.conditions import AskedCondition, AskedTarget
from ehr.formats.write.arrow_rows import row_batches
from ehr.formats.write.lab_values import LabValues
from ehr.reports import Report as ReportBody
from model_store.bundles import load_bundle
from model_store.cohorts import cohort_source, iter_blocks
from model_store.ids import DATASET, new_id
from model_store.manifests import CohortManifest
from model_store.repositories import CohortRepository, DatasetRepository, ModelRepository, ReportRepository
from tests.service.servers import wait_until
from tests.service.stand import OWNER, Stand, long_csv


def test_from_upload_to_report(shared_stand: Stand) -> None:
    stand = shared_stand
    ingestion = stand.ingest(long_csv(600))
    dataset_id = stand.succeed(ingestion)["dataset_id"]
    with stand.database.read_scope() as session:
        dataset = DatasetRepository(session).get(OWNER, dataset_id)
    assert dataset.summary["records"] == 600 and dataset.summary["patients"] == 300
    wait_until(lambda: stand.uploads_of(ingestion) == [], "removal of the upload")  # patients' data is not kept twice

    training = stand.train(dataset_id)
    trained = stand.succeed(training)
    model_id = trained["model_id"]
    assert trained["preset"] == "auto" and trained["predicted_seconds"] > 0 and trained["actual_seconds"] > 0
    progress = stand.job(training).progress
    assert progress["predicted_seconds"] == trained["predicted_seconds"]
    with stand.database.read_scope() as session:
        model = ModelRepository(session).get(OWNER, model_id)
    bundle = load_bundle(stand.store, model.prefix, model.manifest_hash)
    assert bundle.vocabulary.codes[0] == "ICD9DX:000"
    drawn = next(step for step in progress["steps"] if step["name"] == "draw")  # as many as there was time for
    assert drawn["value"] == drawn["maximum"] == model.details["reference"]["records"] > 0
    audit = ModelAudit.of(model.details)
    assert audit is not None and audit == ModelAudit.model_validate(bundle.manifest.audit)
    assert {attack.name for attack in audit.attacks} == {"oracle", "mask_loss", "density_ratio", "reconstruction"}
    wait_until(lambda: stand.blobs(f"checkpoints/{training}") == [], "removal of checkpoints")

    result = stand.succeed(stand.generate(model_id, n=2500, seed=5))
    with stand.database.read_scope() as session:
        cohort = CohortRepository(session).get(OWNER, result["cohort_id"])
    manifest = CohortManifest.read(stand.store, cohort.prefix, cohort.manifest_hash)
    assert [part.n_records for part in manifest.parts] == [1024, 1024, 452]
    assert sum(len(block.records) for block in iter_blocks(stand.store, manifest)) == 2500
    source = cohort_source(stand.store, manifest)
    rows = list(row_batches(source, LabValues(source)))
    assert rows[0].schema.names == ["record_id", "code"]

    stand.succeed(result["evaluate_job_id"])
    with stand.database.read_scope() as session:
        report = ReportRepository(session).newest(OWNER, result["cohort_id"])
    told = ReportBody.model_validate(report.body)
    assert told.sampling == "dealt"
    assert report.version == told.version == 2 and told.job_id == result["evaluate_job_id"]
    assert (told.fidelity.metrics["cmd"].figures["value"].value or 0) > 0
    assert (told.fidelity.metrics["held_out_elbo"].figures["value"].value or 0) > 0
    assert set(told.privacy.metrics) == {"mir", "mia_tpr_at_fpr", "air", "dcr", "nndr", "exact_matches"}
    assert report.privacy is not None and told.audit == audit


def test_a_conditioned_cohort_reports_how_often_the_condition_is_met(sqlite_stand: Stand) -> None:
    stand = sqlite_stand
    dataset_id = stand.succeed(stand.ingest(long_csv(600)))["dataset_id"]
    settings = {"generator": "independent", "settings": {}}
    model_id = stand.succeed(stand.train(dataset_id, **settings))["model_id"]
    conditions = AskedCondition(all_of=["ICD9DX:001", "ICD9DX:00*"], none_of=["ICD9DX:002"])
    result = stand.succeed(stand.generate(model_id, n=300, conditions=conditions, method="exact"))
    stand.succeed(result["evaluate_job_id"])
    with stand.database.read_scope() as session:
        report = ReportRepository(session).newest(OWNER, result["evaluate_job_id"])
    told = ReportBody.model_validate(report.body)
    assert told.conditional is not None and told.condition is not None
    assert told.conditional.metrics["attainment"].figures["value"].value == 1
    assert told.condition.support_in_training is not None and told.condition.support_in_training > 10
    assert told.fidelity.absent is not None and "fewer than 200" in told.fidelity.absent  # and the report says so


def test_targets_are_met_and_the_manifest_tells_how(postgres_stand: Stand) -> None:
    stand = postgres_stand
    dataset_id = stand.succeed(stand.ingest(long_csv(300)))["dataset_id"]
    model_id = stand.succeed(stand.train(dataset_id, epochs=1))["model_id"]
    wanted = {
        "conditions": AskedCondition(all_of=["ICD9DX:004"]),
        "targets": [AskedTarget(codes=["ICD9DX:001", "ICD9DX:010"], share=0.3)],
        "warnings": ["to be remembered"],
    }
    result = stand.succeed(stand.generate(model_id, n=1500, **wanted))
    stand.succeed(result["evaluate_job_id"])
    with stand.database.read_scope() as session:
        cohort = CohortRepository(session).get(OWNER, result["cohort_id"])
        (told,) = ReportRepository(session).newest(OWNER, result["cohort_id"]).body["targets"]
    assert told["asked"] == 0.3 and abs(told["attained"] - 0.3) < 0.001
    assert cohort.manifest["resolved"] == {"method": "exact", "steps": 16, "sampling": "dealt"}
    assert cohort.manifest["warnings"] == ["to be remembered"]
    assert cohort.manifest["request"]["targets"] == [{"codes": ["ICD9DX:001", "ICD9DX:010"], "share": 0.3}]
    manifest = CohortManifest.read(stand.store, cohort.prefix, cohort.manifest_hash)
    having = {"ICD9DX:004": 0, "target": 0}
    for records in (block.records for block in iter_blocks(stand.store, manifest)):
        for i in range(len(records)):
            codes = {manifest.vocabulary[c] for c in records.indices[records.indptr[i] : records.indptr[i + 1]]}
            having["ICD9DX:004"] += "ICD9DX:004" in codes
            having["target"] += bool(codes & {"ICD9DX:001", "ICD9DX:010"})
    assert having["ICD9DX:004"] == 1500 and abs(having["target"] - 450) <= 1


def test_requests_that_cannot_be_met_fail_with_a_reason(sqlite_stand: Stand) -> None:
    stand = sqlite_stand
    dataset_id = stand.succeed(stand.ingest(long_csv(200)))["dataset_id"]
    model_id = stand.succeed(stand.train(dataset_id, generator="independent", settings={}))["model_id"]
    for job_id, reason, words in (
        (stand.train(dataset_id, settings={"nonsense": 1}), "bad-request", "nonsense"),
        (stand.train(dataset_id, generator="oracle"), "bad-request", "known: d3pm"),
        (stand.train(new_id(DATASET)), "not-found", "no dataset"),
        (stand.generate(model_id, conditions=AskedCondition(all_of=["ICD9DX:0001"])), "unknown-code", "did you mean"),
        (stand.generate(model_id, conditions=AskedCondition(all_of=["*"]), method="langevin"), "bad-request", "exact"),
    ):
        job = stand.wait(job_id)
        assert job.state == "failed"
        assert job.error is not None and job.error["type"] == reason
        assert words in job.error["detail"]


def test_a_flipped_byte_in_a_stored_bundle_fails_the_job(postgres_stand: Stand) -> None:
    stand = postgres_stand
    dataset_id = stand.succeed(stand.ingest(long_csv(200)))["dataset_id"]
    model_id = stand.succeed(stand.train(dataset_id, generator="independent", settings={}))["model_id"]
    (blob,) = (name for name in stand.blobs(f"models/{model_id}") if name.endswith("weights.safetensors"))
    weights = bytearray(stand.store.read(blob))
    weights[-1] ^= 1
    stand.store.delete(blob)
    stand.store.write(blob, bytes(weights))
    job = stand.wait(stand.generate(model_id))
    assert job.state == "failed"
    assert job.error is not None and job.error["type"] == "corrupt"
    assert stand.blobs(f"cohorts/{job.id}") == []
