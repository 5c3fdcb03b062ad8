"""A model goes out of one instance and into another, and nothing of it is changed on the way."""

import hashlib
import io
import json
import zipfile
from typing import Any

import httpx
import pytest

from ehr.audits import ModelAudit
from ehr.shareable import ModelReport
from model_store.bundles import load_bundle
from model_store.files import pack_arrays
from model_store.ids import JOB, new_id
from model_store.repositories import ModelRepository
from tests.api.front import GOOD, Caller
from tests.api.test_problems import assert_problem
from tests.service.servers import wait_until

AUDIT = ModelAudit(verdict=GOOD, rare_conditions=GOOD)
REPORT = ModelReport(report_id=new_id(JOB), records=5000, families={"fidelity": GOOD}, withholds=False)


def bundle_of(caller: Caller, **changes: Any) -> tuple[str, bytes]:
    """A model that can be imported: the front's own have no weights and no generator in their config."""
    drawn = [[0, *([1] if i % 2 else [])] for i in range(400)]
    model = caller.model(drawn=drawn, audit=AUDIT, more={"report": REPORT.model_dump(mode="json")})
    zipped = caller.http.get(f"/models/{model}/bundle").content
    manifest = json.loads(read(zipped)["manifest.json"])
    manifest["config"]["generator"] = "d3pm"
    manifest["audit"] = AUDIT.model_dump(mode="json")
    return model, rewritten(zipped, {"weights.safetensors": pack_arrays({})}, manifest | changes)


def read(zipped: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(zipped)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewritten(zipped: bytes, files: dict[str, bytes], manifest: dict[str, Any]) -> bytes:
    """The same zip with other files, and a manifest that knows them."""
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    contents = read(zipped) | files
    contents["manifest.json"] = json.dumps(manifest | {"files": manifest["files"] | hashes}).encode()
    return packed(contents)


def packed(contents: dict[str, bytes]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, data in contents.items():
            archive.writestr(name, data)
    return target.getvalue()


def sent(caller: Caller, data: bytes, **fields: str) -> httpx.Response:
    return caller.http.post("/models/import", files={"file": ("b.zip", data)}, data=fields)


def test_a_model_arrives_with_what_is_known_about_it(sqlite_caller: Caller) -> None:
    there, here = sqlite_caller, sqlite_caller.front.as_owner(f"other than {sqlite_caller.owner}"[:60])
    _, data = bundle_of(there)
    answer = sent(here, data)
    assert answer.status_code == 201, answer.text
    model = answer.json()
    assert model["name"] == "model" and model["generator"] == "d3pm" and model["n_codes"] == 6
    assert model["verdicts"]["audit"]["level"] == "good" and model["verdicts"]["families"].keys() == {"fidelity"}
    again = here.http.get(f"/models/{model['id']}/bundle").content
    assert read(again) == read(data)  # byte for byte, also after another export
    assert there.http.get(f"/models/{model['id']}").status_code == 404
    estimated = here.http.post(
        "/generate/estimate", json={"model_id": model["id"], "n": 100, "conditions": {"all_of": ["ICD10CM:E11"]}}
    ).json()
    assert estimated["support"] == {"matching": 200, "drawn": 400, "share": 0.5} and estimated["withheld"] is None
    with here.front.services.database.read_scope() as session:
        row = ModelRepository(session).get(here.owner, model["id"])
    assert load_bundle(here.front.services.store, row.prefix, row.manifest_hash).manifest.audit is not None
    named = sent(here, data, name="theirs", manifest_hash=model["manifest_hash"]).json()
    assert named["name"] == "theirs"
    assert_problem(sent(here, data, manifest_hash="0" * 64), 422, "bad-data")


def test_what_is_not_as_it_was_is_refused_and_leaves_nothing(sqlite_caller: Caller) -> None:
    caller = sqlite_caller
    store = caller.front.services.store
    _, data = bundle_of(caller)
    before = set(store.list("models"))
    contents = read(data)
    manifest = json.loads(contents["manifest.json"])
    weights = contents["weights.safetensors"]
    bad: dict[str, bytes] = {
        "no zip": b"PK nothing",
        "cut off": data[: len(data) // 2],
        "a flipped byte": packed(contents | {"weights.safetensors": weights[:-1] + b"X"}),
        "a file too many": packed(contents | {"../../etc/passwd": b"x"}),
        "a path": rewritten(data, {"../weights": b"x"}, manifest),
        "no weights": packed({name: value for name, value in contents.items() if name != "weights.safetensors"}),
        "no safetensors": rewritten(data, {"weights.safetensors": b"x" * 100}, manifest),
        "another vocabulary": rewritten(data, {}, manifest | {"vocabulary": ["A:1"]}),
        "another format": rewritten(data, {}, manifest | {"format": "ehr-d3pm dataset"}),
        "codes outside": rewritten(
            data, {"reference.safetensors": contents["reference.safetensors"][:-8] + b"\xff" * 8}, manifest
        ),
        "no JSON": packed(contents | {"manifest.json": b"{"}),
        "an audit of nothing": rewritten(data, {}, manifest | {"audit": {"verdict": "good"}}),
        "rules of nothing": rewritten(data, {}, manifest | {"config": {"generator": "d3pm", "groups": [{"a": 1}]}}),
    }
    for what, zipped in bad.items():
        answer = sent(caller, zipped)
        assert (answer.status_code, answer.json()["type"].split(":")[-1]) == (422, "bad-data"), (what, answer.text)
    unknown = rewritten(data, {}, manifest | {"config": {"generator": "magic"}})
    assert_problem(sent(caller, unknown), 422, "invalid-request")
    assert len(caller.http.get("/models").json()["items"]) == 1
    wait_until(lambda: set(store.list("models")) == before, "removal of what was written")
    two = [("file", ("a.zip", data)), ("file", ("b.zip", data))]
    assert_problem(caller.http.post("/models/import", files=two), 422, "invalid-request")


@pytest.mark.parametrize("scopes", [("read", "generate"), ("data", "train", "generate", "read")])
def test_only_admins_bring_models_in(sqlite_caller: Caller, scopes: tuple[str, ...]) -> None:
    assert_problem(sent(sqlite_caller.front.as_owner("someone else", *scopes), b"x"), 403, "forbidden")
