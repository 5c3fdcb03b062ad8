"""Keys by role, their caps, and what the command line shows of exposure and of the audit trail."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.commands.keys import Role
from app.commands.keys import cli as keys
from ehr_d3pm.cli import cli
from model_store import migrate
from model_store.database import Database
from model_store.repositories import AuditRepository
from model_store.repositories.access import ROLES
from tests.api.front import Caller
from tests.api.test_readers import AUDIT
from tests.reporting import small_report

COLUMNS = {"COLUMNS": "80"}


def with_keys(folder: Path, *words: str) -> tuple[int, str]:
    done = CliRunner().invoke(keys, words, env={"DATA_DIR": str(folder), "DATABASE_URL": ""} | COLUMNS)
    return done.exit_code, done.stdout


def as_caller(caller: Caller, *words: str) -> str:
    environment = {"EHR_D3PM_URL": caller.front.url, "EHR_D3PM_KEY": caller.key} | COLUMNS
    done = CliRunner().invoke(cli, words, env=environment)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_whoever_asks_for_nothing_gets_the_least(tmp_path: Path) -> None:
    assert set(Role) == set(ROLES)
    assert with_keys(tmp_path, "list")[0] == 2 and list(tmp_path.iterdir()) == []  # no database is made by mistake
    migrate.upgrade(f"sqlite:///{tmp_path / 'ehr-d3pm.sqlite'}")
    assert "Scopes: generate, read." in with_keys(tmp_path, "create", "--owner", "ann")[1]
    for role, scopes in ROLES.items():
        code, shown = with_keys(tmp_path, "create", "--owner", "ann", "--role", role, "--json")
        assert code == 0 and json.loads(shown)["scopes"] == sorted(scopes)
    assert with_keys(tmp_path, "create", "--owner", "ann", "--role", "root")[0] == 2
    key = json.loads(shown)["id"]
    assert "conditions 5" in with_keys(tmp_path, "caps", key, "--conditions", "5")[1]
    assert "conditions 5, records 1,000" in with_keys(tmp_path, "caps", key, "--records", "1000")[1]
    assert "as the settings say" in with_keys(tmp_path, "caps", key, "--general")[1]
    assert (
        with_keys(tmp_path, "caps", key)[0] == with_keys(tmp_path, "caps", "key_" + "0" * 32, "--records", "1")[0] == 2
    )
    assert with_keys(tmp_path, "revoke", key)[0] == 0
    database = Database(f"sqlite:///{tmp_path / 'ehr-d3pm.sqlite'}")
    with database.read_scope() as session:
        rows = AuditRepository(session).newest("ann")
    database.close()
    assert [row.action for row in rows] == ["revoke key", *["change caps"] * 3, *["create key"] * 4]
    assert rows[0].target == rows[1].target == key and rows[0].key_prefix == rows[1].key_prefix


def test_exposure_and_audit_fit_on_a_terminal(sqlite_caller: Caller) -> None:
    caller = sqlite_caller
    analyst = caller.front.as_owner(caller.owner, "generate", "read")
    model = caller.model()
    for n in (10, 5_000):
        request = {"model_id": model, "n": n, "conditions": {"all_of": ["ICD10CM:E11"]}}
        assert analyst.http.post("/generate", json=request).status_code == 202
    assert analyst.http.get("/audit").status_code == 403
    shown = as_caller(analyst, "exposure", model)
    assert "1 of 200" in shown and "5,010 of 50,000,000" in shown and "1 of 20" in shown
    assert "1 of 200" not in as_caller(caller, "exposure", model)
    trail = as_caller(caller, "audit", "--key", analyst.key[:12])
    assert "submit generate" in trail and "denied" in trail and "GET /audit" in trail and "E11" not in trail
    assert max(map(len, (shown + trail).splitlines())) <= 80
    assert [row["action"] for row in json.loads(as_caller(caller, "audit", "--action", "denied", "--json"))] == [
        "denied"
    ]


@pytest.mark.parametrize("who", ["custodian", "analyst"])
def test_both_reports_on_a_terminal(sqlite_caller: Caller, who: str, tmp_path: Path) -> None:
    caller = sqlite_caller
    cohort = caller.cohort([[[0]]], model_id=caller.model(more={"audit": AUDIT}))
    caller.report(small_report().model_dump(mode="json"), cohort)
    reader = caller if who == "custodian" else caller.front.as_owner(caller.owner, "generate", "read")
    shared = as_caller(reader, "report", cohort, "--shareable")
    assert "model: privacy audit: good" in shared and "codes per record" in shared and "independent" not in shared
    assert max(map(len, shared.splitlines()[:-1])) <= 80
    assert (as_caller(reader, "report", cohort) == shared) == (who == "analyst")
    page = tmp_path / "report.html"
    as_caller(reader, "report", cohort, "--shareable", "--html", str(page))
    assert "The model" in page.read_text()
