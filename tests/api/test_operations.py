"""What an operator relies on: metrics that alerts ask for, a health check, and a backup that can be restored."""

import json
import logging
import os
import re
import secrets
import shutil
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy.engine import make_url

from app.services import CLOSE_SECONDS, Services
from model_store.blobs import open_store
from model_store.database import Database
from model_store.repositories import LeaseRepository
from model_store.scrub import scrub
from runtime.logs import JsonFormatter, job_id
from tests.api.conftest import settings_for
from tests.api.front import Caller, Front
from tests.service.fixtures import ON_ONE_MACHINE, NewUrl
from tests.service.servers import PATIENCE_SECONDS, Postgres, wait_until
from worker import health

ROOT = Path(__file__).parents[2]
SELECTOR = re.compile(r"\b(ehr_d3pm_\w+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')
GROUPING = re.compile(r"by \(([^)]*)\)")


def test_alerts_and_dashboard_ask_for_what_there_is(caller: Caller) -> None:
    job = caller.job("train", model_id="mdl_" + "0" * 32)
    with caller.front.services.database.session_scope() as session:
        claim = LeaseRepository(session).claim(job, "w", 60)
        assert claim is not None
        LeaseRepository(session).fail(claim, "bad-data", "no")
    caller.job("generate", n=1)
    wait_until(lambda: "ehr_d3pm_http_requests_total{" in caller.http.get("/metrics").text, "a counted request")
    text = caller.http.get("/metrics").text
    series = series_of(text)
    rules = [
        rule for group in yaml.safe_load((ROOT / "ops/alerts.yml").read_text())["groups"] for rule in group["rules"]
    ]
    dashboard = json.loads((ROOT / "ops/grafana-dashboard.json").read_text())
    targets = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked = [
        selected for expression in (*(rule["expr"] for rule in rules), *targets) for selected in selects(expression)
    ]
    assert len(rules) == 10 and len(asked) > 20
    assert [each for each in asked if not is_told(each, series)] == []
    manual = (ROOT / "docs/operations.md").read_text()
    assert all(f"### {rule['annotations']['runbook'].partition('#')[2]}\n" in manual for rule in rules)
    assert all(f"`{name}" in manual for name in series if name.startswith("ehr_d3pm_") and "http" not in name)
    started = re.search(r'ehr_d3pm_attempts_total\{kind="train",what="failed"\} (\d+)', text)
    assert started is not None and int(started[1]) >= 1
    age = re.search(r'ehr_d3pm_queue_age_seconds\{queue="generate"\} ([\d.e-]+)', text)
    assert age is not None and float(age[1]) > 0


def series_of(text: str) -> dict[str, list[dict[str, str]]]:
    """name -> the labels of each of its series."""
    found: dict[str, list[dict[str, str]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample.labels)
    return found


def selects(expression: str) -> list[tuple[str, list[tuple[str, str, str]], set[str]]]:
    """(name, (label, operator, value) of each matcher, labels that results are grouped by) of each series asked for."""
    grouped = {label for labels in GROUPING.findall(expression) for label in labels.replace(" ", "").split(",")}
    return [(name, MATCHER.findall(within), grouped) for name, within in SELECTOR.findall(expression)]


def is_told(
    selected: tuple[str, list[tuple[str, str, str]], set[str]], series: dict[str, list[dict[str, str]]]
) -> bool:
    """Whether there are such series, before any of what they count has happened. Which answers a service gives is
    known when it gives them: of those the labels must be right."""
    name, matchers, grouped = selected
    told = series.get(name, [])
    labels = {label for each in told for label in each}
    if not told or not {label for label, _, _ in matchers} | grouped <= labels:
        return False
    if name.startswith("ehr_d3pm_http"):
        return True
    wanted = [
        (label, value) for label, operator, values in matchers if operator[0] == "=" for value in values.split("|")
    ]
    return all(any(each.get(label) == value for each in told) for label, value in wanted)


def test_a_worker_is_alive_as_long_as_it_says_so(tmp_path: Path) -> None:
    assert health.living(tmp_path) == []
    health.note(tmp_path)
    (tmp_path / f"{health.PREFIX}rubbish").touch()
    assert health.living(tmp_path) == [os.getpid()]
    assert health.living(tmp_path, seconds=-1) == []
    health.forget(tmp_path)
    assert health.living(tmp_path) == []


def test_lines_of_a_job_have_its_id_and_no_arguments() -> None:
    record = logging.makeLogRecord({"msg": "Task received", "data": {"args": "['ICD10CM:E84']"}})
    token = job_id.set("job_1")
    told = json.loads(JsonFormatter().format(record))
    job_id.reset(token)
    assert told["job_id"] == "job_1" and "E84" not in json.dumps(told)


@ON_ONE_MACHINE
def test_a_backup_of_database_then_store_is_whole(sqlite_caller: Caller, tmp_path: Path) -> None:
    """While work goes on: what came after the copy of the database is a leftover, and nothing is missing."""
    sqlite_caller.dataset()
    sqlite_caller.model()
    sqlite_caller.cohort([[[0], [1]], [[2]]])
    services = sqlite_caller.front.services
    with sqlite3.connect(services.database.engine.url.database) as live:
        live.execute("VACUUM INTO ?", [str(tmp_path / "copy.sqlite")])
    late = sqlite_caller.dataset()
    shutil.copytree(sqlite_caller.front.settings.data_dir / "store", tmp_path / "store")

    restored = Database(f"sqlite:///{tmp_path / 'copy.sqlite'}")
    store = open_store(f"file://{tmp_path / 'store'}")
    found = scrub(restored, store, older_than_seconds=-60, verify=True)
    assert found.lost == [] and found.blobs > 6
    assert {blob.key.split("/")[1] for blob in found.leftovers} >= {late}
    victim = next(key for key in store.list("cohorts") if key.endswith(".parquet"))
    with store.local_path(victim) as path:
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert [(fault.key, fault.fault) for fault in scrub(restored, store, verify=True).lost] == [(victim, "changed")]
    restored.close()


@ON_ONE_MACHINE
def test_a_backup_with_pg_dump_is_a_service_again(
    front_of: Callable[[str], Front], postgres: Postgres, new_url: NewUrl, tmp_path: Path
) -> None:
    """As docs/operations.md has it: the database, then the store; back in the other order, every hash, and answers."""
    caller = front_of("postgres").as_owner(f"backup-{secrets.token_hex(4)}")
    caller.dataset()
    cohort = caller.cohort([[[0], [1]], [[2]]])
    whole = caller.http.get(f"/cohorts/{cohort}/records").content
    services = caller.front.services
    # other tests of this process leave models whose weights are not what they say
    lost_before = {each.key for each in scrub(services.database, services.store, verify=True).lost}
    dump = tmp_path / "ehr.dump"
    _run(postgres, "pg_dump", "--format=custom", f"--file={dump}", libpq(caller.front.settings.database_url))
    caller.cohort([[[0]]])  # made meanwhile
    shutil.copytree(caller.front.settings.data_dir / "store", tmp_path / "store")

    url = new_url("postgres")
    _run(postgres, "pg_restore", "--clean", "--if-exists", "--no-owner", f"--dbname={libpq(url)}", str(dump))
    restored = settings_for(tmp_path, url)
    with Front(restored) as front:
        found = scrub(front.services.database, front.services.store, verify=True)
        assert {each.key for each in found.lost} <= lost_before and found.blobs > 4
        headers = {"Authorization": f"Bearer {caller.key}"}
        assert front.get(f"/cohorts/{cohort}/records", headers=headers).content == whole
        assert front.get("/readyz").json()["checks"]["schema"] == "ok"


def _run(postgres: Postgres, program: str, *arguments: str) -> None:
    done = subprocess.run([postgres.bin / program, *arguments], capture_output=True, timeout=PATIENCE_SECONDS)
    assert done.returncode == 0, done.stderr.decode()


def libpq(url: str) -> str:
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def test_an_api_ends_in_time_whatever_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An address that takes no message does not keep the others from being stopped, nor the process from its end."""
    services, silent, stopped = (
        Services(settings_for(tmp_path, f"sqlite:///{tmp_path}/db.sqlite")),
        threading.Event(),
        [],
    )
    monkeypatch.setattr(services.webhooks, "stop", lambda: silent.wait(60))
    monkeypatch.setattr(services.sweeper, "stop", lambda: stopped.append("sweeper"))
    begun = time.monotonic()
    services.close()
    took = time.monotonic() - begun
    silent.set()
    assert stopped == ["sweeper"] and CLOSE_SECONDS <= took < CLOSE_SECONDS + 10
    assert [getattr(record, "waiting", "") for record in caplog.records if record.name == "app.services"] == [
        "closing webhooks"
    ]
