"""Codes by their names, and as anyone writes them, over HTTP and on the command line."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ehr.codes import meanings
from ehr.formats import WRITERS
from ehr_d3pm import ApiError, Client
from tests.api.front import CODES, Caller, Front
from tests.api.test_cli import as_caller, in_process
from tests.api.test_problems import assert_problem
from tests.service.stand import Stand

NAMES = {"ICD10CM:E84": "Mucoviscidosis", "ICD9DX:4019": "High blood pressure", "ICD10CM:E11": "Type 2 diabetes"}


def asked(caller: Caller, model: str, path: str = "/generate", **body: Any) -> Any:
    return caller.http.post(path, json={"model_id": model, "n": 100} | body)


def searched(caller: Caller, path: str, text: str, **query: Any) -> list[str]:
    answer = caller.http.get(f"{path}/codes", params={"search": text, **query})
    assert answer.status_code == 200, answer.text
    return [item["code"] for item in answer.json()["items"]]


def test_codes_are_searched_by_meaning_with_and_without_their_data(caller: Caller, stranger: Caller) -> None:
    dataset = caller.dataset(names=NAMES)
    model = caller.model(dataset_id=dataset, names=NAMES)
    for path in (f"/datasets/{dataset}", f"/models/{model}"):
        assert searched(caller, path, "pressure HIGH") == ["ICD9DX:4019"]
        assert searched(caller, path, "mucoviscidosys") == ["ICD10CM:E84"]
        assert searched(caller, path, "E1") == ["ICD10CM:E10", "ICD10CM:E11"]
        assert searched(caller, path, "cystic") == []  # the names are those of the upload
        assert_problem(stranger.http.get(f"{path}/codes"), 404, "not-found")
    page = caller.http.get(f"/models/{model}/codes", params={"limit": 4}).json()
    rest = caller.http.get(f"/models/{model}/codes", params={"limit": 4, "cursor": page["next_cursor"]}).json()
    assert [item["code"] for item in page["items"] + rest["items"]] == list(CODES) and rest["next_cursor"] is None
    assert page["items"][2] == {"code": "ICD10CM:E84", "description": "Mucoviscidosis"}  # and no counts
    caller.http.delete(f"/datasets/{dataset}")
    assert searched(caller, f"/models/{model}", "mucoviscidosis") == ["ICD10CM:E84"]
    with caller.client() as client:
        assert [code["code"] for code in client.codes(model, "diabetes")] == ["ICD10CM:E11"]


def test_kept_names_need_no_tables(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables take seconds to read: what was ingested by this version never asks for them."""

    def read() -> None:
        raise AssertionError("the tables were read")

    meanings.description.cache_clear()
    monkeypatch.setattr(meanings, "_icd10cm", read)
    monkeypatch.setattr(meanings, "_table", lambda _: read())
    model = caller.model(names=NAMES)
    assert searched(caller, f"/models/{model}", "diabetes") == ["ICD10CM:E11"]
    assert_problem(asked(caller, model, conditions={"all_of": ["ICD10CM:E85"]}), 422, "unknown-code")


@pytest.mark.parametrize(
    ("code", "meant"),
    [("e11", "ICD10CM:E11"), ("icd10cm:e11", "ICD10CM:E11"), (" ICD9:250.00 ", "ICD9DX:25000"), ("e1*", "ICD10CM:E1*")],
)
def test_a_condition_is_read_as_an_upload_is(caller: Caller, code: str, meant: str) -> None:
    model = caller.model(names=NAMES)
    conditions = {"all_of": [code], "any_of": [], "none_of": ["ICD9DX:4019"]}
    targets = [{"codes": ["e84"], "share": 0.5}]
    job = asked(caller, model, conditions=conditions, targets=targets).json()
    assert job["request"]["conditions"] == conditions | {"all_of": [meant]}
    assert job["request"]["targets"] == [{"codes": ["ICD10CM:E84"], "share": 0.5}]
    assert job["request"]["as_asked"] == {"conditions": conditions, "targets": targets}
    told = asked(caller, model, "/generate/estimate", conditions=conditions, targets=targets).json()
    for warnings in (job["warnings"], told["warnings"]):
        assert warnings[0].startswith(f"'{code}' was read as '{meant}'")
        assert warnings[1] == "'e84' was read as 'ICD10CM:E84' (Mucoviscidosis)"
    plain = asked(caller, model, conditions={"all_of": ["ICD10CM:E11"]}).json()
    assert "as_asked" not in plain["request"] and not any("was read as" in each for each in plain["warnings"])


def test_an_unknown_code_comes_with_candidates(caller: Caller) -> None:
    model = caller.model(names=NAMES)
    problem = assert_problem(asked(caller, model, conditions={"none_of": ["ICD10CM:E85"]}), 422, "unknown-code")
    assert problem["detail"] == "unknown code 'ICD10CM:E85'; did you mean 'ICD10CM:E84' (Mucoviscidosis)?"
    assert problem["candidates"] == [{"code": "ICD10CM:E84", "name": "Mucoviscidosis"}]
    told = asked(caller, model, "/generate/estimate", conditions={"none_of": ["ICD10CM:E85"]}).json()
    assert told["candidates"] == problem["candidates"] and told["problem"] == problem["detail"]
    rolled_up = assert_problem(asked(caller, model, targets=[{"codes": ["E11.65"], "share": 0.1}]), 422, "unknown-code")
    assert rolled_up["candidates"][0] == {"code": "ICD10CM:E11", "name": "Type 2 diabetes"}  # type: ignore[index]
    words = assert_problem(asked(caller, model, conditions={"all_of": ["blood pressure"]}), 422, "unknown-code")
    assert words["candidates"] == [{"code": "ICD9DX:4019", "name": "High blood pressure"}]
    labels = {"cohort_id": caller.cohort([[[0]]]), "dataset_id": caller.dataset(names=NAMES), "labels": ["E85"]}
    refused = assert_problem(caller.http.post("/reports", json=labels), 422, "unknown-code")
    assert refused["candidates"] == problem["candidates"]


def test_an_ambiguous_code_comes_with_what_it_may_be(caller: Caller) -> None:
    model = caller.model((*CODES, "CPT:25000"))
    for code, meanings_of in (("25000", ["ICD9DX:25000", "CPT:25000"]), ("25*", ["ICD9DX:25*", "CPT:25*"])):
        problem = assert_problem(asked(caller, model, conditions={"all_of": [code]}), 422, "unknown-code")
        candidates: Any = problem["candidates"]
        assert "several" in str(problem["detail"]) and [each["code"] for each in candidates] == meanings_of
        sent = asked(caller, model, conditions={"all_of": [candidates[0]["code"]]})
        assert sent.status_code == 202


def test_a_relaxation_proposes_the_closest_code(caller: Caller) -> None:
    model = caller.model(names=NAMES)
    conditions = {"all_of": ["ICD10CM:E85", "ICD10CM:E11"], "any_of": [["E10", "Z:123"]], "none_of": ["nothing"]}
    targets = [{"codes": ["ICD9DX:4018"], "share": 0.5}, {"codes": ["Q"], "share": 0.1}]
    problem: Any = assert_problem(asked(caller, model, conditions=conditions, targets=targets), 422, "unknown-code")
    relaxation = problem["relaxation"]
    assert relaxation["conditions"] == {
        "all_of": ["ICD10CM:E84", "ICD10CM:E11"], "any_of": [["ICD10CM:E10"]], "none_of": []
    }  # fmt: skip
    assert relaxation["targets"] == [{"codes": ["ICD9DX:4019"], "share": 0.5}]
    assert relaxation["replaced"] == [
        {"field": "all_of", "asked": "ICD10CM:E85", "code": "ICD10CM:E84", "name": "Mucoviscidosis"},
        {"field": "targets", "asked": "ICD9DX:4018", "code": "ICD9DX:4019", "name": "High blood pressure"},
    ]
    unknown = [(each["field"], each["codes"]) for each in relaxation["dropped"] if "no close code" in each["reason"]]
    assert unknown == [("any_of", ["Z:123"]), ("none_of", ["nothing"]), ("targets", ["Q"])]
    sent = asked(caller, model, conditions=relaxation["conditions"], targets=relaxation["targets"])
    assert sent.status_code == 202 and not any("was read as" in each for each in sent.json()["warnings"])


def test_a_request_full_of_unknown_codes_is_answered(caller: Caller) -> None:
    model = caller.model(tuple(f"ICD10CM:A{i:04d}" for i in range(3_000)))
    conditions = {"all_of": [f"ICD10CM:A{i}x" for i in range(1_000, 1_100)]}
    problem: Any = assert_problem(asked(caller, model, conditions=conditions), 422, "unknown-code")
    relaxation = problem["relaxation"]
    assert len(relaxation["replaced"]) == 10 and len(relaxation["dropped"]) == 90


def test_names_beside_the_codes_of_a_download(caller: Caller, tmp_path: Path) -> None:
    cohort = caller.cohort([[[0, 2]], [[]]], names=NAMES)
    rows = csv.DictReader(io.StringIO(caller.http.get(f"/cohorts/{cohort}/records?names=true").text))
    assert [row["name"] for row in rows] == ["", "Mucoviscidosis"]
    for writer in WRITERS:
        answer = caller.http.get(f"/cohorts/{cohort}/records", params={"format": writer.name, "names": True})
        if writer.has_names:
            assert answer.status_code == 200
        else:
            problem = assert_problem(answer, 422, "invalid-request")
            assert "long.csv" in str(problem["detail"])
    assert [writer.name for writer in WRITERS if not writer.has_names] == ["wide.csv"]
    with caller.client() as client:
        client.download(cohort, tmp_path / "x.ndjson", "ndjson", names=True)
        assert json.loads((tmp_path / "x.ndjson").read_text().splitlines()[0])["names"] == [None, "Mucoviscidosis"]
        with pytest.raises(ApiError, match="no place for names"):
            client.download(cohort, tmp_path / "x", "wide.csv", names=True)


def test_the_command_line_knows_names(sqlite_caller: Caller, tmp_path: Path) -> None:
    caller = sqlite_caller
    model = caller.model(names=NAMES)  # whose data was never here
    assert "High blood pressure" in in_process(caller, "codes", model, "blood presure")
    refused = as_caller(caller, "generate", model, "--all-of", "ICD10CM:E85", "--json")
    assert refused.exit_code == 4 and "did you mean 'ICD10CM:E84' (Mucoviscidosis)?" in refused.stderr
    assert json.loads(refused.stdout)["candidates"] == [{"code": "ICD10CM:E84", "name": "Mucoviscidosis"}]
    estimated = in_process(caller, "estimate", model, "--all-of", "ICD10CM:E85", "--none-of", "nothing")
    assert "with ICD10CM:E84 (Mucoviscidosis) for ICD10CM:E85; without none_of nothing (unknown" in estimated
    assert "'e84' was read as 'ICD10CM:E84'" in in_process(caller, "estimate", model, "--all-of", "e84")
    target = tmp_path / "cohort.csv"
    in_process(caller, "download", caller.cohort([[[2]]], names=NAMES), "--names", "-o", str(target))
    assert target.read_text().splitlines() == ["record_id,vocabulary,code,name", "0,ICD10CM,E84,Mucoviscidosis"]


# --- the whole way, with a worker ---


def ward(n: int) -> str:
    """Records with a lesion of one of three kinds that the source names, and a note that is about one patient."""
    rng = np.random.default_rng(0)
    lines = ["record_id,patient_id,vocabulary,code,description"]
    for record in range(n):
        kind = int(rng.integers(3))
        lines.append(f"r{record},p{record},LESION,{kind},{('Scar', 'Mole', 'Wart')[kind]}")
        lines.append(f"r{record},p{record},NOTE,1,seen by the sister of patient {record}")
        lines += [f"r{record},p{record},ICD10CM,E11.65,"] * bool(rng.random() < 0.5)
    return "\n".join(lines) + "\n"


def test_names_outlive_the_data(sqlite_stand: Stand, tmp_path: Path) -> None:
    (tmp_path / "ward.csv").write_text(ward(600))
    with Front(sqlite_stand.settings) as front, Client(front.url, front.key("steward")) as client:
        dataset = client.wait(client.upload([tmp_path / "ward.csv"]))["result"]["dataset_id"]
        known = {code["code"]: code["description"] for code in client.codes(dataset)}
        hyperglycemia = "Type 2 diabetes mellitus with hyperglycemia"
        assert known["LESION:1"] == "Mole" and known["ICD10CM:E11.65"] == hyperglycemia and known["NOTE:1"] is None
        model = client.wait(client.train(dataset, generator="independent"))["result"]["model_id"]
        job = client.wait(client.generate(model, 400, all_of="e1165", targets={"lesion:2": 0.5}, evaluate=False))
        assert job["request"]["conditions"]["all_of"] == ["ICD10CM:E11.65"]
        assert client.cohort(job["id"])["manifest"]["request"]["as_asked"]["conditions"]["all_of"] == ["e1165"]
        for thing in ("datasets", "models"):
            assert [code["code"] for code in client.codes(model, "wrat")] == ["LESION:2"]
            client.delete(thing, dataset if thing == "datasets" else model)
        client.download(job["id"], tmp_path / "named.csv", names=True)
    rows = csv.DictReader(io.StringIO((tmp_path / "named.csv").read_text()))
    names = {(row["code"], row["name"]) for row in rows}
    assert ("0", "Scar") in names and ("E11.65", hyperglycemia) in names
    assert all("sister" not in name for _, name in names)
