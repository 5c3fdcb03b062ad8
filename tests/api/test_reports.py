"""Reports over HTTP: JSON and page, on demand, and cohorts that a report withholds."""

import html
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from app.pages import report_page
from ehr.errors import ConflictError
from ehr.report_schema import schema_text
from ehr.reports import FAMILIES, Figure, PrevalencePoint, Report
from model_store import tables
from model_store.ids import JOB, new_id
from model_store.repositories import AuditRepository, JobRepository, WithholdingRepository
from tests.api.front import Caller, Front
from tests.api.test_problems import assert_problem
from tests.reporting import small_report

SCHEMA = Path(__file__).parents[2] / "docs" / "report.schema.json"
PARTS = [[[0, 2], [1]]]


def body(**changes: Any) -> dict[str, Any]:
    return small_report().model_dump(mode="json") | changes


def evaluated(front: Front, caller: Caller, cohort: str, state: str = "queued") -> str:
    """The cohort's generate job asked for an evaluation, which is in that state."""
    evaluation = caller.job("evaluate", cohort_job_id=cohort)
    with front.services.database.session_scope() as session:
        jobs = JobRepository(session)
        jobs.get(caller.owner, cohort).result = {"cohort_id": cohort, "evaluate_job_id": evaluation}
        jobs.get(caller.owner, evaluation).state = state
    return evaluation


# --- looking ---


def test_the_published_schema_is_that_of_the_code() -> None:
    assert SCHEMA.read_text(encoding="utf-8") == schema_text(), "python -m ehr.report_schema > docs/report.schema.json"


def test_json_follows_the_published_schema(caller: Caller) -> None:
    cohort = caller.cohort(PARTS)
    report = caller.report(body(), cohort)
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    assert caller.http.get("/reports/schema.json").json() == schema
    for job_id in (cohort, report):
        served = caller.http.get(f"/reports/{job_id}").json()
        jsonschema.validate(served, schema, cls=jsonschema.Draft202012Validator)
        assert served == body()
    assert_problem(caller.http.get("/reports/job_" + "0" * 32), 404, "not-found")


def test_the_page_is_self_contained_and_holds_the_figures_of_the_json(caller: Caller) -> None:
    cohort = caller.cohort(PARTS)
    caller.report(body(), cohort)
    browser = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
    for page in (caller.http.get(f"/reports/{cohort}", headers=browser), caller.http.get(f"/reports/{cohort}.html")):
        assert page.headers["content-type"].startswith("text/html")
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert "<script" not in page.text and len(page.content) < 2_000_000
        assert not re.findall(r"(?:src|href|url)\s*[=(]|http", page.text)
    figures = re.findall(r'<data data-path="([^"]+)" value="([^"]+)">', page.text)
    assert len(figures) > 100
    for path, value in figures:
        assert at(body(), html.unescape(path)) == float(value)


def at(tree: Any, path: str) -> Any:
    """The value at a path; names may themselves contain dots."""
    if path == "":
        return tree
    if isinstance(tree, list):
        first, _, rest = path.partition(".")
        return at(tree[int(first)], rest)
    names = [name for name in tree if path == name or path.startswith(f"{name}.")]
    return at(tree[max(names, key=len)], path[len(max(names, key=len)) + 1 :])


def test_text_of_a_report_cannot_become_markup() -> None:
    evil = "<script>alert(1)</script><img src=x onerror=y>"
    report = small_report(conditioned=True)
    rows = [row.model_copy(update={"code": evil, "description": evil}) for row in report.drill_down.most_off]
    bars = [bar.model_copy(update={"code": evil, "description": evil}) for bar in report.pictures.guided]
    points = [point.model_copy(update={"code": evil}) for point in report.pictures.prevalence]
    spoilt = report.model_copy(
        update={
            "cohort_id": evil,
            "verdict": report.verdict.model_copy(update={"reason": evil, "advice": evil}),
            "drill_down": report.drill_down.model_copy(update={"most_off": rows}),
            "pictures": report.pictures.model_copy(update={"guided": bars, "prevalence": points}),
        }
    )
    page = report_page(spoilt)
    assert "<script" not in page and "<img" not in page and "&lt;script&gt;" in page


def with_metric(report: Report, family: str, **changes: Any) -> Report:
    """The report with one more metric in that family, a copy of its first one but for the changes."""
    metrics = getattr(report, family).metrics
    added = next(iter(metrics.values())).model_copy(update={"name": "brand_new", **changes})
    grown = getattr(report, family).model_copy(update={"metrics": metrics | {"brand_new": added}})
    return report.model_copy(update={family: grown})


@pytest.mark.parametrize("family", [family.name for family in FAMILIES])
def test_a_metric_that_the_page_does_not_know_is_on_it(family: str) -> None:
    """By its title if it has one, else by its name; with whichever of the family's figures it has."""
    report = small_report(conditioned=family in ("conditional", "slice_privacy"))
    if family == "time":  # of patients over time, whose metrics have a form of their own nowhere
        report = report.model_copy(update={"time": report.fidelity})
    for title, shown in (("A <new> thing", "A &lt;new&gt; thing"), ("", "brand_new")):
        page = report_page(with_metric(report, family, title=title, label=None))
        assert f'<th scope="row">{shown}<small>' in page
        assert f'<data data-path="{family}.metrics.brand_new.figures.' in page
    figure = {"attack" if "privacy" in family else "value": Figure(value=0.125, low=0.1, high=0.15)}
    page = report_page(with_metric(report, family, figures=figure, variants={}, facts={"odd": 3.0}))
    assert f'metrics.brand_new.figures.{next(iter(figure))}.value" value="0.125">' in page
    assert f'odd: <data data-path="{family}.metrics.brand_new.facts.odd" value="3.0">3</data>' in page


def test_the_page_calls_a_metric_by_its_own_title() -> None:
    """In tables, pictures and remarks alike."""
    body = small_report().model_dump(mode="json")
    metrics = [metric for family in ("fidelity", "utility", "privacy") for metric in body[family]["metrics"].values()]
    for metric in metrics:
        metric["title"] = ""  # as in reports that were made before metrics had one
    untitled = report_page(Report.model_validate(body))
    for metric in metrics:
        metric["title"] = f"Title of {metric['name']}"
    page = report_page(Report.model_validate(body))
    assert metrics and all(metric["title"] in page for metric in metrics)
    assert '<th scope="row">mia_tpr_at_fpr' in untitled and '<th scope="row">mia_tpr_at_fpr' not in page
    assert '<text class="name" x="8" y="14">Title of mir</text>' in page


def test_codes_of_a_report_stand_beside_their_names() -> None:
    report = small_report(conditioned=True)
    assert report.names["ICD10CM:E11"] == "Type 2 diabetes mellitus"
    page = report_page(report)
    assert "<dd>ICD10CM:E11 (Type 2 diabetes mellitus)</dd>" in page  # what was asked for
    assert "<title>SEX:F (Female)</title>" in page  # a dot
    assert '<th scope="row">ICD10CM:E11 (Type 2 diabetes mellitus)<small>real' in page  # what is predicted
    early = report.model_dump(mode="json", exclude={"names"})
    assert "<dd>ICD10CM:E11</dd>" in report_page(Report.model_validate(early))


def test_a_report_of_an_earlier_version_says_what_to_do(caller: Caller) -> None:
    cohort = caller.cohort(PARTS)
    caller.report({"fidelity": {}}, cohort, version=1)
    answer = caller.http.get(f"/reports/{cohort}")
    assert_problem(answer, 409, "conflict")
    assert "evaluate the cohort again" in answer.json()["detail"]


def test_a_report_with_nothing_measured_is_still_a_page() -> None:
    empty = {"metrics": {}, "verdict": None, "absent": "nothing"}
    report = small_report()
    families = {name: family.model_copy(update=empty) for name, family in report.families.items()}
    bare = Report.model_validate(
        report.model_copy(update={**families, "pictures": type(report.pictures)(), "augmentation": []}).model_dump()
    )
    assert "Not measured: nothing." in report_page(bare)


@pytest.mark.parametrize("codes", [4_000, 20_000])
def test_the_page_stays_small_however_many_codes_there_are(codes: int) -> None:
    report = small_report()
    shares = [(i + 1) / codes for i in range(codes)]
    points = [
        PrevalencePoint(code=f"ICD10CM:X{i:05}", real=share, synthetic=share, rare=share < 0.5)
        for i, share in enumerate(shares)
    ]
    names = {point.code: f"{point.code} is called " + "so " * 50 for point in points}
    shown = {"pictures": report.pictures.model_copy(update={"prevalence": points}), "names": names}
    page = report_page(report.model_copy(update=shown))
    assert f"ICD10CM:X{codes - 1:05} (ICD10CM:X{codes - 1:05} is called so" in page
    assert len(page.encode()) < 2_000_000
    assert f"one of {codes:,} codes" in page
    assert ("4,000 of them are drawn, evenly from common to rare" in page) is (codes > 4_000)


def test_a_report_without_numbers_of_augmentation_is_still_a_page() -> None:
    """Reports of this version were written before they were told."""
    body = small_report(conditioned=True).model_dump(mode="json")
    body["augmentation"] = [{"label": each["label"], "arms": each["arms"]} for each in body["augmentation"]]
    page = report_page(Report.model_validate(body))
    assert "Adding records" in page and "real_records" not in page


# --- on demand ---


def test_evaluating_a_cohort_on_demand(front: Front, caller: Caller, stranger: Caller) -> None:
    cohort, dataset = caller.cohort(PARTS), caller.dataset()
    request = {"cohort_id": cohort, "dataset_id": dataset, "labels": ["ICD10CM:E1*"], "seed": 3}
    answer = caller.http.post("/reports", json=request, headers={"Idempotency-Key": "once"})
    assert answer.status_code == 202 and answer.headers["location"] == f"/jobs/{answer.json()['id']}"
    job = answer.json()
    assert job["kind"] == "evaluate"
    assert job["request"] == {"cohort_job_id": cohort, "dataset_id": dataset, "labels": ["ICD10CM:E1*"], "seed": 3}
    again = caller.http.post("/reports", json=request, headers={"Idempotency-Key": "once"})
    assert again.json()["id"] == job["id"] and again.headers["idempotent-replayed"] == "true"
    wrong = caller.http.post("/reports", json=request | {"labels": ["ICD10CM:E12"]})
    assert_problem(wrong, 422, "unknown-code")
    assert_problem(caller.http.post("/reports", json=request | {"dataset_id": "ds_" + "0" * 32}), 404, "not-found")
    assert_problem(caller.http.post("/reports", json={"cohort_id": cohort}), 409, "conflict")  # its data is gone
    assert_problem(stranger.http.post("/reports", json=request), 404, "not-found")
    with caller.client() as client:
        assert client.evaluate(cohort, dataset_id=dataset)["kind"] == "evaluate"


# --- withheld ---

WHY = "The cohort contains copies of training records."


def download(caller: Caller, cohort: str) -> Any:
    return caller.http.get(f"/cohorts/{cohort}/records")


def test_a_report_that_fails_withholds_its_cohort_until_an_admin_releases_it(front: Front, caller: Caller) -> None:
    cohort = caller.cohort(PARTS)
    assert download(caller, cohort).status_code == 200
    report = caller.report(body(), cohort, privacy="fail", withholds=WHY)
    answer = download(caller, cohort)
    assert_problem(answer, 409, "withheld")
    assert WHY in answer.json()["detail"] and report in answer.json()["detail"]
    assert caller.http.get(f"/reports/{cohort}").status_code == 200  # the reason can be read
    caller.report(body(), cohort, privacy="good")
    assert_problem(download(caller, cohort), 409, "withheld")  # one good report does not undo a bad one

    maker = front.as_owner(caller.owner, "generate", "read")
    refused = maker.http.post(f"/cohorts/{cohort}/release", json={"reason": "please"})
    assert_problem(refused, 403, "forbidden")
    assert_problem(caller.http.post(f"/cohorts/{cohort}/release"), 422, "invalid-request")
    assert_problem(caller.http.post(f"/cohorts/{cohort}/release", json={"reason": ""}), 422, "invalid-request")
    with caller.client() as client:
        released = client.release(cohort, "for a closed room")
    assert released["cohort_id"] == cohort and released["reason"] == "for a closed room"
    assert caller.http.post(f"/cohorts/{cohort}/release", json={"reason": "again"}).json() == released
    assert download(maker, cohort).status_code == 200
    with front.services.database.read_scope() as session:
        rows = [row for row in AuditRepository(session).newest(caller.owner) if row.action == "release cohort"]
    assert rows[-1].target == cohort and rows[-1].detail == {"reason": "for a closed room"}
    assert rows[-1].key_prefix == caller.key[:12]

    caller.report(body(), cohort, privacy="fail", withholds="Worse.")
    assert_problem(download(caller, cohort), 409, "withheld")


def test_parts_are_withheld_with_their_cohort(caller: Caller) -> None:
    """Nor do parts of a cohort that is still being made leave before it is evaluated, if it is to be."""
    cohort = caller.cohort(PARTS)
    with caller.front.services.database.session_scope() as session:
        for state, evaluate in (("running", True), ("running", False), ("failed", True), ("succeeded", True)):
            job = session.get(tables.Job, cohort)
            assert job is not None
            job.state, job.payload = state, job.payload | {"evaluate": evaluate}
            if state == "succeeded":
                session.add(withholding_report(caller, cohort))
                session.flush()
            check = WithholdingRepository(session).check_part
            if evaluate:
                with pytest.raises(ConflictError, match="withheld" if state == "succeeded" else "evaluate=false"):
                    check(caller.owner, job)
            else:
                check(caller.owner, job)


def withholding_report(caller: Caller, cohort: str) -> tables.ReportRow:
    values = {"cohort_job_id": cohort, "owner": caller.owner, "version": 2, "body": body()}
    return tables.ReportRow(job_id=new_id(JOB), **values, privacy="fail", withholds=WHY)


def test_what_is_not_withheld_cannot_be_released(caller: Caller, stranger: Caller) -> None:
    cohort = caller.cohort(PARTS)
    assert_problem(caller.http.post(f"/cohorts/{cohort}/release", json={"reason": "why not"}), 409, "conflict")
    assert_problem(stranger.http.post(f"/cohorts/{cohort}/release", json={"reason": "mine"}), 404, "not-found")


def test_a_cohort_does_not_leave_before_its_evaluation_has_ended(front: Front, caller: Caller) -> None:
    cohort = caller.cohort(PARTS)
    evaluation = evaluated(front, caller, cohort)
    answer = download(caller, cohort)
    assert_problem(answer, 409, "not-evaluated")
    assert evaluation in answer.json()["detail"]
    caller.report(body(), cohort, privacy=None)  # a report on other data says nothing about privacy
    assert_problem(download(caller, cohort), 409, "not-evaluated")
    caller.report(body(), cohort, privacy="caution")
    assert download(caller, cohort).status_code == 200


def test_an_evaluation_that_failed_or_was_cancelled_withholds(front: Front, caller: Caller) -> None:
    for state in ("failed", "cancelled"):
        cohort = caller.cohort(PARTS)
        evaluated(front, caller, cohort, state)
        assert_problem(download(caller, cohort), 409, "withheld")
        with caller.client() as client:
            client.release(cohort, "evaluated by hand")
        assert download(caller, cohort).status_code == 200
