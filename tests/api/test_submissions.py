"""Training, generation and Idempotency-Keys."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from app.feasibility import Feasibility, feasibility_of
from app.schemas.requests import GenerateRequest
from app.services import Services
from ehr.generators import generator_names
from model_store.repositories import JobRepository
from model_store.tables import Model
from tests.api.front import Caller, Front
from tests.api.test_problems import assert_problem


def test_train(caller: Caller) -> None:
    dataset = caller.dataset()
    body = {"dataset_id": dataset, "preset": "fast", "settings": {"training": {"epochs": 3}}, "seed": 5}
    answer = caller.http.post("/train", json=body)
    assert answer.status_code == 202
    job = answer.json()
    assert job["kind"] == "train" and job["state"] == "queued"
    assert answer.headers["location"] == f"/jobs/{job['id']}"
    assert [step["name"] for step in job["progress"]["steps"]] == [
        "load",
        "train",
        "calibrate",
        "audit",
        "draw",
        "store",
    ]
    request = job["request"]
    assert request["name"] == "data"  # the dataset's
    assert request["settings"] == {"training": {"epochs": 3}}
    assert request["model_id"].startswith("mdl_")


@pytest.mark.parametrize("generator", [name for name in generator_names() if name not in ("d3pm", "independent")])
def test_train_a_published_generator(caller: Caller, generator: str) -> None:
    body = {"dataset_id": caller.dataset(), "generator": generator, "preset": "auto", "settings": {"epochs": 3}}
    answer = caller.http.post("/train", json=body)
    assert answer.status_code == 202 and answer.json()["request"]["generator"] == generator


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"settings": {"noise": "loud"}}, "'uniform', 'marginal' or 'absorbing'"),
        ({"settings": {"training": {"epoch": 3}}}, "epoch: Extra inputs"),
        ({"preset": "fast", "settings": {"denoiser": {"width": 3}}}, "denoiser"),
        ({"preset": "fastest"}, "'fast'"),
        ({"generator": "emr-wgan", "settings": {"widht": 3}}, "widht: Extra inputs"),
        ({"generator": "med-wgan", "settings": {"binarise": "toss"}}, "'round' or 'bernoulli'"),
        ({"generator": "med-wgan", "preset": "fast"}, "its published settings"),
        ({"generator": "gan"}, "'emr-wgan'"),
    ],
)
def test_wrong_settings_are_refused_at_submission(caller: Caller, changes: dict[str, Any], words: str) -> None:
    answer = caller.http.post("/train", json={"dataset_id": caller.dataset()} | changes)
    assert words in str(assert_problem(answer, 422, "invalid-request")["detail"])


CONDITIONS: list[dict[str, Any]] = [
    {"all_of": ["ICD10CM:E84"]},
    {"all_of": ["ICD9DX:250*"], "none_of": ["ICD10CM:E1*"]},
    {"any_of": ["ICD10CM:E10", "ICD10CM:E11"]},
    {"any_of": [["ICD10CM:E10", "ICD10CM:E11"], ["ICD9DX:*"]]},
]


@pytest.mark.parametrize("conditions", CONDITIONS)
def test_generate_with_conditions(caller: Caller, conditions: dict[str, Any]) -> None:
    body = {"model_id": caller.model(), "n": 50, "conditions": conditions, "method": "langevin", "strength": 2}
    answer = caller.http.post("/generate", json=body)
    assert answer.status_code == 202, answer.text
    told = answer.json()["request"]["conditions"]
    any_of = conditions.get("any_of", [])
    groups = [any_of] if any_of and isinstance(any_of[0], str) else any_of
    assert told == {"all_of": conditions.get("all_of", []), "any_of": groups, "none_of": conditions.get("none_of", [])}


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"conditions": {"all_of": ["ICD10CM:E85"]}}, "unknown-code", "did you mean 'ICD10CM:E84'"),
    ({"conditions": {"any_of": ["ICD10CM:Z*"]}}, "unknown-code", "no code matches 'ICD10CM:Z*'"),
    ({"conditions": {"all_of": ["ICD10CM:E84"], "none_of": ["ICD10CM:E8*"]}}, "bad-condition", "none_of"),
    ({"conditions": {"any_of": [[]]}}, "bad-condition", "empty"),
    ({"conditions": {"all_off": []}}, "invalid-request", "all_off"),
    ({"conditions": {"all_of": ["x" * 300]}}, "invalid-request", "200"),
    ({"method": "langevin"}, "invalid-request", "there are none"),
    ({"method": "magic"}, "invalid-request", "'auto', 'exact', 'langevin' or 'rejection'"),
    ({"method": "rejection", "conditions": {"all_of": ["ICD10CM:E84"]}}, "invalid-request", "does not offer"),
    ({"targets": [{"codes": ["ICD10CM:E85"], "share": 0.5}]}, "unknown-code", "did you mean 'ICD10CM:E84'"),
    ({"targets": [{"codes": ["ICD10CM:E84"], "share": 1.5}]}, "invalid-request", "share"),
    ({"targets": [{"codes": [], "share": 0.5}]}, "invalid-request", "codes"),
    ({"targets": [{"codes": ["ICD10CM:E84"], "share": 0.5}], "method": "langevin"}, "invalid-request", "exact"),
    ({"n": 0}, "invalid-request", "n:"),
    ({"n": 1_000_001}, "invalid-request", "at most 1,000,000"),
    ({"n": 1.5}, "invalid-request", "n:"),
    ({"seed": -1}, "invalid-request", "seed"),
    ({"seed": 2**63}, "invalid-request", "seed"),
    ({"strength": -1}, "invalid-request", "strength"),
    ({"steps": 0}, "invalid-request", "steps"),
]


@pytest.mark.parametrize(("changes", "slug", "words"), REFUSED)
def test_generate_refuses(caller: Caller, changes: dict[str, Any], slug: str, words: str) -> None:
    answer = caller.http.post("/generate", json={"model_id": caller.model(), "n": 5} | changes)
    assert words in str(assert_problem(answer, 422, slug)["detail"])


def test_unknown_model(caller: Caller) -> None:
    assert_problem(caller.http.post("/generate", json={"model_id": "mdl_" + "0" * 32, "n": 5}), 404, "not-found")


def test_twenty_threads_with_one_key_make_one_job(front: Front, caller: Caller) -> None:
    body = {"model_id": caller.model(), "n": 5}

    def post(_: int) -> httpx.Response:
        headers = {"Authorization": f"Bearer {caller.key}", "Idempotency-Key": "one"}
        return httpx.post(f"{front.url}/generate", json=body, headers=headers, timeout=60)

    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(post, range(20)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert sum("idempotent-replayed" not in answer.headers for answer in answers) == 1
    with front.services.database.read_scope() as session:
        assert len(JobRepository(session).page(caller.owner).rows) == 1


def test_a_key_belongs_to_one_request(caller: Caller, stranger: Caller) -> None:
    headers = {"Idempotency-Key": "k"}
    model = caller.model()
    first = caller.http.post("/generate", json={"model_id": model, "n": 5}, headers=headers)
    other = caller.http.post("/generate", json={"model_id": model, "n": 6}, headers=headers)
    assert_problem(other, 409, "idempotency-conflict")
    # the same meaning written differently is the same request
    same = caller.http.post("/generate", json={"n": 5, "model_id": model, "seed": 0}, headers=headers)
    assert same.json()["id"] == first.json()["id"]
    # on another route, or of another owner, it is another key
    assert caller.http.post("/train", json={"dataset_id": caller.dataset()}, headers=headers).status_code == 202
    theirs = stranger.http.post("/generate", json={"model_id": stranger.model(), "n": 7}, headers=headers)
    assert theirs.status_code == 202 and "idempotent-replayed" not in theirs.headers


def test_a_replay_needs_nothing_that_the_request_named(caller: Caller) -> None:
    model, dataset, cohort = caller.model(), caller.dataset(), caller.cohort([[[0]]])
    requests: dict[str, dict[str, Any]] = {
        "/generate": {"model_id": model, "n": 5},
        "/train": {"dataset_id": dataset},
        "/reports": {"cohort_id": cohort, "dataset_id": dataset},
    }
    headers = {"Idempotency-Key": "k"}
    first = {path: caller.http.post(path, json=body, headers=headers).json()["id"] for path, body in requests.items()}
    for path in (f"/models/{model}", f"/datasets/{dataset}", f"/cohorts/{cohort}"):
        assert caller.http.delete(path).status_code == 204
    for path, body in requests.items():
        again = caller.http.post(path, json=body, headers=headers)
        assert again.json()["id"] == first[path] and again.headers["idempotent-replayed"] == "true"
        assert_problem(caller.http.post(path, json=body), 404, "not-found")


def test_a_request_is_validated_once_and_what_it_names_is_still_there(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def counted(services: Services, model: Model, body: GenerateRequest) -> Feasibility:
        calls.append(model.id)
        if len(calls) == 2:
            assert caller.http.delete(f"/models/{model.id}").status_code == 204
        return feasibility_of(services, model, body)

    monkeypatch.setattr("app.routers.generate.feasibility_for", counted)
    body = {"model_id": caller.model(), "n": 5, "conditions": {"all_of": ["ICD10CM:E84"]}}
    assert caller.http.post("/generate", json=body).status_code == 202
    assert len(calls) == 1
    answer = caller.http.post("/generate", json=body, headers={"Idempotency-Key": "late"})
    assert_problem(answer, 404, "not-found")
    assert len(caller.http.get("/jobs").json()["items"]) == 1


def test_a_failed_request_does_not_use_up_its_key(caller: Caller) -> None:
    headers = {"Idempotency-Key": "again"}
    model = caller.model()
    wrong = {"model_id": model, "n": 5, "conditions": {"all_of": ["ICD10CM:E85"]}}
    assert caller.http.post("/generate", json=wrong, headers=headers).status_code == 422
    assert caller.http.post("/generate", json={"model_id": model, "n": 5}, headers=headers).status_code == 202


def test_cancel_takes_a_key_too(caller: Caller) -> None:
    job = caller.http.post("/generate", json={"model_id": caller.model(), "n": 5}).json()["id"]
    answers = [caller.http.post(f"/jobs/{job}/cancel", headers={"Idempotency-Key": "c"}) for _ in range(2)]
    assert [answer.json()["state"] for answer in answers] == ["cancelled", "cancelled"]
    assert answers[1].headers["idempotent-replayed"] == "true"


@pytest.mark.parametrize("key", ["x" * 256])
def test_keys_have_a_length(caller: Caller, key: str) -> None:
    answer = caller.http.post("/train", json={"dataset_id": "x"}, headers={"Idempotency-Key": key})
    assert_problem(answer, 422, "invalid-request")
