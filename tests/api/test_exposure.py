"""How much each key has had of each model: counted however it is asked for, capped, and readable."""

import threading
from typing import Any

import httpx
import pytest
from sqlalchemy import delete

from ehr.errors import ExposureError
from model_store.ids import MODEL, new_id
from model_store.repositories import ExposureRepository, KeyRepository
from model_store.repositories.exposure import Asked
from model_store.tables import ApiKey
from tests.api.front import Caller, Front
from tests.api.test_problems import assert_problem

E11, E84 = "ICD10CM:E11", "ICD10CM:E84"


@pytest.fixture
def analyst(front: Front, caller: Caller) -> Caller:
    return front.as_owner(caller.owner, "generate", "read")


def cap(caller: Caller, **caps: int) -> None:
    with caller.front.services.database.session_scope() as session:
        keys = KeyRepository(session)
        keys.change_caps(keys.authenticate(caller.key).id, caps)


def asked(caller: Caller, model: str, n: int = 10, **more: Any) -> httpx.Response:
    conditions = {name: more.pop(name) for name in ("all_of", "any_of", "none_of") if name in more}
    return caller.http.post("/generate", json={"model_id": model, "n": n, "conditions": conditions} | more)


def exposure(caller: Caller, model: str) -> dict[str, Any]:
    found = {each["key"]: each for each in caller.http.get(f"/models/{model}/exposure").json()}
    return dict(found[caller.key[:12]])


def test_what_means_the_same_counts_once(analyst: Caller, caller: Caller) -> None:
    model = caller.model()
    for wording in (
        {"all_of": [E11]},
        {"all_of": [E11, E11]},
        {"any_of": [[E11]]},
        {"any_of": [E11]},
        {"all_of": [f"{E11}*"]},
        {"all_of": [E11], "any_of": [[E11, E84]]},
        {"all_of": [E11], "seed": 9},
    ):
        assert asked(analyst, model, **wording).status_code == 202
    told = exposure(analyst, model)
    assert (told["requests"], told["conditions"], told["records"]) == (7, 1, 70)
    for other in ({"all_of": [E84]}, {"none_of": [E11]}, {"all_of": [E11, E84]}, {"targets": [target(0.5)]}):
        assert asked(analyst, model, **other).status_code == 202
    assert asked(analyst, model).status_code == 202  # without any condition
    assert exposure(analyst, model)["conditions"] == 5


def target(share: float) -> dict[str, Any]:
    return {"codes": [E11], "share": share}


@pytest.mark.parametrize(
    ("caps", "counted", "used", "more"),
    [
        ({"conditions": 2}, "conditions", 2, {"all_of": [E11, E84]}),
        ({"records": 25}, "records", 20, {"all_of": [E84]}),
    ],
)
def test_a_key_at_its_cap_is_told_so_and_how_it_can_be_raised(
    analyst: Caller, caller: Caller, caps: dict[str, int], counted: str, used: int, more: dict[str, Any]
) -> None:
    model = caller.model()
    cap(analyst, **caps)
    assert [asked(analyst, model, all_of=[code]).status_code for code in (E11, E84)] == [202, 202]
    refused = asked(analyst, model, **more)
    assert_problem(refused, 429, "exposure-cap")
    problem = refused.json()
    assert (problem["counted"], problem["cap"], problem["used"]) == (counted, caps[counted], used)
    assert "ehr-d3pm keys caps" in problem["detail"] and "Waiting does not help" in problem["detail"]
    before = exposure(analyst, model)
    assert before["caps"][counted] == caps[counted] and before[counted] == used and before["requests"] == 2
    cap(analyst, **{counted: 1000})
    assert asked(analyst, model, **more).status_code == 202
    # nobody else's requests count, nor do other models'
    assert asked(caller, model, **more).status_code == 202
    assert asked(analyst, caller.model(), **more).status_code == 202


def test_what_was_asked_before_may_be_asked_again_at_the_cap(analyst: Caller, caller: Caller) -> None:
    model = caller.model()
    cap(analyst, conditions=1)
    assert asked(analyst, model, all_of=[E11]).status_code == 202
    assert asked(analyst, model, any_of=[[E11]], seed=4).status_code == 202
    assert_problem(asked(analyst, model, all_of=[E84]), 429, "exposure-cap")


def test_a_request_that_is_sent_again_is_counted_once(analyst: Caller, caller: Caller) -> None:
    body = {"model_id": caller.model(), "n": 10}
    for _ in range(2):
        assert analyst.http.post("/generate", json=body, headers={"Idempotency-Key": "once"}).status_code == 202
    assert exposure(analyst, str(body["model_id"]))["requests"] == 1
    wrong = analyst.http.post("/generate", json=body | {"conditions": {"all_of": ["ICD10CM:Z99"]}})
    assert wrong.status_code == 422
    assert exposure(analyst, str(body["model_id"]))["requests"] == 1


def test_of_submissions_that_come_together_only_as_many_pass_as_may(analyst: Caller, caller: Caller) -> None:
    model = caller.model()
    cap(analyst, conditions=3)
    codes = ["ICD10CM:E10", E11, E84, "ICD9DX:25000", "ICD9DX:25001", "ICD9DX:4019"]
    answers: list[int] = []
    barrier = threading.Barrier(len(codes))

    def send(code: str) -> None:
        with httpx.Client(base_url=analyst.http.base_url, headers=analyst.http.headers, timeout=30) as http:
            barrier.wait()
            body = {"model_id": model, "n": 10, "conditions": {"all_of": [code]}}
            answers.append(http.post("/generate", json=body).status_code)

    threads = [threading.Thread(target=send, args=[code]) for code in codes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [202, 202, 202, 429, 429, 429]
    assert exposure(analyst, model)["conditions"] == 3


def test_small_conditions_have_a_cap_of_their_own(front: Front) -> None:
    model, caps = new_id(MODEL), {"small_conditions": 1}
    with front.services.database.session_scope() as session:
        ledger = ExposureRepository(session)
        ledger.count("o", "k", Asked(model, 5, "a" * 64, is_small=True), caps)
        ledger.count("o", "k", Asked(model, 5, "a" * 64, is_small=True), caps)
        ledger.count("o", "k", Asked(model, 5, "b" * 64), caps)
        with pytest.raises(ExposureError) as refused:
            ledger.count("o", "k", Asked(model, 5, "c" * 64, is_small=True), caps)
        assert (refused.value.counted, refused.value.used) == ("small_conditions", 1)


def test_custodians_see_every_key_and_others_their_own(front: Front, analyst: Caller, caller: Caller) -> None:
    model, other = caller.model(), front.as_owner(caller.owner, "generate", "read")
    for each in (analyst, other, caller):
        assert asked(each, model, all_of=[E11]).status_code == 202
    seen = {each["key"]: each for each in caller.http.get(f"/models/{model}/exposure").json()}
    assert seen.keys() == {each.key[:12] for each in (analyst, other, caller)}
    assert [each["key"] for each in analyst.http.get(f"/models/{model}/exposure").json()] == [analyst.key[:12]]
    assert exposure(analyst, model)["caps"]["conditions"] == front.settings.cap_conditions
    assert set(seen[caller.key[:12]]["caps"].values()) == {None}  # who holds the data needs no cohort to learn of it
    assert caller.http.delete(f"/models/{model}").status_code == 204
    with front.services.database.read_scope() as session:
        assert len(ExposureRepository(session).of_model(caller.owner, model)) == 3  # it outlives the model


def test_without_keys_everything_counts_as_local(open_front: Front) -> None:
    local = Caller(open_front, "local", open_front.key("local"))
    open_front.callers.append(local)
    model = local.model()
    with open_front.services.database.session_scope() as session:  # open again, as if there had never been a key
        session.execute(delete(ApiKey))
    with httpx.Client(base_url=open_front.url, timeout=30) as http:
        assert http.post("/generate", json={"model_id": model, "n": 10}).status_code == 202
        (told,) = http.get(f"/models/{model}/exposure").json()
    assert (told["key"], told["records"]) == ("local", 10)
