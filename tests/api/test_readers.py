"""Who may learn what: keys without the scope `data` get nothing that was computed from real records."""

import hashlib
import io
import json
import re
import zipfile
from typing import Any

import httpx
import jsonschema
import pytest

from ehr.canonical_json import to_json
from ehr.report_schema import report_schema
from ehr.reports import Report, Verdict
from ehr.shareable import CohortDescription, ModelReport, ShareableReport
from model_store.manifests import CohortManifest
from model_store.repositories import JobRepository, ModelRepository
from model_store.tables import Cohort, Dataset, Job, JobEvent
from tests.api.front import DATA_HASH, GOOD, Caller, Front
from tests.api.test_problems import assert_problem
from tests.reporting import small_description, small_report

AUDIT = {"verdict": GOOD.model_dump(), "rare_conditions": GOOD.model_dump(), "seconds": 717171.5}
# Every number below that was computed from real records is one; digits inside a random id are not.
SECRET = re.compile(r"(?<![0-9a-f.])7171\d\d(?![0-9a-f])|abad1dea")  # after a dot it is part of a second


@pytest.fixture
def analyst(front: Front, caller: Caller) -> Caller:
    """Generates and reads what belongs to the same owner."""
    return front.as_owner(caller.owner, "generate", "read")


def changed(caller: Caller, table: type[Dataset] | type[Job], row_id: str, **values: Any) -> None:
    with caller.front.services.database.session_scope() as session:
        row = session.get(table, row_id)
        for name, value in values.items():
            setattr(row, name, value)


def secrets_of(caller: Caller) -> dict[str, str]:
    """Things whose every figure of real records is a secret, by what paths call their ids."""
    dataset = caller.dataset()
    summary = {"codes": 6, "records": 717101, "splits": {"train": 717102}, "groups": [{"n_codes": 717103}]}
    changed(caller, Dataset, dataset, summary=summary, data_hash=DATA_HASH)
    curve = [{"train": 717104.5, "held_out": 717105.5}]
    said = ModelReport(report_id="job_" + "0" * 32, records=10, families={"fidelity": GOOD})
    known = {"curve": curve, "data_hash": DATA_HASH, "audit": AUDIT, "report": said.model_dump(mode="json")}
    known["seed"] = 717113
    model = caller.model(dataset_id=dataset, more=known)
    cohort = caller.cohort([[[0, 2], [1]]], model_id=model)
    body = json.loads(json.dumps(small_report().model_dump(mode="json")).replace('"value": 0.', '"value": 717106.'))
    caller.report(body, cohort)
    ingest, train = caller.job("ingest", dataset_id=dataset, files=[]), caller.job("train", model_id=model, seed=717113)
    evaluate = caller.job("evaluate", cohort_job_id=cohort)
    steps = [{"name": "train", "value": 717107, "maximum": 717108, "unit": "batches"}]
    progress = {"step": "train", "steps": steps, "loss": 717109.5, "remaining_seconds": 1.0}
    for job, result in ((ingest, {"dataset_id": dataset, "summary": summary}), (train, {"model_id": model})):
        changed(caller, Job, job, state="succeeded", progress=progress, result=result | {"preset_reason": "717110"})
    changed(caller, Job, evaluate, state="succeeded", progress=progress, result={"verdict": "717111"})
    with caller.front.services.database.session_scope() as session:
        for job in (ingest, train, evaluate):
            session.add(JobEvent(job_id=job, kind="progress", data=progress))
            JobRepository(session).record_state(job, "succeeded", error={"type": "x", "detail": "717112"})
    changed(caller, Job, cohort, state="succeeded")
    with caller.front.services.database.session_scope() as session:
        JobRepository(session).record_state(cohort, "succeeded")
    jobs = {"cohort": cohort, "ingest": ingest, "train": train, "evaluate": evaluate}
    return jobs | {"dataset_id": dataset, "model_id": model} | caller.webhook()


def unpacked(answer: httpx.Response) -> str:
    """All text there is, that of zipped files too."""
    if not answer.content.startswith(b"PK"):
        return answer.text
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        return "".join(archive.read(name).decode("utf-8", "replace") for name in archive.namelist())


def test_no_route_tells_an_analyst_what_was_computed_from_real_records(
    front: Front, caller: Caller, analyst: Caller
) -> None:
    """Walks the OpenAPI document, so that a new route cannot be forgotten; custodians see that there is something."""
    ids = secrets_of(caller)
    told = dict.fromkeys(("custodian", "analyst"), 0)
    for path in (path for path, methods in front.app.openapi()["paths"].items() if "get" in methods):
        jobs = [ids[kind] for kind in ("cohort", "ingest", "train", "evaluate")] if "{job_id}" in path else [""]
        for job in jobs:
            url = path.format(**ids, job_id=job, number=0, format="long.csv")
            query = {"format": "omop.zip"} if path.endswith("/records") else {}
            seen = analyst.http.get(url, params=query)
            assert seen.status_code != 500
            assert not SECRET.findall(unpacked(seen)), (url, SECRET.findall(unpacked(seen)))
            told["analyst"] += seen.status_code == 200
            told["custodian"] += bool(SECRET.search(unpacked(caller.http.get(url, params=query))))
    assert told["custodian"] >= 9 and told["analyst"] >= 15


def test_a_hash_that_covers_the_hash_of_the_data_is_custodians_alone(caller: Caller, analyst: Caller) -> None:
    """All else in a cohort's manifest is shown: who knows all patients but one could try out what that one has."""
    model = caller.model()
    cohort = caller.cohort([[[0, 2], [1]]], model_id=model)
    with caller.front.services.database.read_scope() as session:
        row = session.get_one(Cohort, cohort)
        known = CohortManifest.read(caller.front.services.store, row.prefix, row.manifest_hash)
    guessed = known.model_copy(update={"model": known.model.model_copy(update={"data_hash": DATA_HASH})})
    assert hashlib.sha256(to_json(guessed.stored())).hexdigest() == row.manifest_hash  # how a guess is tried out
    for path in (f"/cohorts/{cohort}", "/cohorts", f"/cohorts/{cohort}/parts", f"/models/{model}", "/models"):
        theirs, ours = (each.http.get(path).json() for each in (caller, analyst))
        hashes = [_hashes(body.get("items", [body])) for body in (theirs, ours)]
        assert hashes[1] == [], path
        assert hashes[0] or path.endswith("/parts"), path


def _hashes(items: list[dict[str, Any]]) -> list[str]:
    """Of manifests, anywhere in the items."""
    inside = [item.get("manifest", {}).get("model", {}) for item in items]
    return [each["manifest_hash"] for each in [*items, *inside] if each.get("manifest_hash") is not None]


def test_jobs_that_measure_real_records_are_custodians_alone(caller: Caller, analyst: Caller) -> None:
    """How long one takes depends on them: on how many patients satisfy a condition, for example."""
    ids = secrets_of(caller)
    kinds = {job["kind"] for job in analyst.http.get("/jobs").json()["items"]}
    assert kinds == {"train", "generate"}
    assert {job["kind"] for job in caller.http.get("/jobs").json()["items"]} == kinds | {"ingest", "evaluate"}
    assert analyst.http.get("/jobs", params={"kind": "evaluate"}).json()["items"] == []
    for job in ("ingest", "evaluate"):
        for path in ("", "/events"):
            assert_problem(analyst.http.get(f"/jobs/{ids[job]}{path}"), 403, "forbidden")
    progress = analyst.http.get(f"/jobs/{ids['train']}").json()["progress"]
    assert [(step["value"], step["maximum"]) for step in progress["steps"]] == [(1.0, 1)] and progress["details"] == {}
    assert_problem(analyst.http.post("/reports", json={"cohort_id": ids["cohort"]}), 403, "forbidden")


def test_budgets_tell_of_no_job_that_measures_real_records(caller: Caller, analyst: Caller) -> None:
    """When one that waits begins, the one before it has ended."""

    def waiting(whose: Caller) -> int:
        return int(whose.http.get("/budgets").json()["queued_jobs"]["used"])

    before = [waiting(whose) for whose in (caller, analyst)]
    for kind in ("ingest", "evaluate", "train", "generate"):
        payload = {"files": []} if kind == "ingest" else {"n": 1} if kind == "generate" else {}
        caller.job(kind, **payload)
    assert [waiting(caller) - before[0], waiting(analyst) - before[1]] == [4, 2]


def test_codes_are_known_to_everyone_and_their_counts_to_custodians(caller: Caller, analyst: Caller) -> None:
    path = f"/datasets/{caller.dataset()}/codes"
    counted, named = (each.http.get(path).json()["items"] for each in (caller, analyst))
    assert [code["code"] for code in counted] == [code["code"] for code in named]
    assert any(code["records"] for code in counted) and {code["records"] for code in named} == {None}


# --- reports ---


def report_of(caller: Caller, cohort: str, **query: str) -> httpx.Response:
    return caller.http.get(f"/reports/{cohort}", params=query)


def test_two_readers_of_one_report(caller: Caller, analyst: Caller) -> None:
    model = caller.model(more={"audit": AUDIT})
    cohort = caller.cohort([[[0]]], model_id=model)
    evaluation = caller.report(small_report().model_dump(mode="json"), cohort)
    theirs, ours = report_of(caller, cohort).json(), report_of(analyst, cohort).json()
    assert (theirs["reader"], ours["reader"]) == ("custodian", "shareable")
    for body in (theirs, ours):
        jsonschema.validate(body, report_schema(), cls=jsonschema.Draft202012Validator)
    assert report_of(caller, cohort, reader="shareable").json() == ours
    assert report_of(analyst, evaluation).json() == ours  # the id of an evaluation leads to its cohort
    assert_problem(report_of(analyst, cohort, reader="custodian"), 403, "forbidden")
    assert "'data'" in ours["left_out"] and ours["verdict"]["level"] == "caution"
    assert ours["model"]["audit"] == GOOD.model_dump() and ours["model"]["families"] == {}
    page = analyst.http.get(f"/reports/{cohort}.html")
    assert ours["left_out"].replace("'", "&#39;") in page.text and "Privacy of the model" in page.text
    assert "reader=shareable" in caller.http.get(f"/reports/{cohort}.html").text


def test_what_is_no_field_of_the_shareable_report_does_not_leave() -> None:
    """It is made of the description, which is given no real record, and of the model's verdicts."""
    own = {"reader", "verdict", "model", "left_out"}
    assert set(ShareableReport.model_fields) == set(CohortDescription.model_fields) | own
    whole = small_report(conditioned=True).model_dump(mode="json")
    described = small_description(conditioned=True)
    shared = {name for name in whole if name in described.model_dump()} - {"version"}
    assert shared == {
        "cohort_id",
        "model_id",
        "dataset_id",
        "records",
        "codes",
        "condition",
        "targets",
        "names",
        "sampling",
    }
    with pytest.raises(ValueError, match="fidelity"):
        CohortDescription.model_validate(described.model_dump() | {"fidelity": whole["fidelity"]})
    assert set(described.synthetic.metrics) == {"attainment", "ess"}
    roles = {role for metric in described.synthetic.metrics.values() for role in metric.figures}
    assert roles == {"value"}
    assert "support_in_training" in Report.model_validate(whole).condition.model_dump()  # type: ignore[union-attr]
    assert described.condition is not None and "support_in_training" not in described.condition.model_dump()


def test_the_verdicts_of_a_shareable_report_are_the_models(caller: Caller, analyst: Caller) -> None:
    """Not those of any report on the cohort, which would answer questions about its condition."""
    unknown = caller.cohort([[[0]]])
    body = report_of(analyst, unknown).json()
    assert (
        body["verdict"]["level"] == "caution"
        and "how faithful its records are is not known" in body["verdict"]["reason"]
    )
    bad = Verdict(level="fail", reason="Codes go together at random.", advice="Train longer.")
    said = ModelReport(report_id="job_" + "7" * 32, records=5000, families={"fidelity": bad, "privacy": GOOD})
    cohort = caller.cohort([[[0]]], model_id=caller.model(more={"report": said.model_dump(mode="json")}))
    before = report_of(analyst, cohort).json()
    assert before["verdict"]["level"] == "fail" and before["verdict"]["reason"].startswith("Fidelity of the model: ")
    assert before["model"]["report_id"] == said.report_id
    caller.report(small_report().model_dump(mode="json"), cohort, privacy="good")
    assert report_of(analyst, cohort).json() == before
    said = said.model_copy(update={"families": {"fidelity": GOOD, "privacy": GOOD}})
    cohort = caller.cohort([[[0]]], model_id=caller.model(more={"report": said.model_dump(mode="json")}))
    assert report_of(analyst, cohort).json()["verdict"]["level"] == "good"


def test_a_report_on_a_withheld_cohort_is_as_withheld_as_its_records(caller: Caller, analyst: Caller) -> None:
    """Its figures are counted from records that may not leave."""
    cohort = caller.cohort([[[0]]])
    assert report_of(analyst, cohort).status_code == 200
    caller.report(small_report().model_dump(mode="json"), cohort, privacy="fail", withholds="There are 717113 copies.")
    refused = report_of(analyst, cohort)
    assert_problem(refused, 409, "withheld")
    assert not SECRET.search(refused.text) and not SECRET.search(analyst.http.get(f"/cohorts/{cohort}/records").text)
    assert SECRET.search(caller.http.get(f"/cohorts/{cohort}/records").text)
    assert report_of(caller, cohort, reader="shareable").status_code == 200


def test_a_cohort_of_an_earlier_version_has_no_description(caller: Caller, analyst: Caller) -> None:
    report = caller.report(small_report().model_dump(mode="json"))
    assert report_of(caller, report).status_code == 200
    assert_problem(report_of(analyst, report), 404, "not-found")


# --- what an analyst's cohorts are judged by ---


def test_the_model_decides_on_cohorts_of_whoever_may_not_have_them_evaluated(caller: Caller, analyst: Caller) -> None:
    failed = {"verdict": GOOD.model_copy(update={"level": "fail"}).model_dump(), "rare_conditions": GOOD.model_dump()}
    holds = ModelReport(report_id="job_" + "7" * 32, records=10, families={}, withholds=True).model_dump(mode="json")
    lets_go = holds | {"withholds": False}
    for details, status in (
        ({}, 409),
        ({"audit": failed}, 409),
        ({"report": holds}, 409),
        ({"audit": AUDIT}, 200),
        ({"report": lets_go}, 200),
        ({"audit": AUDIT, "report": holds}, 409),
        ({"audit": failed, "report": lets_go}, 409),
    ):
        cohort = caller.cohort([[[0]]], model_id=caller.model(more=details), against_real=False)
        assert analyst.http.get(f"/cohorts/{cohort}/records").status_code == status, details
        assert report_of(analyst, cohort).status_code == status
        parts = analyst.http.get(f"/cohorts/{cohort}/parts").json()["parts"]
        assert all((part["bytes"] is None) == (status == 409) for part in parts)
    cohort = caller.cohort([[[0]]], against_real=False)
    caller.report(small_report().model_dump(mode="json"), cohort, privacy="good")  # a custodian has looked at it
    assert analyst.http.get(f"/cohorts/{cohort}/records").status_code == 200


def test_an_analysts_request_causes_no_work_on_real_records(caller: Caller, analyst: Caller) -> None:
    request = {"model_id": caller.model(dataset_id=caller.dataset()), "n": 5}
    for who, is_measured in ((analyst, False), (caller, True)):
        job = who.http.post("/generate", json=request).json()
        with who.front.services.database.read_scope() as session:
            payload = JobRepository(session).get(who.owner, job["id"]).payload
        assert payload.get("against_real", True) is is_measured


def test_who_trains_without_holding_the_data_cannot_move_a_single_patient(front: Front, caller: Caller) -> None:
    """Two models whose holdout differs by one patient would tell what that one has."""
    trainer = front.as_owner(caller.owner, "train", "read")
    request = {"dataset_id": caller.dataset(), "generator": "independent"}
    assert_problem(trainer.http.post("/train", json=request | {"holdout_share": 0.1001}), 403, "forbidden")
    assert trainer.http.post("/train", json=request).status_code == 202
    assert caller.http.post("/train", json=request | {"holdout_share": 0.1001}).status_code == 202


def test_the_largest_cohort_that_custodians_have_had_evaluated_speaks_for_its_model(caller: Caller) -> None:
    model = caller.model()
    for number, records in enumerate((300, 200, 500, 500)):
        said = ModelReport(report_id=f"job_{number:032}", records=records, families={"fidelity": GOOD})
        with caller.front.services.database.session_scope() as session:
            ModelRepository(session).remember_report(caller.owner, model, said)
            ModelRepository(session).remember_report(caller.owner, "mdl_" + "0" * 32, said)  # gone meanwhile
    assert caller.http.get(f"/models/{model}").json()["verdicts"]["report_id"] == f"job_{2:032}"
