"""The client by itself: what it sends, what it covers, and that it needs nothing of the service."""

import asyncio
import inspect
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from ehr_d3pm import ApiError, AsyncClient, Client, JobFailedError, UnreachableError
from ehr_d3pm.cli import cli, service_commands
from ehr_d3pm.cli.conditions import parsed_groups
from ehr_d3pm.cli.output import print_table
from ehr_d3pm.cli.places import source_of
from ehr_d3pm.requests import CohortOptions, TrainOptions, UploadOptions, cohort_body
from tests.api.front import CODES, Caller, Front

ROOT = Path(__file__).parents[2]
HEAVY = {"app", "worker", "model_store", "ehr", "runtime", "torch", "sqlalchemy", "fastapi", "celery", "numpy"}
# operation -> the command that does it
COMMAND_OF = {
    "POST /datasets": "upload",
    "POST /datasets/by-reference": "upload",
    "POST /cohorts/{job_id}/exports": "export",
    "GET /places": "places",
    "GET /datasets": "datasets list",
    "GET /datasets/{dataset_id}": "datasets show",
    "DELETE /datasets/{dataset_id}": "datasets delete",
    "GET /datasets/{dataset_id}/codes": "codes",
    "GET /models/{model_id}/codes": "codes",
    "GET /datasets/{dataset_id}/labs": "datasets labs",
    "POST /train": "train",
    "GET /models": "models list",
    "GET /models/{model_id}": "models show",
    "DELETE /models/{model_id}": "models delete",
    "GET /models/{model_id}/bundle": "download",
    "GET /models/{model_id}/exposure": "exposure",
    "POST /generate": "generate",
    "POST /generate/estimate": "estimate",
    "GET /cohorts": "cohorts list",
    "GET /cohorts/{job_id}": "cohorts show",
    "DELETE /cohorts/{job_id}": "cohorts delete",
    "GET /cohorts/{job_id}/records": "download",
    "GET /cohorts/{job_id}/parts": "cohorts parts",
    "GET /cohorts/{job_id}/parts/{number}": "download",
    "POST /cohorts/{job_id}/release": "release",
    "POST /reports": "evaluate",
    "GET /reports/{job_id}": "report",
    "GET /reports/{job_id}.html": "report",
    "GET /jobs": "jobs",
    "GET /jobs/{job_id}": "job",
    "GET /jobs/{job_id}/events": "job",
    "GET /jobs/{job_id}/log": "job",
    "POST /jobs/{job_id}/cancel": "cancel",
    "POST /jobs/{job_id}/retry": "retry",
    "GET /audit": "audit",
    "GET /budgets": "budgets",
    "GET /cohorts/{job_id}/records.{format}": "download",
    "POST /models/import": "models import",
    "PATCH /models/{model_id}": "models edit",
    "POST /probe": "probe",
    "GET /withheld": "cohorts withheld",
    "GET /releases": "cohorts releases",
    "GET /datasets/{dataset_id}/dependants": "datasets dependants",
    "GET /datasets/{dataset_id}/erasure": "datasets erasure",
    "POST /webhooks": "webhooks add",
    "GET /webhooks": "webhooks list",
    "GET /webhooks/{webhook_id}": "webhooks show",
    "DELETE /webhooks/{webhook_id}": "webhooks delete",
    "POST /webhooks/{webhook_id}/rotate": "webhooks rotate",
    "POST /webhooks/{webhook_id}/enable": "webhooks enable",
    "POST /webhooks/{webhook_id}/test": "webhooks test",
    "GET /webhooks/{webhook_id}/deliveries": "webhooks deliveries",
    "POST /webhooks/{webhook_id}/deliveries/{delivery_id}/replay": "webhooks replay",
}
FOR_MACHINES = {"GET /healthz", "GET /readyz", "GET /metrics", "GET /reports/schema.json"}
FOR_PAGES = {"GET /keys"}  # the command is the service's own: `keys list`
# what a body calls it -> what the command calls it
OPTION_OF = {"groups": "group", "may_be_attacked": "attacks", "settings": "set_"}


@pytest.fixture(scope="module")
def document(open_front: Front) -> dict[str, Any]:
    found: dict[str, Any] = open_front.app.openapi()
    return found


def command(words: str) -> Any:
    found: Any = typer.main.get_command(cli)
    for word in words.split():
        found = found.commands[word]
    return found


def test_every_operation_has_a_command(document: dict[str, Any]) -> None:
    operations = {f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods}
    assert operations == set(COMMAND_OF) | FOR_MACHINES | FOR_PAGES
    for words in COMMAND_OF.values():
        assert command(words).help


@pytest.mark.parametrize(
    ("words", "schema", "options"),
    [
        ("train", "TrainRequest", {*TrainOptions.__annotations__, "dataset_id"}),
        (
            "generate",
            "GenerateRequest",
            {*CohortOptions.__annotations__, "model_id", "n", "conditions"} - {"all_of", "any_of", "none_of"},
        ),
    ],
)
def test_every_field_of_a_body_can_be_given(
    document: dict[str, Any], words: str, schema: str, options: set[str]
) -> None:
    fields = set(document["components"]["schemas"][schema]["properties"])
    assert fields == options
    named = {parameter.name for parameter in command(words).params}
    of_command = {OPTION_OF.get(field, field).removesuffix("_id") for field in fields - {"conditions"}}
    assert of_command | ({"all_of", "any_of", "none_of"} if "conditions" in fields else set()) <= named


def test_every_field_of_an_upload_can_be_given(document: dict[str, Any]) -> None:
    form = document["paths"]["/datasets"]["post"]["requestBody"]["content"]["multipart/form-data"]["schema"]
    fields = set(form["properties"]) - {"file"}
    assert fields == set(UploadOptions.__annotations__)
    assert {OPTION_OF.get(field, field) for field in fields} <= {param.name for param in command("upload").params}


def test_a_text_is_one_code_or_one_file(sqlite_caller: Caller, tmp_path: Path) -> None:
    body = cohort_body("mdl_1", 10, {"all_of": "ICD10CM:E11", "any_of": "A*", "none_of": ["B"], "targets": {"C": 0.5}})
    assert body["conditions"] == {"all_of": ["ICD10CM:E11"], "any_of": ["A*"], "none_of": ["B"]}
    assert body["targets"] == [{"codes": ["C"], "share": 0.5}] and "seed" not in body
    table = tmp_path / "t.csv"
    table.write_text("record_id,code\n1,A\n")
    model = sqlite_caller.model(dataset_id=sqlite_caller.dataset())
    with sqlite_caller.client() as client:
        assert client.upload(str(table), name="x")["request"]["files"][0]["label"] == "t.csv"
        asked = client.generate(model, 10, all_of=CODES[1], seed=None)["request"]
    assert asked["conditions"]["all_of"] == [CODES[1]]


def test_a_table_shows_names_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["id", "name"], [["x", "[/b] [red]"]], lines=False)
    assert "[/b] [red]" in capsys.readouterr().out


def test_groups_are_told_by_commas() -> None:
    assert parsed_groups(["A", "B"]) == ["A", "B"]
    assert parsed_groups(["A,B", "C"]) == [["A", "B"], ["C"]]


def test_events_of_an_unknown_job_end_in_an_error(sqlite_caller: Caller) -> None:
    with sqlite_caller.client() as client, pytest.raises(ApiError) as refused:
        list(client.events("job_" + "0" * 32))
    assert refused.value.status == 404


def test_the_former_name_is_the_same_client() -> None:
    from app import client as former

    assert former.Client is Client


@pytest.mark.parametrize("words", [["--help"], ["jobs"], ["generate", "--help"]])
def test_client_commands_load_nothing_of_the_service(words: list[str]) -> None:
    """Help names the service's commands and so loads their modules, which load nothing heavy either."""
    allowed = {"app", "worker", "ehr", "runtime"} if words == ["--help"] else set[str]()
    code = (
        "import sys\nfrom ehr_d3pm.cli import cli\n"
        f"try: cli(['--url', 'http://127.0.0.1:9', *{words!r}])\nexcept SystemExit: pass\n"
        f"print(sorted({HEAVY - allowed!r} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "[]"


def test_the_client_imports_only_what_it_declares() -> None:
    declared = tomllib.loads((ROOT / "client/pyproject.toml").read_text())["project"]["dependencies"]
    assert {name.split(">")[0] for name in declared} == {"httpx", "rich", "typer"}


def test_commands_of_the_service_when_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(group: str) -> Iterable[EntryPoint]:
        return ()

    monkeypatch.setattr(service_commands, "entry_points", none)
    done = CliRunner().invoke(cli, ["serve"])
    assert (
        done.exit_code == 2
        and "the distribution ehr-d3pm: install it" in done.stderr
        and len(done.stderr.splitlines()) == 1
    )
    listed = CliRunner().invoke(cli, ["--help"])
    assert listed.exit_code == 0 and "upload" in listed.stdout and "demo" not in listed.stdout


def test_commands_of_the_service_when_it_is() -> None:
    listed = CliRunner().invoke(cli, ["--help"]).stdout
    for entry in entry_points(group=service_commands.GROUP):
        assert f"\n  {entry.name} " in listed
        assert CliRunner().invoke(cli, [entry.name, "--help"]).exit_code == 0


def test_simulate_writes_a_table_that_can_be_uploaded(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        done = CliRunner().invoke(cli, ["simulate", str(tmp_path / name), "--records", "50", "--seed", "3"])
        assert done.exit_code == 0, done.output
    rows = (tmp_path / "a.csv").read_text().splitlines()
    assert rows[0] == "record_id,vocabulary,code,name" and rows[1].startswith("r0,")
    assert (tmp_path / "b.csv").read_text().splitlines() == rows


# --- awaited ---


def test_the_awaited_client_has_every_method() -> None:
    methods = {name for name, _ in inspect.getmembers(Client, inspect.isfunction) if not name.startswith("_")}
    assert methods <= set(dir(AsyncClient("http://127.0.0.1:1")))


def test_both_clients_ask_the_same_and_get_the_same(sqlite_caller: Caller, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("record_id,code\n1,A\n")
    model = sqlite_caller.model(dataset_id=sqlite_caller.dataset(), drawn=[[0], [1], [0, 1]] * 100)
    cohort = sqlite_caller.cohort([[[0, 1], [2]]], evaluate=False)
    sqlite_caller.http.post(f"/cohorts/{cohort}/release", json={"reason": "for a test"})

    def with_one() -> list[Any]:
        with sqlite_caller.client() as client:
            job = client.upload(table, name="x", key="same")
            client.download(cohort, tmp_path / "one.csv")
            frame = client.pandas(cohort)
            return [
                job["id"],
                client.model(model),
                [each["id"] for each in client.models(limit=5)],
                client.estimate(model, 10, all_of=CODES[1])["support"],
                client.withheld(),
                client.places(),
                (tmp_path / "one.csv").read_bytes(),
                frame.to_dict("list"),
                client.polars(cohort, names=True).columns,
            ]

    async def with_other() -> list[Any]:
        async with AsyncClient(sqlite_caller.front.url, sqlite_caller.key) as client:
            job = await client.upload(table, name="x", key="same")
            await client.download(cohort, tmp_path / "two.csv")
            frame = await client.pandas(cohort)
            return [
                job["id"],
                await client.model(model),
                [each["id"] async for each in client.models(limit=5)],
                (await client.estimate(model, 10, all_of=CODES[1]))["support"],
                await client.withheld(),
                await client.places(),
                (tmp_path / "two.csv").read_bytes(),
                frame.to_dict("list"),
                (await client.polars(cohort, names=True)).columns,
            ]

    one, other = with_one(), asyncio.run(with_other())
    assert one == other
    assert one[-2]["code"] == ["ICD10CM:E10", "ICD10CM:E11", "ICD10CM:E84"]


def test_many_jobs_are_awaited_at_once(sqlite_caller: Caller) -> None:
    jobs = [sqlite_caller.job("train", model_id="mdl_" + "0" * 32) for _ in range(16)]

    async def cancelled_while_awaited() -> list[Any]:
        async with AsyncClient(sqlite_caller.front.url, sqlite_caller.key) as client:
            waits = [asyncio.create_task(client.wait(job)) for job in jobs]
            for job in jobs:
                await client.cancel(job)
            events = [event async for event in client.events(jobs[0])]
            assert events[-1]["data"]["state"] == "cancelled"
            return await asyncio.gather(*waits, return_exceptions=True)

    ended = asyncio.run(cancelled_while_awaited())
    assert all(isinstance(error, JobFailedError) and error.job["state"] == "cancelled" for error in ended)


def test_a_service_that_is_away_is_told_by_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ehr_d3pm.transport.pause_before", lambda tries, left: 0)

    async def ask() -> None:
        async with AsyncClient("http://127.0.0.1:1") as client:
            await client.job("job_1")

    with pytest.raises(UnreachableError, match="does not answer at http://127"):
        asyncio.run(ask())
    with Client("http://127.0.0.1:1") as client, pytest.raises(UnreachableError):
        client.job("job_1")


def test_where_records_come_from_is_told_by_how_they_are_named() -> None:
    assert source_of(["a.csv"], None, None, None) is None
    assert source_of(["s3://x/y/"], None, None, None) == {"kind": "objects", "urls": ["s3://x/y/"]}
    omop = {"kind": "omop", "connection": "warehouse", "cdm_schema": "cdm"}
    assert source_of([], "warehouse.cdm", None, None) == omop
    cohort = {**omop, "cohort_id": 42, "cohort_schema": "results"}
    assert source_of([], "warehouse.cdm", "results.42", None) == cohort
    assert source_of([], None, None, "hospital/all") == {"kind": "fhir", "server": "hospital", "group": "all"}
    wrong: list[tuple[list[str], str | None, str | None, str | None]] = [
        ([], None, None, None),
        (["a.csv", "s3://x/y/"], None, None, None),
        (["a.csv"], "warehouse.cdm", None, None),
        (["a.csv"], None, "42", None),
        ([], "warehouse", None, None),
        ([], "warehouse.cdm", "all", None),
    ]
    for files, schema, number, server in wrong:
        with pytest.raises(typer.BadParameter):
            source_of(files, schema, number, server)
