"""Conditions over time before anything is made: support, gate, relaxation and previews by patients that were drawn."""

import secrets
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ehr.histories import Histories
from ehr.history_conditions import AskedHistoryCondition
from ehr.history_support import HistoryReference, nearest_history, parts_of
from ehr.records import Records, indptr_of
from ehr.vocabulary import Vocabulary
from tests.api.front import CODES, Caller, Front
from tests.api.test_exposure import exposure
from tests.api.test_gate import audit
from tests.api.test_problems import assert_problem

E10, E11, E84, D250, D251, D401 = CODES


def patients(*kinds: tuple[int, list[list[int]]]) -> Histories:
    """So many of each kind, who come every 30 days; half of them have D401 at every visit."""
    visits, counts = [], []
    for many, codes in kinds:
        visits += codes * many
        counts += [len(codes)] * many
    offsets = indptr_of(np.array(counts))
    gaps = np.full(len(visits), 30, np.int32)
    gaps[offsets[:-1]] = 0
    static = Records.from_sets([[5] if i % 2 else [] for i in range(len(counts))], len(CODES))
    return Histories(Records.from_sets(visits, len(CODES)), offsets, gaps, static)


DRAWN = patients((400, [[1], [2]]), (580, [[0]]), (20, [[2, 3], [1]]))


@pytest.fixture
def caller(front_of: Callable[[str], Front]) -> Caller:
    return front_of("sqlite").as_owner(f"owner-{secrets.token_hex(4)}")


@pytest.fixture
def analyst(caller: Caller) -> Caller:
    return caller.front.as_owner(caller.owner, "generate", "read")


def model(caller: Caller, rare: str = "caution", **options: Any) -> str:
    return caller.model(generator="visits", drawn=DRAWN, audit=audit("good", rare=rare), **options)  # type: ignore[arg-type]


def estimate(caller: Caller, model_id: str, n: int = 100, **history: Any) -> dict[str, Any]:
    body = {"model_id": model_id, "n": n, "history": history}
    return dict(caller.http.post("/generate/estimate", json=body).raise_for_status().json())


def order(first: str, then: str) -> dict[str, Any]:
    return {"before": [{"first": first, "then": then}]}


def test_support_is_counted_among_drawn_patients(caller: Caller, analyst: Caller) -> None:
    model_id = model(caller)
    for asked, matching in (
        (order(E11, E84), 400),
        (order("e11", E84), 400),
        ({"ever": [E84]}, 420),
        ({"ever": [E84], "never": [D250]}, 400),
        ({"fewest_visits": 2}, 420),
        ({"longest_days": 29}, 580),
        ({"at_visit": [{"visit": 2, "all_of": [E84]}]}, 400),
        ({"start": {"all_of": [D401]}}, 500),
        ({"prompt": [{"codes": [E11]}]}, 400),
        ({}, 1000),
    ):
        told = [estimate(each, model_id, **asked) for each in (caller, analyst)]
        assert told[0]["support"] == {"matching": matching, "drawn": 1000, "share": matching / 1000}, asked
        assert told[0]["withheld"] is None is told[0]["relaxation"] and told[0]["unknown"] is None
        assert told[0]["support"] == told[1]["support"] and told[0]["withheld"] == told[1]["withheld"]
        assert told[0]["method"] == ("exact" if asked else None)
    assert "'e11' was read as" in " ".join(estimate(caller, model_id, **order("e11", E84))["warnings"])


def test_targets_are_estimated_and_accepted(caller: Caller, analyst: Caller) -> None:
    model_id = model(caller)
    body = {"model_id": model_id, "n": 100, "history": {"never": [D250]}}
    target = {"codes": ["e11"], "share": 0.25}
    told = analyst.http.post("/generate/estimate", json=body | {"targets": [target]}).raise_for_status().json()
    assert told["support"]["matching"] == 980 and told["method"] == "exact" and told["withheld"] is None
    assert (told["targets"][0]["meeting"]["matching"], told["targets"][0]["others"]["matching"]) == (400, 580)
    accepted = analyst.http.post("/generate", json=body | {"targets": [target]})
    assert accepted.status_code == 202
    assert accepted.json()["request"]["targets"] == [{"codes": [E11], "share": 0.25}]
    # another share is another sample of the same people; all of them are those who ever have it
    for share in (0.5, 1.0):
        again = body | {"targets": [target | {"share": share}]}
        assert analyst.http.post("/generate", json=again).status_code == 202
    ever = body | {"history": {"never": [D250], "ever": [E11]}}
    assert analyst.http.post("/generate", json=ever).status_code == 202
    assert exposure(analyst, model_id)["conditions"] == 2
    shown = analyst.http.post("/probe", json=body | {"n": 8, "targets": [target]}).json()["patients"]
    assert len(shown) == 8 and sum(E11 in str(patient["visits"]) for patient in shown) == 2


def test_a_small_part_of_targets_is_withheld_and_relaxed(caller: Caller, analyst: Caller) -> None:
    """Twenty drawn patients have D250; whoever shall not have it are enough."""
    body = {"model_id": model(caller), "n": 100, "history": {"never": [D251]}}
    targets = [{"codes": [D250], "share": 0.5}, {"codes": [E84], "share": 0.5}]
    told = analyst.http.post("/generate/estimate", json=body | {"targets": targets}).json()
    assert "one of the parts that its targets divide" in told["withheld"]
    assert told["relaxation"]["targets"] == [targets[1]] and told["relaxation"]["history"] == {"never": [D251]}
    assert told["relaxation"]["dropped"] == [{"field": "targets", "codes": [D250]}]
    contradiction = body | {"targets": [{"codes": [D251], "share": 0.5}]}
    answer = analyst.http.post("/generate", json=contradiction)
    assert D251 in str(assert_problem(answer, 422, "bad-condition")["detail"])


def test_what_few_drawn_patients_are_is_withheld_and_relaxed(caller: Caller, analyst: Caller) -> None:
    model_id = model(caller)
    told = estimate(analyst, model_id, **order(E84, E11), fewest_visits=2)
    assert told["support"]["matching"] == 20 and "fewer than 50 patients" in told["withheld"]
    assert told["relaxation"]["history"] == {"fewest_visits": 2}
    assert told["relaxation"]["support"]["matching"] == 420
    assert told["relaxation"]["dropped"] == [{"field": "before", "codes": [f"{E84} before {E11}"]}]
    accepted = analyst.http.post("/generate", json={"model_id": model_id, "n": 50, "history": order(E84, E11)})
    assert accepted.status_code == 202 and any("withheld" in each for each in accepted.json()["warnings"])
    assert exposure(analyst, model_id)["small_conditions"] == 1
    # unless attacks found that what is rare is safe with this model
    assert estimate(analyst, model(caller, rare="good"), **order(E84, E11))["withheld"] is None


def test_what_cannot_be_is_refused_with_the_nearest_that_can(caller: Caller) -> None:
    model_id = model(caller)
    told = estimate(caller, model_id, ever=[E11, "ICD10CM:X99"], never=[E10])
    assert not told["feasible"] and "unknown code" in told["problem"]
    assert told["relaxation"]["history"] == {"ever": [E11], "never": [E10]}
    told = estimate(caller, model_id, ever=[E11], never=[E11])
    assert not told["feasible"] and told["relaxation"]["history"] in ({"ever": [E11]}, {"never": [E11]})
    answer = caller.http.post(
        "/generate", json={"model_id": model_id, "n": 9, "history": {"ever": [E11], "never": [E11]}}
    )
    assert assert_problem(answer, 422, "bad-condition")["relaxation"]["dropped"]


def test_without_drawn_patients_nothing_is_known(caller: Caller) -> None:
    for model_id in (
        caller.model(generator="visits", audit=audit("good")),
        model(caller, verdict=None, absent="too few"),
    ):
        told = estimate(caller, model_id, ever=[E11])
        assert told["support"]["matching"] is None and told["unknown"] and "not known" in told["withheld"]
        probe = caller.http.post("/probe", json={"model_id": model_id})
        assert_problem(probe, 409, "conflict")


def test_the_same_wish_in_other_words_is_one_condition(caller: Caller, analyst: Caller) -> None:
    model_id = model(caller)
    for asked in ({"ever": ["e11"]}, {"ever": [E11]}, {"ever": [E11, E11]}, {"ever": [f"{E11}*"]}):
        assert analyst.http.post("/generate", json={"model_id": model_id, "n": 10, "history": asked}).status_code == 202
    assert exposure(analyst, model_id)["conditions"] == 1


def test_a_preview_shows_drawn_patients_with_their_visits(caller: Caller, analyst: Caller) -> None:
    model_id = model(caller)
    body = {"model_id": model_id, "n": 3, "history": order("e11", E84)}
    told = analyst.http.post("/probe", json=body).raise_for_status().json()
    assert told["records"] == [] and len(told["patients"]) == 3 and told["support"]["matching"] == 400
    assert told["patients"][1] == {
        "static": [D401],
        "visits": [{"gap_days": 0, "codes": [E11]}, {"gap_days": 30, "codes": [E84]}],
    }
    assert {each["code"] for each in told["codes"]} == {E11, E84, D401}
    counted = exposure(analyst, model_id)
    assert (counted["records"], counted["conditions"]) == (3, 1)
    few = analyst.http.post("/probe", json={"model_id": model_id, "history": order(E84, E11)})
    assert "fewer than 50 patients" in str(assert_problem(few, 409, "conflict")["detail"])
    assert exposure(analyst, model_id)["records"] == 3
    wrong = analyst.http.post("/probe", json={"model_id": model_id, "conditions": {"all_of": [E11]}})
    assert "`history` says" in str(assert_problem(wrong, 422, "invalid-request")["detail"])


def test_parts_of_a_request_are_the_whole() -> None:
    asked = AskedHistoryCondition.model_validate(
        {
            "ever": [E11, E84],
            "never": [D250],
            **order(E11, E84),
            "fewest_visits": 2,
            "most_visits": 2,
            "longest_days": 30,
            "at_visit": [{"visit": 1, "all_of": [E11]}],
            "start": {"all_of": [D401]},
            "prompt": [{"codes": [E11]}],
        }
    )
    vocabulary, reference = Vocabulary(CODES), HistoryReference(DRAWN, 1000)
    parts = list(parts_of(asked))
    assert [part.field for part in parts] == [
        *["ever", "ever", "never", "before", "at_visit", "visits", "days", "start", "prompt"]
    ]
    met = np.logical_and.reduce([reference.satisfied(part.asked.resolve(vocabulary)) for part in parts])
    assert np.array_equal(met, reference.satisfied(asked.resolve(vocabulary))) and met.sum() == 200
    found = nearest_history(vocabulary, reference, asked, 200)
    assert found is not None and found.asked == asked and found.dropped == [] and found.matching == 200
    wider = nearest_history(vocabulary, reference, asked, 300)
    assert wider is not None and [each["field"] for each in wider.dropped] == ["start"] and wider.matching == 400


def test_pages_of_the_builder_take_conditions_over_time(caller: Caller) -> None:
    model_id = model(caller)
    page = caller.http.get(f"/app/cohorts/new?model={model_id}").text
    for name in ("start", "ever", "never", "first", "then", "targets"):
        assert f'data-picker="{name}"' in page and f'aria-labelledby="{name}-title"' in page
    assert "data-over-time" in page and 'name="fewest_visits"' in page and 'data-picker="all_of"' not in page
    body = {"model_id": model_id, "n": 10, "history": order(E11, E84)}
    piece = caller.http.post("/app/cohorts/estimate", json=body).text
    assert "40 %" in piece and "model&#39;s own patients" in piece.replace("'", "&#39;") and "10 patients take" in piece
    piece = caller.http.post("/app/cohorts/preview", json=body).text
    assert "Patient 2" in piece and "days since the visit before" in piece and E84 in piece
