"""The command line: exit codes for scripts, JSON for programs."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

from typer.testing import CliRunner, Result

from ehr.formats import WRITERS
from ehr.reports import Verdict
from ehr_d3pm import Client, ClientError
from ehr_d3pm.cli import cli
from ehr_d3pm.cli.ids import short
from ehr_d3pm.cli.models import parsed_settings
from model_store.repositories import LeaseRepository
from model_store.tables import Job
from tests.api.front import CODES, Caller, Front
from tests.api.test_jobs import claim, end
from tests.reporting import small_report
from tests.service.servers import wait_until
from tests.service.stand import long_csv


def run(*words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    clean = {name: value for name, value in os.environ.items() if not name.startswith("EHR_D3PM")}
    command = [sys.executable, "-m", "ehr_d3pm", *words]
    return subprocess.run(command, capture_output=True, text=True, env=clean | environment, timeout=120)


def as_caller(caller: Caller, *words: str) -> Result:
    """The same command line within this process: an interpreter takes a second to start."""
    known = {name: None for name in os.environ if name.startswith("EHR_D3PM")}
    environment = known | {"EHR_D3PM_URL": caller.front.url, "EHR_D3PM_KEY": caller.key, "COLUMNS": "80"}
    with patch.object(sys, "argv", ["ehr-d3pm", *words]):
        return CliRunner().invoke(cli, words, env=environment)


def test_wrong_usage_is_2() -> None:
    assert run("train").returncode == 2
    assert run("upload", "/nowhere/at/all.csv", EHR_D3PM_URL="http://127.0.0.1:9").returncode == 2


def test_unreachable_is_3() -> None:
    done = run("--url", "http://127.0.0.1:9", "jobs")
    assert done.returncode == 3
    assert "does not answer" in done.stderr and done.stdout == ""


def test_commands(sqlite_caller: Caller, tmp_path: Path) -> None:
    caller = sqlite_caller
    table = tmp_path / "t.csv"
    table.write_text("record_id,code\n1,A\n")
    uploaded = as_caller(caller, "upload", str(table), "--name", "x", "--no-wait", "--json")
    assert uploaded.exit_code == 0, uploaded.stderr
    job: dict[str, Any] = json.loads(uploaded.stdout)
    assert job["kind"] == "ingest" and job["request"]["name"] == "x"
    assert json.loads(as_caller(caller, "cancel", job["id"], "--json").stdout)["state"] == "cancelled"
    assert [j["id"] for j in json.loads(as_caller(caller, "jobs", "--json").stdout)] == [job["id"]]
    waited = as_caller(caller, "job", job["id"], "--wait")  # a cancelled job
    assert waited.exit_code == 1 and "cancelled" in waited.stderr
    refused = as_caller(caller, "generate", caller.model(), "--all-of", "ICD10CM:E85", "--json")
    assert refused.exit_code == 4 and "did you mean" in refused.stderr
    assert json.loads(refused.stdout)["type"].endswith("unknown-code")
    assert as_caller(caller, "job", "job_" + "0" * 32).exit_code == 4
    model = caller.model(drawn=[[0, 1, *([2] if i % 4 else [])] for i in range(400)])
    words = ("--all-of", "ICD10CM:E11", "--target", "ICD10CM:E84,ICD9DX:25*=0.25", "--method", "exact", "--json")
    asked = json.loads(as_caller(caller, "generate", model, "--no-wait", *words).stdout)["request"]
    assert asked["targets"] == [{"codes": ["ICD10CM:E84", "ICD9DX:25*"], "share": 0.25}] and asked["method"] == "exact"
    assert json.loads(as_caller(caller, "estimate", model, *words).stdout)["support"]["matching"] == 400
    shown = as_caller(caller, "estimate", model, "--all-of", "ICD10CM:E99")
    assert shown.exit_code == 0 and "nearest that can be had: without all_of ICD10CM:E99" in shown.stdout
    assert as_caller(caller, "generate", model, "--target", "ICD10CM:E84").exit_code == 2


def test_waiting_download_and_report(open_front: Front, sqlite_caller: Caller, tmp_path: Path) -> None:
    caller = sqlite_caller
    job = caller.job("train", model_id="mdl_" + "0" * 32)
    end(open_front, claim(open_front, job))
    waited = as_caller(caller, "job", job, "--wait", "--json")
    assert waited.exit_code == 0 and json.loads(waited.stdout)["state"] == "succeeded"
    cohort = caller.cohort([[[0, 2]]])
    caller.report(small_report().model_dump(mode="json"), cohort)
    target = tmp_path / "cohort.csv"
    assert as_caller(caller, "download", cohort, "-o", str(target)).exit_code == 0
    assert target.read_text().splitlines()[1] == "0," + CODES[0].replace(":", ",")
    assert as_caller(caller, "download", caller.model(), "-o", str(tmp_path / "m.zip")).exit_code == 0
    shown = as_caller(caller, "report", cohort)
    assert shown.exit_code == 0 and "cmd \u2193" in shown.stdout
    assert f"ehr-d3pm report {cohort} --html" in shown.stdout.splitlines()[-1]
    assert as_caller(caller, "report", cohort, "--html", str(tmp_path / "r.html")).exit_code == 0
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")


def in_process(caller: Caller, *words: str) -> str:
    """Standard output of a command that succeeds."""
    done = as_caller(caller, *words)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_lists_fit_into_80_columns(sqlite_caller: Caller) -> None:
    caller = sqlite_caller
    dataset = caller.dataset()
    made = {"datasets": dataset, "models": caller.model(dataset_id=dataset), "cohorts": caller.cohort([[[0, 2]]])}
    made["jobs"] = caller.job()
    for kind, thing in made.items():
        lines = in_process(caller, *([kind] if kind == "jobs" else [kind, "list"])).splitlines()
        assert any(line.startswith(f"{short(thing)} ") for line in lines) and max(map(len, lines)) <= 80, lines
        assert len(lines) <= 3, lines  # no row is broken


def test_a_job_is_one_line_with_what_it_is_about(open_front: Front, sqlite_caller: Caller) -> None:
    caller = sqlite_caller
    made = caller.job("generate", n=1000, model_id=caller.model())
    trained = caller.job(
        "train", name="cardiology with a name that is too long for any line", model_id="mdl_" + "0" * 32
    )
    failed = caller.job("ingest", name="t", dataset_id="ds_" + "0" * 32, files=[])
    with open_front.services.database.session_scope() as session:
        LeaseRepository(session).fail(claim(open_front, failed), "bad-data", "there is no column with codes")
        session.get_one(Job, made).created_at -= 7300
    lines = {line.split()[0]: line for line in in_process(caller, "jobs", "--limit", "9").splitlines()}
    assert lines[short(made)].split()[1:] == ["generate", "queued", "2", "h", "1,000", "of", "model"]
    assert len(lines[short(trained)]) == 80 and lines[short(trained)].endswith("\u2026")
    assert lines[short(failed)].endswith("t: bad-data: there is no column wit\u2026")


def test_the_beginning_of_an_id_will_do(sqlite_caller: Caller) -> None:
    caller = sqlite_caller
    dataset = caller.dataset()
    job, model = caller.job("train", name="x", model_id="mdl_" + "0" * 32), caller.model(dataset_id=dataset)
    assert json.loads(in_process(caller, "job", short(job), "--json"))["id"] == job
    assert json.loads(in_process(caller, "models", "show", model[:20], "--json"))["id"] == model
    assert json.loads(in_process(caller, "datasets", "show", short(dataset), "--json"))["id"] == dataset
    assert in_process(caller, "codes", short(model), "cystic").splitlines()[1].startswith("ICD10CM:E84")
    caller.model()
    ambiguous = as_caller(caller, "models", "show", "mdl_")
    assert ambiguous.exit_code == 2 and "write more of it" in ambiguous.stderr
    assert as_caller(caller, "job", "job_" + "f" * 31).exit_code == 4  # there is none


def test_watching_ends_with_the_last_job(open_front: Front, sqlite_caller: Caller) -> None:
    job = sqlite_caller.job("train", name="mine", model_id="mdl_" + "0" * 32)
    end(open_front, claim(open_front, job))
    assert "mine" in in_process(sqlite_caller, "jobs", "--watch")


def test_exit_codes_for_ci(sqlite_caller: Caller) -> None:
    caller = sqlite_caller
    cohort = caller.cohort([[[0, 2]]])
    for level, fails in {"good": set(), "caution": {"caution"}, "fail": {"caution", "fail"}}.items():
        verdict = Verdict(level=level, reason="Because.", advice="")  # type: ignore[arg-type]
        caller.report(small_report().model_copy(update={"verdict": verdict}).model_dump(mode="json"), cohort)
        for doubt in ("caution", "fail"):
            done = as_caller(caller, "report", cohort, "--fail-on", doubt, "--json")
            assert done.exit_code == (6 if doubt in fails else 0), (level, doubt)
            assert json.loads(done.stdout)["verdict"]["level"] == level
    model = caller.model(drawn=[[0, *([1] if i % 2 else [])] for i in range(400)])
    wanted = {"ICD10CM:E11": 0, "ICD10CM:E84": 6, "ICD10CM:E99": 6}  # half have it, nobody has it, nobody can
    for code, exit_code in wanted.items():
        assert as_caller(caller, "estimate", model, "--all-of", code, "--fail-on", "unseen").exit_code == exit_code
    some = ("--target", "ICD10CM:E84=0.5", "--fail-on")
    assert [as_caller(caller, "estimate", model, *some, doubt).exit_code for doubt in ("unseen", "withheld")] == [6, 6]
    assert as_caller(caller, "estimate", model, "--fail-on", "withheld").exit_code == 0


def test_ctrl_c_ends_the_waiting_and_not_the_job(sqlite_caller: Caller) -> None:
    job = sqlite_caller.job("train", name="x", model_id="mdl_" + "0" * 32)
    with patch.object(Client, "wait", side_effect=KeyboardInterrupt):
        done = as_caller(sqlite_caller, "job", job, "--wait")
    assert done.exit_code == 130 and f"ehr-d3pm cancel {short(job)}" in done.stderr and "goes on" in done.stderr
    assert sqlite_caller.http.get(f"/jobs/{job}").json()["state"] == "queued"


def test_the_summary_of_every_command_fits_into_80_columns() -> None:
    commands = CliRunner().invoke(cli, ["--help"], terminal_width=80).stdout.partition("Commands:")[2]
    assert "upload" in commands and [line for line in commands.splitlines() if line.endswith("...")] == []


def test_versions_and_completion() -> None:
    assert "ehr-d3pm-client 0" in CliRunner().invoke(cli, ["--version"]).stdout
    words = {"_EHR_D3PM_COMPLETE": "complete_bash", "COMP_WORDS": "ehr-d3pm est", "COMP_CWORD": "1"}
    assert CliRunner().invoke(cli, [], env=words, prog_name="ehr-d3pm").stdout.split() == ["estimate"]


def test_show_and_delete(sqlite_caller: Caller) -> None:
    caller = sqlite_caller
    dataset = caller.dataset()
    for kind, thing, said in (
        ("models", caller.model(dataset_id=dataset), f"dataset_id: {dataset}"),
        ("cohorts", caller.cohort([[[0, 2]]]), "n_records: 1"),
        ("datasets", dataset, "summary.records: 400"),
    ):
        assert said in in_process(caller, kind, "show", thing).splitlines()
        shown = json.loads(in_process(caller, kind, "show", thing, "--json"))
        assert shown in json.loads(in_process(caller, kind, "list", "--json"))
        asked = CliRunner().invoke(cli, ["--url", caller.front.url, "--key", caller.key, kind, "delete", thing], "n\n")
        assert asked.exit_code == 1 and len(json.loads(in_process(caller, kind, "list", "--json"))) == 1
        in_process(caller, kind, "delete", thing, "--yes")
        assert json.loads(in_process(caller, kind, "list", "--json")) == []


def test_codes_are_found_by_what_they_mean(sqlite_caller: Caller) -> None:
    caller = sqlite_caller
    dataset = caller.dataset()
    model = caller.model(dataset_id=dataset)
    found = json.loads(in_process(caller, "codes", model, "diabetes", "2", "--json"))
    assert found[0] == {"code": "ICD10CM:E11", "description": "Type 2 diabetes mellitus"}
    assert {c["code"] for c in found} == {"ICD10CM:E11", "ICD9DX:25000", "ICD9DX:25001"}
    counted = json.loads(in_process(caller, "codes", dataset, "type 2 diabetes", "--json"))
    assert (counted[0]["code"], counted[0]["records"]) == ("ICD10CM:E11", 200)
    table = in_process(caller, "codes", model, "cystc", "fibrosis").splitlines()
    assert [line.split() for line in table] == [["code", "meaning"], ["ICD10CM:E84", "Cystic", "fibrosis"]]
    shown = in_process(caller, "codes", dataset, "cystic")
    assert "ICD10CM:E84" in shown and "Cystic fibrosis" in shown
    assert [c["code"] for c in json.loads(in_process(caller, "codes", dataset, "--json"))] == list(CODES)
    assert len(in_process(caller, "codes", dataset, "--limit", "2").splitlines()) == 3
    assert json.loads(in_process(caller, "datasets", "labs", dataset, "--json")) == []
    assert in_process(caller, "datasets", "labs", dataset).split() == ["lab", "cut", "points", "unit"]


def test_shares_and_groups_reach_the_service(sqlite_caller: Caller, tmp_path: Path) -> None:
    caller = sqlite_caller
    table = tmp_path / "t.csv"
    table.write_text("record_id,code\n1,A\n")
    words = ("--no-wait", "--json", "--holdout-share", "0.2")
    uploaded = json.loads(in_process(caller, "upload", str(table), "--test-share", "0.3", *words))["request"]
    assert (uploaded["holdout_share"], uploaded["test_share"]) == (0.2, 0.3)
    dataset = caller.dataset()
    assert json.loads(in_process(caller, "train", dataset, *words))["request"]["holdout_share"] == 0.2
    groups = ("--any-of", "ICD10CM:E10,ICD10CM:E11", "--any-of", "ICD10CM:E84", "--seed", "5")
    asked = in_process(caller, "generate", caller.model(dataset_id=dataset), *groups, "--no-wait", "--json")
    assert json.loads(asked)["request"]["conditions"]["any_of"] == [["ICD10CM:E10", "ICD10CM:E11"], ["ICD10CM:E84"]]


def test_what_the_service_offers(sqlite_caller: Caller) -> None:
    """Read from the service's own document: nothing to keep up to date here."""
    offered = json.loads(in_process(sqlite_caller, "generators", "--json"))
    assert {"d3pm", "independent", "tabsyn"} <= set(offered["generators"]) and "fast" in offered["presets"]
    known = json.loads(in_process(sqlite_caller, "formats", "--json"))
    assert {"auto", "omop"} <= set(known["read"]) and known["rollups"][0] == "none"
    assert known["written"] == [writer.name for writer in WRITERS]
    assert "generators: d3pm, " in in_process(sqlite_caller, "generators")
    refused = as_caller(sqlite_caller, "train", sqlite_caller.dataset(), "--generator", "nothing")
    assert refused.exit_code == 4 and "independent" in refused.stderr


def test_keys(tmp_path: Path) -> None:
    def keys(*words: str) -> Result:
        return CliRunner().invoke(cli, ["keys", *words], env={"DATA_DIR": str(tmp_path), "DATABASE_URL": None})

    nowhere = keys("list")
    assert nowhere.exit_code == 2 and "--data-dir" in nowhere.stderr and list(tmp_path.iterdir()) == []
    assert run("migrate", "--data-dir", str(tmp_path)).returncode == 0
    created = run("keys", "create", "--owner", "ann", "--scopes", "read,data", "--json", DATA_DIR=str(tmp_path))
    made = json.loads(created.stdout)
    assert made["key"].startswith("ehr_") and made["scopes"] == ["data", "read"]
    listed = keys("list", "--json").stdout
    assert made["prefix"] in listed and made["key"] not in listed
    assert keys("revoke", made["id"]).exit_code == 0
    assert keys("revoke", made["id"]).exit_code == 2
    assert keys("create", "--owner", "ann", "--scopes", "root").exit_code == 2
    assert made["key"].encode() not in (tmp_path / "ehr-d3pm.sqlite").read_bytes()


def test_refuses_to_bind_elsewhere_without_keys(tmp_path: Path) -> None:
    done = run("serve", "--host", "0.0.0.0", "--data-dir", str(tmp_path))
    assert done.returncode == 2 and "without API keys" in done.stderr


def test_settings_from_words() -> None:
    words = ["training.epochs=5", "noise=uniform", "denoiser.pairwise=false"]
    assert parsed_settings(words) == {"training": {"epochs": 5}, "noise": "uniform", "denoiser": {"pairwise": False}}


def test_serve_starts_everything_and_leaves_nothing() -> None:
    """Once ended by Ctrl-C, once by kill -9; the second start finds what the first one left."""
    with tempfile.TemporaryDirectory(prefix="ehr", ignore_cleanup_errors=True) as folder:
        table = Path(folder) / "t.csv"
        table.write_bytes(long_csv(60))
        for number in (signal.SIGINT, signal.SIGKILL):
            port = free_port()
            command = [sys.executable, "-m", "ehr_d3pm", "serve", "--data-dir", f"{folder}/data", "--port", str(port)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
                with Client(f"http://127.0.0.1:{port}") as client:
                    wait_until(lambda: is_ready(client), "readiness")
                    family = {process.pid, *descendants(process.pid)}
                    before = len(list(client.datasets()))
                    client.wait(client.upload([table]))
                    assert len(list(client.datasets())) == before + 1
                process.send_signal(number)
                told, _ = process.communicate(timeout=30)
            assert process.returncode == (0 if number == signal.SIGINT else -signal.SIGKILL)
            closing = f"  ehr-d3pm keys create --owner me --role custodian --data-dir {folder}/data"
            assert number == signal.SIGKILL or closing in told.splitlines()
            wait_until(lambda: not [pid for pid in family if is_alive(pid)], "the end of all processes")  # noqa: B023
        assert before == 1


def is_ready(client: Client) -> bool:
    try:
        return bool(client.ready()["status"] == "ready")
    except ClientError:
        return False


def is_alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "State:\tZ" not in status.read_text()


def descendants(pid: int) -> list[int]:
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return children + [grandchild for child in children for grandchild in descendants(child)]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
