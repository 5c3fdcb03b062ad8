"""What a cohort would take, what can be had instead of what cannot, and that no patient is looked at for it."""

import json
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.comparison import DATA_GONE
from app.estimates import expectation, parallel_parts, parts_of
from ehr.conditions import AskedCondition
from ehr.generators import CHUNK
from ehr.records import Records
from ehr.relaxation import nearest, terms_of
from ehr.reports import Verdict
from ehr.support import ReferenceCohort, Requirement
from ehr.vocabulary import Vocabulary
from model_store.repositories import DatasetRepository
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


def trained(caller: Caller, costs: dict[str, Any] | None = COSTS, **options: Any) -> str:
    """A model that drew those records, and learned from as many."""
    return caller.model(costs=costs, drawn=rows(), **options)


def asked(caller: Caller, model: str, path: str = "/generate/estimate", n: int = 100, **body: Any) -> Any:
    return caller.http.post(path, json={"model_id": model, "n": n} | body)


def test_support_method_time_and_memory(caller: Caller) -> None:
    model = trained(caller)
    told = asked(caller, model, n=10 * CHUNK, conditions={"all_of": ["ICD10CM:E11"]}).json()
    assert told["feasible"] and told["problem"] is None and told["relaxation"] is None
    assert told["support"] == {"matching": 450, "drawn": 1000, "share": 0.45} and told["unknown"] is None
    assert told["training_records"] == 1000 and told["withheld"] is None
    assert (told["method"], told["steps"], told["parts"]) == ("exact", 16, 1)
    assert told["seconds"] == pytest.approx(0.5 + 0.5 + 10 * 2, rel=0.02)
    assert told["memory_gib"] == 1.5
    assert told["workers"] is None and "broker" in told["warnings"][-1]  # nobody listens at this front's broker
    plain = asked(caller, model).json()
    assert (plain["method"], plain["support"]["matching"], plain["support"]["share"]) == (None, 1000, 1)
    guided = asked(caller, model, conditions={"all_of": ["ICD10CM:E11"]}, method="langevin").json()
    assert (guided["method"], guided["steps"], guided["memory_gib"]) == ("langevin", 64, None)
    assert any("more common" in warning for warning in guided["warnings"])


def test_rejection_is_not_timed_and_says_so(caller: Caller) -> None:
    costs = COSTS | {"methods": {"unconditional": COSTS["methods"]["unconditional"] | {"steps": 1}}}
    model = trained(caller, costs, generator="emr-wgan")
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


COPIES = Verdict(level="fail", reason="The cohort contains copies of training records.", advice="")
NOTHING = {"matching": None, "drawn": None, "share": None}


def test_a_model_of_an_earlier_version_drew_nothing_and_patients_do_not_stand_in(caller: Caller) -> None:
    model = caller.model(costs=COSTS, dataset_id=caller.dataset(rows=rows()))
    told = asked(caller, model, conditions={"all_of": ["ICD10CM:E84"]}).json()
    assert told["support"] == NOTHING and told["training_records"] is None and told["seconds"] is not None
    assert "train it again" in told["unknown"] and "train it again" in told["withheld"]
    assert told["relaxation"] is None
    contradictory = {"all_of": ["ICD10CM:E84", "ICD10CM:E11"], "none_of": ["ICD10CM:E8*"]}
    told = asked(caller, model, conditions=contradictory).json()
    assert told["relaxation"]["conditions"]["all_of"] == ["ICD10CM:E84", "ICD10CM:E11"]  # one term is dropped, not two
    assert told["relaxation"]["dropped"] == [{"field": "none_of", "codes": ["ICD10CM:E8*"]}]


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"verdict": COPIES}, "copies of training records"),
        ({"verdict": None, "absent": "the terms of this data forbid attacks"}, "the terms of this data forbid attacks"),
    ],
)
def test_records_that_copy_patients_or_were_not_checked_are_not_asked(
    caller: Caller, facts: dict[str, Any], words: str
) -> None:
    model = trained(caller, **facts)
    for conditions in ({}, {"all_of": ["ICD10CM:E11"]}, {"all_of": ["ICD10CM:E99"]}):
        told = asked(caller, model, conditions=conditions).json()
        assert told["support"] == NOTHING and words in told["unknown"]
        assert (told["withheld"] is None) == ((not conditions and "terms" in words) or "E99" in str(conditions))


def test_nothing_drawn_satisfies_it(caller: Caller) -> None:
    """Accepted with a warning in the job; the estimate offers what can be had."""
    model = trained(caller)
    conditions = {"all_of": ["ICD10CM:E84", "ICD10CM:E11"]}
    told = asked(caller, model, conditions=conditions).json()
    assert told["feasible"] and told["support"] == {"matching": 0, "drawn": 1000, "share": 0}
    assert told["relaxation"]["conditions"]["all_of"] == ["ICD10CM:E11"]  # the one more have
    answer = asked(caller, model, "/generate", conditions=conditions)
    assert answer.status_code == 202
    assert answer.json()["warnings"] == told["warnings"][:3]
    assert "fewer than 50 patients" in told["withheld"] and "custodian" in told["warnings"][0]
    assert "none of the 1,000 records that the model drew once satisfy the condition" in told["warnings"][1]
    assert "warnings" not in answer.json()["request"]


def test_a_few_drawn_records_satisfy_it(caller: Caller) -> None:
    """Counts are of synthetic records: they are told as they are."""
    told = asked(caller, trained(caller), conditions={"all_of": ["ICD9DX:25000"]}).json()
    assert told["support"]["matching"] == 10 and "only 10 of the 1,000 records" in told["warnings"][1]
    more = asked(caller, trained(caller, training_records=10_000), conditions={"all_of": ["ICD9DX:25000"]}).json()
    assert more["support"] == told["support"] and more["withheld"] is None  # about a hundred patients


def battery(seed: int) -> list[dict[str, Any]]:
    """Conditions of all kinds, and those that told of single patients when they were counted."""
    rng = np.random.default_rng(seed)
    found: list[dict[str, Any]] = [{"conditions": {"any_of": [[a, CODES[D401]] for a in CODES[:3]]}}]
    for _ in range(6):
        codes = [str(code) for code in rng.choice(CODES, 4, replace=False)]
        found += [
            {"conditions": {"all_of": codes[:2]}},
            {"conditions": {"any_of": [[codes[0], codes[1]], [codes[2], codes[1]]], "none_of": codes[3:]}},
            {"conditions": {"all_of": codes[:1]}, "targets": [{"codes": codes[1:2], "share": 0.5}]},
            {"conditions": {"all_of": codes, "none_of": ["ICD10CM:E99"]}},
        ]
    return found


def visible(caller: Caller, model: str) -> list[bytes]:
    """Everything that estimates and submissions show of these requests, but ids and times."""
    shown = []
    for request in battery(5):
        shown.append(asked(caller, model, **request).content)
        answer = asked(caller, model, "/generate", **request)
        shown.append(f"{answer.status_code} {answer.json().get('warnings')} {answer.json().get('detail')}".encode())
    return shown


def test_answers_do_not_depend_on_the_patients(caller: Caller) -> None:
    """The same bundle over data with one patient more, with other patients, and with none: the same bytes."""
    dataset, other = (caller.dataset(rows=[*rows(), *more]) for more in ([], [[E10, E11, E84, D250, D401]]))
    model = trained(caller, dataset_id=dataset)
    analyst = caller.front.as_owner(caller.owner, "generate", "read")
    before = visible(analyst, model)
    with caller.front.services.database.session_scope() as session:
        mine, theirs = (DatasetRepository(session).get(caller.owner, each) for each in (dataset, other))
        mine.prefix, mine.manifest_hash = theirs.prefix, theirs.manifest_hash
    assert visible(analyst, model) == before
    told = asked(caller, model, n=5).json()["warnings"]
    assert caller.http.delete(f"/datasets/{dataset}").status_code == 204
    assert visible(analyst, model) == before
    assert DATA_GONE not in told and DATA_GONE in asked(caller, model, n=5).json()["warnings"]  # custodians know
    assert len(set(before)) > len(before) / 3  # they do depend on what was asked


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
    assert [target["meeting"]["matching"] for target in told["targets"]] == [450, 10]
    assert [target["others"]["matching"] for target in told["targets"]] == [550, 990]
    few = [warning for warning in told["warnings"] if "records that the model drew once" in warning]
    assert [warning.partition(":")[0] for warning in few if warning.startswith("only")] == [
        "only 10 of the 1,000 records that the model drew once have ICD9DX"
    ]
    assert told["relaxation"]["targets"] == targets[:1]  # the rarer one would be withheld
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


# --- the nearest relaxation ---


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_the_nearest_drops_as_few_terms_as_can_be(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dense = rng.random((200, 6)) < 0.25
    reference = ReferenceCohort(csr([np.flatnonzero(row).tolist() for row in dense], 6), 200)
    vocabulary = Vocabulary(CODES)
    terms = terms_of(vocabulary, AskedCondition(all_of=list(CODES[:3]), any_of=[list(CODES[3:5])], none_of=[CODES[5]]))
    holds = [reference.holds(term.requirement) for term in terms]

    def supported(chosen: tuple[int, ...]) -> bool:
        return bool(np.logical_and.reduce([holds[i] for i in chosen]).sum() >= 11)

    largest = max(size for size in range(1, 6) for chosen in combinations(range(5), size) if supported(chosen))
    found = nearest(vocabulary, reference, terms, 11)
    assert len(terms) - len(found.dropped) == largest
    assert reference.count([term.requirement for term in found.terms]) >= 11


def test_a_hundred_terms_are_relaxed_at_once() -> None:
    n = 120
    reference = ReferenceCohort(csr([[code, (code + 1) % n] for code in range(n)] * 15, n), 1800)
    vocabulary = Vocabulary(tuple(f"X:{code:03d}" for code in range(n)))
    terms = terms_of(vocabulary, AskedCondition(all_of=list(vocabulary.codes[:100])))
    assert len(nearest(vocabulary, reference, terms, 15).conditions.all_of) == 2


def test_the_index_counts_as_a_scan_does() -> None:
    rng = np.random.default_rng(3)
    dense = rng.random((300, 5)) < 0.3
    records: Records = csr([np.flatnonzero(row).tolist() for row in dense], 5)
    reference = ReferenceCohort(records, 1500)
    assert np.array_equal(reference.holds(Requirement((1, 3))), dense[:, 1] | dense[:, 3])
    assert np.array_equal(reference.holds(Requirement((2, 4), wanted=False)), ~(dense[:, 2] | dense[:, 4]))
    assert reference.count([]) == 300 and reference.expected_patients(30) == 150 and reference.fewest_for(51) == 11
    parts = [dense[dense[:, 0]][:, [1, 2]].tolist().count([a, b]) for a in (False, True) for b in (False, True)]
    assert reference.smallest_part([Requirement((0,))], [(1,), (2,)]) == min(parts)


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
