"""The audit trail: what was done, what was refused, and reading it."""

import json
import secrets
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import func, select

from app.denials import Denial, Denials
from model_store.repositories import KeyRepository
from model_store.tables import Audit
from tests.api.front import CODES, Caller, Front
from tests.api.test_problems import assert_problem
from tests.service.servers import wait_until


@pytest.fixture
def admin(front: Front, caller: Caller) -> Caller:
    return front.as_owner(caller.owner, "admin")


def trail(admin: Caller, **wanted: Any) -> list[dict[str, Any]]:
    return list(admin.http.get("/audit", params=wanted).json()["items"])


def test_requests_are_kept_without_their_codes(admin: Caller, caller: Caller) -> None:
    model = caller.model()
    body = {"model_id": model, "n": 7, "conditions": {"all_of": ["ICD10CM:E11"], "none_of": ["ICD9DX:*"]}}
    again = body | {"conditions": {"any_of": [["ICD10CM:E11"]], "none_of": ["ICD9DX:250*", "ICD9DX:4019"]}}
    assert caller.http.post("/generate/estimate", json=body).status_code == 200
    for request in (again, {"model_id": model, "n": 3}):
        assert caller.http.post("/generate", json=request).status_code == 202
    rows = trail(admin)
    estimate = next(row for row in rows if row["action"] == "estimate")
    free, conditioned = (row for row in rows if row["action"] == "submit generate")
    assert estimate["target"] == model and len(estimate["detail"]["condition"]) == 64
    asked = {"model_id": model, "records": 7, "condition": estimate["detail"]["condition"], "is_small": True}
    assert conditioned["detail"] == asked
    assert free["detail"]["condition"] is None
    assert not any(code.split(":")[1] in json.dumps(rows) for code in CODES)


def test_refusals_are_kept(front: Front, admin: Caller, caller: Caller, stranger: Caller) -> None:
    dataset, model = caller.dataset(), caller.model()
    reader = front.as_owner(caller.owner, "read")
    for _ in range(3):
        assert reader.http.post("/train", json={"dataset_id": dataset}).status_code == 403
    assert stranger.http.get(f"/models/{model}").status_code == 404
    assert caller.http.get("/models/mdl_" + "0" * 32).status_code == 404
    assert front.get("/models", headers={"Authorization": "Bearer ehr_wrong"}).status_code == 401
    own = {"action": "denied", "key": reader.key[:12]}
    wait_until(lambda: sum(row["detail"]["times"] for row in trail(admin, **own)) == 3, "the refusals to be noted")
    wait_until(lambda: "GET /models" in [row["target"] for row in trail(admin, action="denied")], "the last of them")
    rows = trail(admin, action="denied")
    mine = [row for row in rows if row["key_prefix"] == reader.key[:12]]
    assert [row["target"] for row in mine] == ["POST /train"] * len(mine)
    assert sum(row["detail"]["times"] for row in mine) == 3 and {row["detail"]["status"] for row in mine} == {403}
    told = [(row["owner"], row["target"], row["detail"]["status"]) for row in rows]
    assert (caller.owner, "GET /models/{model_id}", 404) in told
    assert ("", "GET /models", 401) in told
    revoked = front.as_owner(caller.owner, "read")
    with front.services.database.session_scope() as session:
        keys = KeyRepository(session)
        keys.revoke(keys.authenticate(revoked.key).id)
    assert revoked.http.get("/models").status_code == 401
    wait_until(lambda: trail(admin, action="denied", key=revoked.key[:12]), "the refusal to be noted")
    (row,) = trail(admin, action="denied", key=revoked.key[:12])
    assert (row["owner"], row["detail"]["status"]) == (caller.owner, 401)
    assert stranger.owner not in {row["owner"] for row in rows}  # what others do is theirs
    with front.services.database.read_scope() as session:
        asked = select(Audit.target).where(Audit.owner == stranger.owner, Audit.action == "denied")
        assert session.scalars(asked).all() == ["GET /models/{model_id}"]


def test_a_flood_of_refusals_is_a_few_rows(front: Front) -> None:
    database, owner = front.services.database, f"flood-{secrets.token_hex(4)}"

    def rows() -> int:
        with database.read_scope() as session:
            query = select(func.count()).select_from(Audit).where(Audit.owner == owner)
            return session.scalars(query).one()

    denials = Denials(database)
    for _ in range(1000):
        denials.note(Denial("GET /models", 401, owner))
    assert rows() == 1  # at once
    denials.flush()
    assert rows() == 2
    with database.read_scope() as session:
        details = session.scalars(select(Audit.detail).where(Audit.owner == owner)).all()
    assert sum(detail["times"] for detail in details) == 1000


def test_counted_refusals_are_written_by_themselves(front: Front) -> None:
    denials, owner = Denials(front.services.database, count_seconds=0.05), f"timed-{secrets.token_hex(4)}"
    for _ in range(3):
        denials.note(Denial("GET /models", 404, owner))
    timer = denials._timer
    assert timer is not None
    timer.join(10)
    with front.services.database.read_scope() as session:
        details = session.scalars(select(Audit.detail).where(Audit.owner == owner)).all()
    assert sum(detail["times"] for detail in details) == 3


def test_pages_and_filters(front: Front, admin: Caller, caller: Caller) -> None:
    cohort = caller.cohort([[[0]]])
    formats = ["long.csv", "wide.csv", "ndjson", "parquet", "arrow"]
    for name in formats:
        assert caller.http.get(f"/cohorts/{cohort}/records", params={"format": name}).status_code == 200
    pages: list[list[str]] = []
    query: dict[str, Any] = {"action": "download cohort", "limit": 2}
    while query.get("cursor", "") is not None:
        page = admin.http.get("/audit", params=query).json()
        pages.append([row["detail"]["format"] for row in page["items"]])
        query["cursor"] = page["next_cursor"]
    assert pages == [["arrow", "parquet"], ["ndjson", "wide.csv"], ["long.csv"]]
    assert len(trail(admin, target=cohort)) == len(trail(admin, key=caller.key[:12], target=cohort)) == 5
    assert trail(admin, key=admin.key[:12], target=cohort) == []
    now = datetime.now(UTC)
    hour = timedelta(hours=1)
    assert len(trail(admin, target=cohort, since=(now - hour).isoformat(), until=(now + hour).isoformat())) == 5
    assert trail(admin, target=cohort, since=(now + hour).isoformat()) == []
    assert trail(admin, target=cohort, until=(now - hour).replace(tzinfo=None).isoformat()) == []
    for wrong in ({"cursor": "x"}, {"cursor": "9" * 30}, {"since": "yesterday"}, {"limit": 0}):
        assert admin.http.get("/audit", params=wrong).status_code == 422
    assert_problem(caller.front.as_owner(caller.owner, "data", "read").http.get("/audit"), 403, "forbidden")
