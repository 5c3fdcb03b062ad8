"""A few records to look at: those that satisfy what is asked, held by the gate and counted as a cohort is."""

import secrets
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.api.front import CODES, Caller, Front
from tests.api.test_exposure import cap, exposure
from tests.api.test_gate import COPIES, FEW, MANY, WHY, asking, audit, model, report
from tests.api.test_problems import assert_problem

E10, E11, E84, D250, D251, D401 = CODES


@pytest.fixture
def caller(front_of: Callable[[str], Front]) -> Caller:
    return front_of("sqlite").as_owner(f"owner-{secrets.token_hex(4)}")


@pytest.fixture
def analyst(caller: Caller) -> Caller:
    return caller.front.as_owner(caller.owner, "generate", "read")


def probe(caller: Caller, model_id: str, **request: Any) -> httpx.Response:
    return caller.http.post("/probe", json={"model_id": model_id} | request)


@pytest.mark.parametrize("request_", MANY)
def test_every_record_satisfies_what_was_asked(caller: Caller, analyst: Caller, request_: dict[str, Any]) -> None:
    told = probe(analyst, model(caller, audit=audit("good")), n=100, **request_).json()
    records, conditions = [set(record) for record in told["records"]], request_.get("conditions", {})
    assert 20 <= len(records) <= 100
    for record in records:
        assert record >= set(conditions.get("all_of", []))
        assert all(record & set(group) for group in conditions.get("any_of", []))
        assert not record & set(conditions.get("none_of", []))
    for target in request_.get("targets", []):
        share = sum(bool(record & set(target["codes"])) for record in records) / 100
        assert share <= target["share"] + 0.01 and (share == pytest.approx(target["share"]) or len(records) < 100)
    assert {each["code"] for each in told["codes"]} == set().union(*records)


@pytest.mark.parametrize("request_", FEW)
def test_what_would_be_withheld_is_not_shown(caller: Caller, analyst: Caller, request_: dict[str, Any]) -> None:
    model_id = model(caller, audit=audit("good"))
    for each in (caller, analyst):
        body = assert_problem(probe(each, model_id, **request_), 409, "conflict")
        assert "fewer than 50 patients" in str(body["detail"])
    assert caller.http.get(f"/models/{model_id}/exposure").json() == []


def test_what_few_have_is_shown_where_the_audit_found_that_safe(caller: Caller, analyst: Caller) -> None:
    model_id = model(caller, audit=audit("good", rare="good"))
    assert len(probe(analyst, model_id, conditions={"all_of": [D250]}).json()["records"]) == 20
    assert exposure(analyst, model_id)["small_conditions"] == 1


def test_nothing_is_shown_of_a_model_that_betrays_or_that_nobody_judged(caller: Caller, analyst: Caller) -> None:
    for options in ({"audit": audit("fail")}, {}, {"audit": audit("good"), "verdict": COPIES}, {"verdict": None}):
        assert_problem(probe(analyst, model(caller, **options)), 409, "conflict")
    assert_problem(probe(analyst, caller.model(audit=audit("good"))), 409, "conflict")  # it has drawn none


def test_a_report_that_withholds_a_cohort_withholds_the_same_records_here(caller: Caller, analyst: Caller) -> None:
    model_id = model(caller, audit=audit("good"))
    report(caller, caller.made(asking(model_id, conditions={"all_of": [E11]})), "fail")
    for narrower in ({"all_of": [E11]}, {"any_of": [[E11]]}, {"all_of": [E11, E84]}):
        for each in (caller, analyst):
            detail = assert_problem(probe(each, model_id, conditions=narrower), 409, "conflict")["detail"]
            assert (WHY in str(detail)) == (each is caller)  # why is in a report on real records
    assert probe(analyst, model_id, conditions={"all_of": [E84]}).status_code == 200


def test_it_is_counted_and_capped_as_a_cohort_is(caller: Caller, analyst: Caller) -> None:
    model_id = model(caller, audit=audit("good"))
    cap(analyst, records=50)
    assert [probe(analyst, model_id, conditions={"all_of": [E11]}).status_code for _ in range(3)] == [200, 200, 429]
    told = exposure(analyst, model_id)
    assert (told["records"], told["conditions"], told["requests"]) == (40, 1, 2)
    rows = caller.http.get("/audit", params={"action": "probe"}).json()["items"]
    assert len(rows) == 2 and "E11" not in str(rows)


def test_what_is_impossible_is_a_problem_with_what_is_not(caller: Caller) -> None:
    model_id = model(caller, audit=audit("good"))
    assert_problem(probe(caller, model_id, conditions={"all_of": ["ICD10CM:E12"]}), 422, "unknown-code")
    assert_problem(probe(caller, model_id, n=101), 422, "invalid-request")
