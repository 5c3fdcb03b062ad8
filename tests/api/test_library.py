"""Datasets, models, cohorts and reports: what finished work looks like from outside."""

import csv
import io
import json
import zipfile
from typing import Any

import pyarrow.parquet as pq
import pytest

from ehr.formats import WRITERS
from ehr.formats.spreadsheet import defused
from model_store.cohorts import BLOCK_RECORDS
from model_store.repositories import ModelRepository
from tests.api.front import CODES, Caller, Front
from tests.api.test_problems import assert_problem

PARTS = [[[0, 2], [], [5]], [[1], [0, 1, 2, 3, 4, 5]], [[]]]
RECORDS = [[CODES[code] for code in record] for part in PARTS for record in part]


def read_csv(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


def test_small_counts_are_not_shown(caller: Caller) -> None:
    """Of 400 records all have the first code, half the second, ten the third; nobody has the rest."""
    dataset = caller.dataset()
    answer = caller.http.get(f"/datasets/{dataset}").json()
    assert answer["summary"]["records"] == 400 and answer["n_codes"] == len(CODES)
    codes = {c["code"]: c["records"] for c in caller.http.get(f"/datasets/{dataset}/codes").json()["items"]}
    assert codes == {CODES[0]: 400, CODES[1]: 200, CODES[2]: None, CODES[3]: 0, CODES[4]: 0, CODES[5]: 0}


def test_codes_are_searched_and_paged(caller: Caller) -> None:
    dataset = caller.dataset()
    with caller.client() as client:
        assert [c["code"] for c in client.codes(dataset, "icd9dx:250")] == ["ICD9DX:25000", "ICD9DX:25001"]
    first = caller.http.get(f"/datasets/{dataset}/codes", params={"limit": 4}).json()
    rest = caller.http.get(f"/datasets/{dataset}/codes", params={"limit": 4, "cursor": first["next_cursor"]}).json()
    assert [c["code"] for c in first["items"] + rest["items"]] == list(CODES)
    assert rest["next_cursor"] is None
    for cursor in ("-1", "x", "9" * 30, "²"):
        answer = caller.http.get(f"/datasets/{dataset}/codes", params={"cursor": cursor})
        assert_problem(answer, 422, "invalid-request")


def test_lists(caller: Caller) -> None:
    made = {"datasets": caller.dataset(), "models": caller.model(), "cohorts": caller.cohort(PARTS)}
    for kind, thing in made.items():
        items = caller.http.get(f"/{kind}").json()["items"]
        assert [item.get("id", item.get("job_id")) for item in items] == [thing]


def test_bundle(caller: Caller) -> None:
    model = caller.model()
    answer = caller.http.get(f"/models/{model}/bundle")
    assert answer.headers["content-type"] == "application/zip"
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert set(archive.namelist()) == {"manifest.json", "weights.safetensors", "model.json"}
        assert json.loads(archive.read("manifest.json"))["vocabulary"] == list(CODES)


def test_a_damaged_bundle_is_refused(front: Front, caller: Caller) -> None:
    model = caller.model()
    front.damage(f"models/{model}/a1/weights.safetensors", b"wEights")
    assert_problem(caller.http.get(f"/models/{model}/bundle"), 500, "corrupt")


def test_a_model_whose_files_are_gone(front: Front, caller: Caller) -> None:
    model = caller.model()
    front.services.store.delete_folder(f"models/{model}")
    assert_problem(caller.http.get(f"/models/{model}/bundle"), 503, "store-unavailable")
    body = {"model_id": model, "n": 1, "conditions": {"all_of": [CODES[0]]}}
    assert_problem(caller.http.post("/generate", json=body), 503, "store-unavailable")


def test_cohort_as_long_csv(caller: Caller) -> None:
    cohort = caller.cohort(PARTS)
    answer = caller.http.get(f"/cohorts/{cohort}/records")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert f'filename="{cohort}.csv"' in answer.headers["content-disposition"]
    header, *rows = read_csv(answer.text)
    assert header == ["record_id", "vocabulary", "code"]
    expected = [[str(i), *code.split(":", 1)] for i, record in enumerate(RECORDS) for code in record]
    assert rows == expected


def test_cohort_as_ndjson(caller: Caller) -> None:
    answer = caller.http.get(f"/cohorts/{caller.cohort(PARTS)}/records", params={"format": "ndjson"})
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert lines == [{"record_id": i, "codes": record} for i, record in enumerate(RECORDS)]


def test_cohort_as_parquet(caller: Caller) -> None:
    answer = caller.http.get(f"/cohorts/{caller.cohort(PARTS)}/records", params={"format": "parquet"})
    table = pq.read_table(io.BytesIO(answer.content)).to_pylist()
    assert table == [{"record_id": i, "code": code} for i, record in enumerate(RECORDS) for code in record]


def test_unknown_format_names_the_known(caller: Caller) -> None:
    answer = caller.http.get(f"/cohorts/{caller.cohort(PARTS)}/records", params={"format": "xlsx"})
    detail = str(assert_problem(answer, 422, "invalid-request")["detail"])
    assert all(known.name in detail for known in WRITERS)


EVIL = ('=HYPERLINK("http://x","y")', "+1", "-2", "@SUM(A1)", "\tx", 'q"uote', "com,ma", "ICD10CM:=1+1", "ICD10CM:-5")


def test_csv_cells_are_defused(caller: Caller) -> None:
    cohort = caller.cohort([[list(range(len(EVIL)))]], EVIL)
    rows = read_csv(caller.http.get(f"/cohorts/{cohort}/records").text)[1:]
    assert len(rows) == len(EVIL)
    for row in rows:
        for cell in row:
            assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
    assert rows[0][2].startswith("'=HYPERLINK") or rows[0][1].startswith("'=HYPERLINK")
    assert rows[-1] == ["0", "ICD10CM", "'-5"]
    lines = caller.http.get(f"/cohorts/{cohort}/records", params={"format": "ndjson"}).json()
    assert lines["codes"] == list(EVIL)  # other formats have no formulas and stay as they are


def test_defused() -> None:
    assert defused("E84") == "E84"
    assert defused("=1") == "'=1"
    assert defused('a"b') == '"a""b"'


def test_a_damaged_part_is_not_sent(front: Front, caller: Caller) -> None:
    cohort = caller.cohort(PARTS)
    part = f"cohorts/{cohort}/parts/p0.parquet"
    front.damage(part, front.services.store.read(part)[:-1] + b"x")
    for known in WRITERS:
        answer = caller.http.get(f"/cohorts/{cohort}/records", params={"format": known.name})
        assert_problem(answer, 500, "corrupt")


def test_a_part_damaged_later_breaks_the_answer_off(front: Front, caller: Caller) -> None:
    """A status can no longer tell; a connection that ends early can."""
    cohort = caller.cohort([[[0]] * BLOCK_RECORDS] * 6)
    front.damage(f"cohorts/{cohort}/parts/p5.parquet", b"nonsense")
    import httpx

    with pytest.raises(httpx.RemoteProtocolError):
        caller.http.get(f"/cohorts/{cohort}/records", params={"format": "ndjson"})


def listed(caller: Caller, of: str, **query: Any) -> list[str]:
    """The ids of all pages, two at a time."""
    found, cursor = [], None
    while True:
        params = query | {"limit": 2} | ({} if cursor is None else {"cursor": cursor})
        page = caller.http.get(f"/{of}", params=params).raise_for_status().json()
        found += [item.get("id") or item["job_id"] for item in page["items"]]
        if (cursor := page["next_cursor"]) is None:
            return found


def test_lists_filter_and_sort(caller: Caller) -> None:
    data = caller.dataset()
    models = [
        caller.model(dataset_id=data if i < 3 else None, generator=g) for i, g in enumerate(["d3pm"] * 4 + ["tabsyn"])
    ]
    with caller.front.services.database.session_scope() as session:
        for name, model in zip(("b", "A 100%", "c", "a_1", "B"), models, strict=True):
            ModelRepository(session).get(caller.owner, model).name = name
    assert listed(caller, "models") == models[::-1] and listed(caller, "models", sort="created_at") == models
    by_name = listed(caller, "models", sort="name")
    assert sorted(by_name) == sorted(models) and listed(caller, "models", sort="-name") == by_name[::-1]
    assert set(listed(caller, "models", dataset_id=data)) == set(models[:3])
    assert listed(caller, "models", generator="tabsyn") == [models[4]]
    assert set(listed(caller, "models", name="B")) == {models[0], models[4]}  # in capitals or not
    assert listed(caller, "models", name="%") == [models[1]] and listed(caller, "models", name="_") == [models[3]]
    assert listed(caller, "models", id=models[2][:14]) == [models[2]]
    for model, tags in zip(models, (["pilot", 'ä"b'], ["pilots"], ["pilot"]), strict=False):
        caller.http.patch(f"/models/{model}", json={"tags": tags}).raise_for_status()
    assert set(listed(caller, "models", tag="pilot")) == {models[0], models[2]}
    assert listed(caller, "models", tag='ä"b', generator="d3pm") == [models[0]]
    assert listed(caller, "models", tag="pil") == []
    job = caller.job("train", name="x")
    assert listed(caller, "jobs", id=job[:12], state="queued", kind="train") == [job]
    cohort = caller.cohort([[[0]]], model_id=models[0])
    assert listed(caller, "cohorts", model_id=models[0]) == [cohort] and listed(caller, "cohorts", model_id="x") == []
    cursor = caller.http.get("/models", params={"sort": "name", "limit": 1}).json()["next_cursor"]
    assert_problem(caller.http.get("/models", params={"cursor": cursor}), 422, "invalid-request")  # of another order
    assert_problem(caller.http.get("/models", params={"id": "%"}), 422, "invalid-request")


def test_a_parameter_that_nobody_reads_is_refused(caller: Caller) -> None:
    found = assert_problem(caller.http.get("/models?nmae=x&limit=2"), 422, "invalid-request")
    assert str(found["detail"]).startswith("query.nmae: unknown parameter; known: cursor, dataset_id, generator, id, ")
    assert_problem(caller.http.get("/healthz?x=1"), 422, "invalid-request")
    assert_problem(caller.http.post("/train?dry=1", json={}), 422, "invalid-request")
    model = caller.model()
    assert_problem(caller.http.delete(f"/models/{model}?force=1"), 422, "invalid-request")
    assert caller.http.get(f"/models/{model}").status_code == 200
