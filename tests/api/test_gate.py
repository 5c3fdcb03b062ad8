"""The ways around the gate, over HTTP: each ends in a 409."""

from typing import Any

import pytest

from app.comparison import DATA_GONE, FEW_PATIENTS, FEW_WITH_CONDITION, NOT_EVALUATED, SMALL_COHORT
from ehr.audits import ModelAudit
from ehr.reports import Level, Verdict
from model_store.repositories import CohortRepository
from model_store.tables import Job
from tests.api.front import CODES, Caller, Front
from tests.api.test_problems import assert_problem
from tests.reporting import small_report

E10, E11, E84, D250, D251, D401 = CODES
NOTICES = {FEW_PATIENTS, FEW_WITH_CONDITION, SMALL_COHORT}
WHY = "Whoever has the code can be told from the cohort."
COPIES = Verdict(level="fail", reason="The cohort contains copies of training records.", advice="")


def audit(level: Level, rare: Level = "caution") -> ModelAudit:
    verdicts = (Verdict(level=each, reason=WHY, advice="") for each in (level, rare))
    return ModelAudit(verdict=next(verdicts), rare_conditions=next(verdicts))


def drawn() -> list[list[int]]:
    """Of 1,000 records all have E10, 500 E11, 50 E84, 49 25000 (half of them with 25001, of which 300), one 4019."""
    has = {1: range(500), 2: range(100, 150), 3: range(480, 529), 4: range(500, 800), 5: range(1)}
    return [[0, *(code for code, rows in has.items() if row in rows)] for row in range(1000)]


def model(caller: Caller, **options: Any) -> str:
    """It has learned from as many records as it drew."""
    return caller.model(drawn=drawn(), **options)


def asking(model_id: str, n: int = 100, **request: Any) -> dict[str, Any]:
    return {"model_id": model_id, "n": n, "evaluate": False} | request


def download(caller: Caller, cohort: str) -> Any:
    return caller.http.get(f"/cohorts/{cohort}/records")


def report(caller: Caller, cohort: str, privacy: Level) -> None:
    fails = {"withholds": WHY} if privacy == "fail" else {}
    caller.report(small_report().model_dump(mode="json"), cohort, privacy=privacy, **fails)


FEW: list[dict[str, Any]] = [
    {"conditions": {"all_of": [D250]}},
    {"conditions": {"all_of": [E11, D250]}},
    {"conditions": {"all_of": [E11], "none_of": [E10]}},  # nobody
    {"conditions": {"any_of": [[D250, D401], [D250, E84]]}},
    {"conditions": {"all_of": ["ICD9DX:4*"]}},
    {"conditions": {"all_of": [E84]}, "targets": [{"codes": [E11], "share": 0.5}]},  # nobody has it without E11
    {"targets": [{"codes": [D250], "share": 0.01}]},
    {"targets": [{"codes": [E11], "share": 0.5}, {"codes": [D251], "share": 0.5}]},  # nobody has both
    {"targets": [{"codes": [E10], "share": 0}]},
    {"targets": [{"codes": [D250], "share": 1}]},
]
MANY: list[dict[str, Any]] = [
    {},
    {"conditions": {"all_of": [E84]}},
    {"conditions": {"any_of": [[D250, E84]], "none_of": [D401]}},
    {"conditions": {"none_of": [D250]}},
    {"targets": [{"codes": [E84], "share": 0.9}]},
    {"targets": [{"codes": [D250], "share": 0}, {"codes": [E11], "share": 0.5}]},
]


@pytest.mark.parametrize("request_", FEW)
def test_what_fewer_than_50_patients_would_satisfy_waits_for_a_custodian(
    front: Front, caller: Caller, request_: dict[str, Any]
) -> None:
    asked = asking(model(caller), **request_)
    told = caller.http.post("/generate/estimate", json=asked).json()
    assert "fewer than 50 patients" in told["withheld"] and "custodian" in told["warnings"][0]
    cohort = caller.made(asked)
    report(caller, cohort, "caution")  # too few patients to attack them alone
    problem = assert_problem(download(caller, cohort), 409, "withheld")
    assert "fewer than 50 patients" in str(problem["detail"]) and "scope 'data'" in str(problem["detail"])
    for scopes in (("generate", "read"), ("train", "generate", "read")):
        low = front.as_owner(caller.owner, *scopes)
        assert_problem(low.http.post(f"/cohorts/{cohort}/release", json={"reason": "please"}), 403, "forbidden")
    custodian = front.as_owner(caller.owner, "data")
    assert custodian.http.post(f"/cohorts/{cohort}/release", json={"reason": "looked at"}).status_code == 200
    assert download(caller, cohort).status_code == 200


@pytest.mark.parametrize("request_", MANY)
def test_what_50_patients_would_satisfy_leaves(caller: Caller, request_: dict[str, Any]) -> None:
    asked = asking(model(caller), **request_)
    assert caller.http.post("/generate/estimate", json=asked).json()["withheld"] is None
    assert download(caller, caller.made(asked)).status_code == 200


def test_it_counts_what_the_model_drew_and_not_patients(caller: Caller) -> None:
    """Thousands of patients have 25000, one has E84: the model drew otherwise, and that decides."""
    data = caller.dataset(rows=[[0, 2], *([0, 3] for _ in range(2000))])
    here = model(caller, dataset_id=data)
    assert_problem(download(caller, caller.made(asking(here, conditions={"all_of": [D250]}))), 409, "withheld")
    assert download(caller, caller.made(asking(here, conditions={"all_of": [E84]}))).status_code == 200


def test_a_rare_condition_leaves_with_a_warning_if_the_audit_found_them_safe(caller: Caller) -> None:
    here = model(caller, audit=audit("caution", rare="good"))
    asked = asking(here, conditions={"all_of": [D250]})
    told = caller.http.post("/generate/estimate", json=asked).json()
    assert told["withheld"] is None and "fewer than 50 patients" in told["warnings"][0]
    assert download(caller, caller.made(asked)).status_code == 200


def test_a_model_of_an_earlier_version_withholds_every_condition(caller: Caller) -> None:
    here = caller.model()
    problem = assert_problem(download(caller, caller.made(asking(here, conditions={"all_of": [E10]}))), 409, "withheld")
    assert "train it again" in str(problem["detail"])
    assert download(caller, caller.made(asking(here))).status_code == 200


# --- the model ---

ANYTHING: list[dict[str, Any]] = [{"n": 60}, {"seed": 5}, {"n": 1, "conditions": {"all_of": [E11]}}]


@pytest.mark.parametrize("why", ["audit", "reference cohort"])
def test_a_model_that_failed_withholds_everything_also_when_it_is_gone(caller: Caller, why: str) -> None:
    """A cohort of 60 records with 18 copies is only `caution` by itself; so is every other seed."""
    failed = {"audit": audit("fail")} if why == "audit" else {"verdict": COPIES}
    here = model(caller, **failed)
    cohorts = [caller.made(asking(here, **request)) for request in ANYTHING]
    for cohort in cohorts:
        report(caller, cohort, "caution")
        detail = str(assert_problem(download(caller, cohort), 409, "withheld")["detail"])
        assert "Every cohort of this model" in detail and (WHY if why == "audit" else COPIES.reason) in detail
    assert "every cohort" in caller.http.post("/generate/estimate", json=asking(here)).json()["withheld"]
    assert caller.http.delete(f"/models/{here}").status_code == 204
    for cohort in cohorts:
        assert_problem(download(caller, cohort), 409, "withheld")
    assert caller.http.post(f"/cohorts/{cohorts[0]}/release", json={"reason": "looked at"}).status_code == 200
    assert download(caller, cohorts[0]).status_code == 200
    assert_problem(download(caller, cohorts[1]), 409, "withheld")  # a release is for one cohort


@pytest.mark.parametrize("level", ["good", "caution"])
def test_a_model_that_did_not_fail_withholds_nothing(caller: Caller, level: Level) -> None:
    assert download(caller, caller.made(asking(model(caller, audit=audit(level))))).status_code == 200


# --- the request ---

WORDS: list[dict[str, Any]] = [
    {"conditions": {"all_of": [E11, E11]}},
    {"conditions": {"any_of": [[E11]]}},
    {"conditions": {"all_of": ["*E11"]}},
    {"conditions": {"any_of": [[E11, E84], [E11]]}, "seed": 3},
    {"targets": [{"codes": [E11], "share": 1}], "n": 10},
    {"conditions": {"all_of": [E11], "none_of": [D401]}, "seed": 9},  # nearly the same people
]


def test_other_words_seeds_and_sizes_are_the_same_request_also_when_the_cohort_is_gone(caller: Caller) -> None:
    here = model(caller)
    failed = caller.made(asking(here, n=1000, conditions={"all_of": [E11]}, seed=1))
    others = [caller.made(asking(here) | request) for request in WORDS]
    wider = caller.made(asking(here, conditions={"all_of": [E10]}))
    assert all(download(caller, cohort).status_code == 200 for cohort in (failed, wider, *others))
    report(caller, failed, "fail")
    report(caller, others[0], "good")
    for deleted in (False, True):
        if deleted:
            assert caller.http.delete(f"/cohorts/{failed}").status_code == 204
        for cohort in (*others, caller.made(asking(here, conditions={"any_of": [[E11]]}, seed=77))):
            assert failed in str(assert_problem(download(caller, cohort), 409, "withheld")["detail"])
        assert download(caller, wider).status_code == 200
    assert caller.http.post(f"/cohorts/{others[0]}/release", json={"reason": "looked at"}).status_code == 200
    assert download(caller, others[0]).status_code == 200
    assert_problem(download(caller, others[1]), 409, "withheld")


def test_a_cohort_without_conditions_that_failed_speaks_against_all_of_its_model(caller: Caller) -> None:
    here, elsewhere = model(caller), model(caller)
    failed = caller.made(asking(here, seed=1))
    others = [caller.made(asking(here) | request) for request in ANYTHING]
    report(caller, failed, "fail")
    for cohort in others:
        assert_problem(download(caller, cohort), 409, "withheld")
    assert download(caller, caller.made(asking(elsewhere, seed=1))).status_code == 200


def test_parts_of_what_is_withheld_do_not_leave_before_it_is_whole(caller: Caller) -> None:
    here = model(caller)
    waiting = caller.http.post("/generate", json=asking(here, conditions={"all_of": [D250]})).json()["id"]
    leaving = caller.http.post("/generate", json=asking(here)).json()["id"]
    with caller.front.services.database.session_scope() as session:
        for job_id in (waiting, leaving):
            session.get_one(Job, job_id).state = "running"
            CohortRepository(session).ensure_parts(job_id, 100, 100)
    assert_problem(caller.http.get(f"/cohorts/{waiting}/parts/0"), 409, "withheld")
    assert_problem(caller.http.get(f"/cohorts/{leaving}/parts/0"), 404, "not-found")  # not made yet


def test_a_cohort_of_a_model_whose_data_is_gone_is_judged_by_its_model(caller: Caller) -> None:
    """Nobody waits for an evaluation that must fail, and whoever asks is told before."""
    dataset = caller.dataset(n=1000)
    judged, unjudged = (model(caller, dataset_id=dataset, audit=each) for each in (audit("good"), None))
    request = asking(judged, evaluate=True)
    job = caller.http.post("/generate", json=request).json()
    assert "against_real" not in job["request"] and job["warnings"] == []
    assert caller.http.delete(f"/datasets/{dataset}").status_code == 204
    job = caller.http.post("/generate", json=request).json()
    assert job["request"]["against_real"] is False and job["warnings"] == [DATA_GONE]
    assert DATA_GONE in caller.http.post("/generate/estimate", json=request).json()["warnings"]
    assert download(caller, caller.made(request)).status_code == 200
    held = download(caller, caller.made(asking(unjudged, evaluate=True)))
    assert "Nobody has judged" in str(assert_problem(held, 409, "withheld")["detail"])


def test_an_evaluation_that_cannot_be_had_any_more_is_not_recommended(caller: Caller) -> None:
    """The data was deleted while the cohort was made."""
    cohort = caller.cohort([[[0, 1]]])
    with caller.front.services.database.session_scope() as session:
        session.get_one(Job, cohort).result = {"evaluate_job_id": "job_" + "0" * 32}
    told = str(assert_problem(download(caller, cohort), 409, "withheld")["detail"])
    assert "was deleted" in told and "release" in told and "again" not in told
    told = str(assert_problem(caller.http.post("/reports", json={"cohort_id": cohort}), 409, "conflict")["detail"])
    assert "name other real records in dataset_id" in told


def test_a_cohort_that_no_report_will_judge_comes_with_a_word(caller: Caller) -> None:
    assert caller.http.post("/generate", json=asking(model(caller))).json()["warnings"] == [NOT_EVALUATED]


def test_a_relaxation_is_offered_only_where_it_helps(caller: Caller) -> None:
    """Not for what can be had as it is, nor of a model whose every cohort is withheld."""
    offered = {}
    for name, known in {"none": None, "safe": audit("good", "good"), "failed": audit("fail", "caution")}.items():
        rare = asking(model(caller, audit=known), **FEW[0])
        offered[name] = caller.http.post("/generate/estimate", json=rare).json()["relaxation"] is not None
    assert offered == {"none": True, "safe": False, "failed": False}


def test_whoever_holds_the_data_is_told_when_a_report_could_not_judge(caller: Caller) -> None:
    """And nobody else: how many patients there are is not for them."""
    few, enough = (model(caller, dataset_id=caller.dataset(n=n)) for n in (400, 1000))
    analyst = caller.front.as_owner(caller.owner, "generate", "read")
    told = {}
    for name, body in {
        "few": asking(few, evaluate=True),
        "enough": asking(enough, evaluate=True),
        "small": asking(enough, n=49, evaluate=True),
        "rare": asking(enough, evaluate=True, conditions={"all_of": [E84]}),
    }.items():
        job = caller.http.post("/generate", json=body).json()
        told[name] = job["warnings"]
        seen = analyst.http.get(f"/jobs/{job['id']}").json()["warnings"]
        assert {FEW_PATIENTS, FEW_WITH_CONDITION}.isdisjoint(seen)  # nor by looking at a custodian's job
        estimated = caller.http.post("/generate/estimate", json=body).json()
        assert [each for each in told[name] if each not in estimated["warnings"]] == []
        assert NOTICES.isdisjoint(analyst.http.post("/generate", json=body).json()["warnings"])
        assert analyst.http.post("/generate/estimate", json=body).json()["report_seconds"] is None
    found = {name: [each for each in words if each in NOTICES] for name, words in told.items()}
    assert found == {"few": [FEW_PATIENTS], "enough": [], "small": [SMALL_COHORT], "rare": [FEW_WITH_CONDITION]}
