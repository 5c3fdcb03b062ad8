"""What a cohort would take, what can be had instead of what cannot, and that no answer gives a small group away."""

import json
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.estimates import expectation, parallel_parts, parts_of
from ehr.conditions import AskedCondition
from ehr.disclosure import SMALLEST_SHOWN, rounded
from ehr.generators import CHUNK
from ehr.records import Records
from ehr.relaxation import nearest, terms_of
from ehr.support import Requirement, TrainingIndex
from ehr.vocabulary import Vocabulary
from runtime.broker import WorkerFacts
from tests.api.front import CODES, Caller, csr
from tests.api.test_problems import assert_problem

E10, E11, E84, D250, D251, D401 = range(6)
COSTS: dict[str, Any] = {
    "threads": 1,
    "load_seconds": 0.5,
    "base_bytes": 1 << 30,
    "methods": {
        "unconditional": {"steps": 16, "seconds_per_chunk": 1.0, "seconds_per_record_call": 0, "bytes_per_chunk": 0},
        "exact": {
            "steps": 16,
            "seconds_per_chunk": 1.0,
            "seconds_per_record_call": 1 / 16_384,
            "bytes_per_chunk": 1 << 29,
        },
        "langevin": {"steps": 64, "seconds_per_chunk": 9.0, "seconds_per_record_call": 0, "bytes_per_chunk": None},
    },
}


def rows() -> list[list[int]]:
    """Of 1,000: all E10; less than half E11; of the others 150 E84, ten of them 25000, the rest 25001; none 4019."""
    made = []
    for i in range(1000):
        codes = [E10]
        if i % 2 and i > 100:
            codes.append(E11)
        elif i < 200:
            codes += [E84] + ([D250] if i < 10 else [])
        else:
            codes.append(D251)
        made.append(codes)
    return made


def trained(caller: Caller, costs: dict[str, Any] | None = COSTS) -> str:
    """A model whose training split is all records but a few."""
    return caller.model(dataset_id=caller.dataset(rows=rows()), costs=costs)


def asked(caller: Caller, model: str, path: str = "/generate/estimate", n: int = 100, **body: Any) -> Any:
    return caller.http.post(path, json={"model_id": model, "n": n} | body)


def test_support_method_time_and_memory(caller: Caller) -> None:
    model = trained(caller)
    told = asked(caller, model, n=10 * CHUNK, conditions={"all_of": ["ICD10CM:E11"]}).json()
    assert told["feasible"] and told["problem"] is None and told["relaxation"] is None
    assert told["support"]["seen"] == "yes" and told["support"]["records"] == pytest.approx(400, abs=40)
    assert told["training_records"] == 800
    assert (told["method"], told["steps"], told["parts"]) == ("exact", 16, 1)
    assert told["seconds"] == pytest.approx(0.5 + 0.5 + 10 * 2, rel=0.02)
    assert told["memory_gib"] == 1.5
    assert told["workers"] is None and "broker" in told["warnings"][0]  # nobody listens at this front's broker
    plain = asked(caller, model).json()
    assert (plain["method"], plain["support"]["seen"]) == (None, "not known")
    guided = asked(caller, model, conditions={"all_of": ["ICD10CM:E11"]}, method="langevin").json()
    assert (guided["method"], guided["steps"], guided["memory_gib"]) == ("langevin", 64, None)
    assert any("more common" in warning for warning in guided["warnings"])


def test_rejection_is_not_timed_and_says_so(caller: Caller) -> None:
    costs = COSTS | {"methods": {"unconditional": COSTS["methods"]["unconditional"] | {"steps": 1}}}
    model = caller.model(generator="emr-wgan", dataset_id=caller.dataset(rows=rows()), costs=costs)
    told = asked(caller, model, conditions={"all_of": ["ICD10CM:E11"]}).json()
    assert (told["method"], told["steps"], told["seconds"], told["memory_gib"]) == ("rejection", 1, None, 1.0)
    assert any("throw away" in warning for warning in told["warnings"])
    plain = asked(caller, model).json()
    assert plain["seconds"] > 0 and not any("throw away" in warning for warning in plain["warnings"])
    job = asked(caller, model, "/generate", targets=[{"codes": ["ICD10CM:E11"], "share": 0.5}]).json()
    assert any("throw away" in warning for warning in job["warnings"])


def test_a_model_that_was_not_timed(caller: Caller) -> None:
    told = asked(caller, trained(caller, costs=None)).json()
    assert told["seconds"] is None and told["memory_gib"] is None
    assert any("not known" in warning for warning in told["warnings"])


def test_a_dataset_that_is_gone(caller: Caller) -> None:
    model = caller.model(costs=COSTS)
    told = asked(caller, model, conditions={"all_of": ["ICD10CM:E84"]}).json()
    assert told["support"] == {"seen": "not known", "records": None} and told["training_records"] is None
    contradictory = {"all_of": ["ICD10CM:E84", "ICD10CM:E11"], "none_of": ["ICD10CM:E8*"]}
    told = asked(caller, model, conditions=contradictory).json()
    assert told["relaxation"]["conditions"]["all_of"] == ["ICD10CM:E84", "ICD10CM:E11"]  # one term is dropped, not two
    assert told["relaxation"]["dropped"] == [{"field": "none_of", "codes": ["ICD10CM:E8*"]}]


def test_nobody_satisfies_it(caller: Caller) -> None:
    """Accepted with a warning in the job; the estimate offers what can be had."""
    model = trained(caller)
    conditions = {"all_of": ["ICD10CM:E84", "ICD10CM:E11"]}
    told = asked(caller, model, conditions=conditions).json()
    assert told["feasible"] and told["support"] == {"seen": "no", "records": 0}
    assert told["relaxation"]["conditions"]["all_of"] == ["ICD10CM:E11"]  # the one more have
    answer = asked(caller, model, "/generate", conditions=conditions)
    assert answer.status_code == 202
    assert answer.json()["warnings"] == told["warnings"][:1]
    assert "no training records satisfy the condition" in answer.json()["warnings"][0]
    assert "warnings" not in answer.json()["request"]


def test_fewer_than_eleven_satisfy_it(caller: Caller) -> None:
    model = trained(caller)
    few = asked(caller, model, conditions={"all_of": ["ICD9DX:25000"]}).json()
    assert few["support"] == {"seen": "fewer than 11", "records": None}
    # "nobody has both" would tell of the few with 25000 that they lack 4019
    none = asked(caller, model, conditions={"all_of": ["ICD9DX:25000", "ICD9DX:4019"]}).json()
    assert none["support"] == few["support"]
    assert "perhaps none" in none["warnings"][0]


IMPOSSIBLE: list[tuple[dict[str, Any], str, dict[str, Any]]] = [
    ({"all_of": ["ICD10CM:E11", "ICD10CM:E99"]}, "unknown-code", {"all_of": ["ICD10CM:E11"]}),
    ({"all_of": ["ICD10CM:E11"], "any_of": [["ICD10CM:X*"]]}, "unknown-code", {"all_of": ["ICD10CM:E11"]}),
    (
        {"any_of": [["ICD10CM:X*", "ICD10CM:E11"]], "none_of": ["Z:1"]},
        "unknown-code",
        {"any_of": [["ICD10CM:E11"]]},
    ),
    ({"all_of": ["ICD10CM:E11"], "none_of": ["ICD10CM:E11"]}, "bad-condition", {"none_of": ["ICD10CM:E11"]}),
    ({"all_of": ["ICD10CM:E99"]}, "unknown-code", {}),
]  # fmt: skip


@pytest.mark.parametrize(("conditions", "slug", "wanted"), IMPOSSIBLE)
def test_what_is_impossible_comes_with_the_nearest_that_is_not(
    caller: Caller, conditions: dict[str, Any], slug: str, wanted: dict[str, Any]
) -> None:
    model = trained(caller)
    problem = assert_problem(asked(caller, model, "/generate", conditions=conditions), 422, slug)
    relaxation: Any = problem["relaxation"]
    assert relaxation["conditions"] == {"all_of": [], "any_of": [], "none_of": []} | wanted
    sent, left = (json.dumps(part) for part in (conditions, relaxation["conditions"]))
    gone = [code for entry in relaxation["dropped"] for code in entry["codes"]]
    assert gone and all(sent.count(f'"{code}"') == left.count(f'"{code}"') + gone.count(code) for code in gone)
    told = asked(caller, model, conditions=conditions).json()
    assert not told["feasible"] and told["problem"] == problem["detail"] and told["relaxation"] == relaxation
    ready = asked(caller, model, "/generate", conditions=relaxation["conditions"], targets=relaxation["targets"])
    assert ready.status_code == 202


def test_targets(caller: Caller) -> None:
    model = trained(caller)
    targets = [{"codes": ["ICD10CM:E11"], "share": 0.3}, {"codes": ["ICD9DX:25000"], "share": 0.1}]
    told = asked(caller, model, targets=targets).json()
    assert told["method"] == "exact"
    assert [target["meeting"]["seen"] for target in told["targets"]] == ["yes", "fewer than 11"]
    assert [target["others"]["seen"] for target in told["targets"]] == ["yes", "yes"]
    assert any("targets[1]" in warning for warning in told["warnings"])
    job = asked(caller, model, "/generate", targets=targets).json()
    assert job["request"]["targets"] == targets and job["request"]["method"] == "auto"


@pytest.mark.parametrize(
    "changes",
    [
        {"conditions": {"all_of": ["ICD10CM:E11"]}, "targets": [{"codes": ["ICD10CM:E11"], "share": 0.3}]},
        {"conditions": {"none_of": ["ICD10CM:E11"]}, "targets": [{"codes": ["ICD10CM:E11"], "share": 0.3}]},
        {"conditions": {"any_of": ["ICD10CM:E11"]}, "targets": [{"codes": ["ICD10CM:E1*"], "share": 0.3}]},
        {
            "targets": [
                {"codes": ["ICD10CM:E1*"], "share": 0.3},
                {"codes": ["ICD10CM:E11"], "share": 0.3},
            ]
        },
    ],
)
def test_targets_that_contradict(caller: Caller, changes: dict[str, Any]) -> None:
    model = trained(caller)
    problem = assert_problem(asked(caller, model, "/generate", **changes), 422, "bad-condition")
    assert "targets[" in str(problem["detail"])
    relaxation: Any = problem["relaxation"]
    assert relaxation["dropped"][0]["field"] == "targets"
    ready = {"conditions": relaxation["conditions"], "targets": relaxation["targets"]}
    assert asked(caller, model, "/generate", **ready).status_code == 202


def test_limits_are_the_same(caller: Caller, stranger: Caller) -> None:
    model = trained(caller)
    for changes, slug in (({"n": 1_000_001}, "invalid-request"), ({"steps": 51}, "invalid-request")):
        for path in ("/generate", "/generate/estimate"):
            assert_problem(asked(caller, model, path, **changes), 422, slug)  # type: ignore[arg-type]
    assert_problem(asked(stranger, model), 404, "not-found")


# --- small cells ---


@settings(deadline=None)
@given(st.integers(11, 300), st.integers(0, 300))
def test_neither_a_difference_nor_a_rest_can_be_solved_for(inner: int, total: int) -> None:
    """Beside each other or beside the total, two counts leave it open whether there is a group of 1 to 10 at all."""
    total += inner
    for outer in range(inner, min(inner + SMALLEST_SHOWN, total + 1)):
        within, around = (
            [count for count in range(total + 1) if rounded(count, total) == rounded(shown, total)]
            for shown in (inner, outer)
        )
        differences = range(max(around[0] - within[-1], 0), around[-1] - within[0] + 1)
        assert 0 in differences or differences[-1] >= SMALLEST_SHOWN
        rest = {total - count for count in around}
        assert min(rest) >= SMALLEST_SHOWN or 0 in rest


def test_rounded_counts_ascend() -> None:
    shown = [rounded(count, 10_000) for count in range(10_001)]
    assert shown[:11] == [None] * 11 and shown[11] == 20 and shown[1234] == 1200
    assert all(a <= b for a, b in pairwise(value for value in shown if value is not None))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 4))
def test_nobody_is_only_said_where_no_selection_is_small(seed: int, n_terms: int) -> None:
    rng = np.random.default_rng(seed)
    dense = rng.random((60, n_terms)) < rng.choice([0.02, 0.2, 0.6], n_terms)
    index = TrainingIndex(csr([np.flatnonzero(row).tolist() for row in dense], n_terms))
    support = index.support([Requirement((code,)) for code in range(n_terms)])
    counts = {
        chosen: int(dense[:, chosen].all(1).sum())
        for size in range(1, n_terms + 1)
        for chosen in combinations(range(n_terms), size)
    }
    everything = counts[tuple(range(n_terms))]
    small = [chosen for chosen, count in counts.items() if 0 < count < SMALLEST_SHOWN]
    if everything >= SMALLEST_SHOWN:
        assert support.seen == "yes"
    elif everything == 0 and not small:
        assert support.seen == "no"
    else:
        assert support.seen == "fewer than 11" and support.records is None


# --- the nearest relaxation ---


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_the_nearest_drops_as_few_terms_as_can_be(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dense = rng.random((200, 6)) < 0.25
    index = TrainingIndex(csr([np.flatnonzero(row).tolist() for row in dense], 6))
    vocabulary = Vocabulary(CODES)
    terms = terms_of(vocabulary, AskedCondition(all_of=list(CODES[:3]), any_of=[list(CODES[3:5])], none_of=[CODES[5]]))
    holds = [index.holds(term.requirement) for term in terms]

    def supported(chosen: tuple[int, ...]) -> bool:
        return bool(np.logical_and.reduce([holds[i] for i in chosen]).sum() >= SMALLEST_SHOWN)

    largest = max(size for size in range(1, 6) for chosen in combinations(range(5), size) if supported(chosen))
    found = nearest(vocabulary, index, terms)
    assert len(terms) - len(found.dropped) == largest
    assert found.support.seen == "yes"


def test_a_hundred_terms_are_relaxed_at_once() -> None:
    n = 120
    index = TrainingIndex(csr([[code, (code + 1) % n] for code in range(n)] * 15, n))
    vocabulary = Vocabulary(tuple(f"X:{code:03d}" for code in range(n)))
    found = nearest(vocabulary, index, terms_of(vocabulary, AskedCondition(all_of=list(vocabulary.codes[:100]))))
    assert len(found.conditions.all_of) == 2 and found.support.seen == "yes"


def test_the_index_counts_as_a_scan_does() -> None:
    rng = np.random.default_rng(3)
    dense = rng.random((300, 5)) < 0.3
    records: Records = csr([np.flatnonzero(row).tolist() for row in dense], 5)
    index = TrainingIndex(records)
    assert np.array_equal(index.holds(Requirement((1, 3))), dense[:, 1] | dense[:, 3])
    assert np.array_equal(index.holds(Requirement((2, 4), wanted=False)), ~(dense[:, 2] | dense[:, 4]))
    assert index.support([]).seen == "yes" and index.support([]).records == 300


# --- the cost model ---


def test_time_follows_records_calls_and_workers() -> None:
    def seconds(n: int, steps: int | None = None, at_a_time: float = 1) -> float:
        expected = expectation(COSTS, "exact", steps, n, CHUNK, at_a_time).seconds
        assert expected is not None
        return expected - 1.0  # what a job costs at all

    assert seconds(100 * CHUNK) == pytest.approx(200, rel=0.03)
    assert seconds(100 * CHUNK, steps=48) == pytest.approx(400, rel=0.03)
    assert seconds(100 * CHUNK, at_a_time=4) == pytest.approx(50, rel=0.03)
    assert seconds(CHUNK, at_a_time=4) == pytest.approx(2, rel=0.03)  # one part is made by one worker
    assert seconds(5 * CHUNK, at_a_time=4) == pytest.approx(4, rel=0.03)
    assert seconds(CHUNK // 2) == pytest.approx(1, rel=0.03)
    assert parts_of(5000, 100) == (5, CHUNK) and parts_of(100, 16_384) == (1, 100)


def test_workers_of_a_host_share_its_cores() -> None:
    def host(name: str, slots: int, cores: int) -> list[WorkerFacts]:
        return [WorkerFacts(f"{name}:{i}", name, 1, cores) for i in range(slots)]

    assert parallel_parts(host("a", 3, 2), threads=1) == 2
    assert parallel_parts(host("a", 2, 2), threads=2) == 1
    assert parallel_parts([*host("a", 2, 2), *host("b", 2, 8)], threads=2) == 3
    assert parallel_parts([], threads=4) == 1
