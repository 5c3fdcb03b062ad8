"""One line in `ehr.generators.GENERATORS` is all the service needs to offer, train, draw from and judge a generator."""

from collections.abc import Iterator

import httpx
import pytest
from pydantic import Field
from typer.testing import CliRunner

from ehr.errors import ConfigError
from ehr.generators import GENERATORS, generator_names, generator_spec, history_generator_names
from ehr.generators.config import Config
from ehr.generators.spec import GeneratorSpec
from ehr_d3pm.cli import cli
from tests.api.front import Caller, Front
from tests.service.stand import OWNER, Stand, long_csv
from worker.execution import execute
from worker.runtime import Runtime


class NewcomerConfig(Config):
    times: float = Field(1.0, gt=0, le=2)


NEWCOMER = GeneratorSpec(
    name="newcomer",
    description="codes by themselves, more or less common than they are",
    implementation="tests.service.newcomer:Newcomer",
    settings=NewcomerConfig,
)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ehr.generators.GENERATORS", (*GENERATORS, NEWCOMER))


@pytest.fixture
def caller(stand: Stand) -> Iterator[Caller]:
    with Front(stand.settings) as front:
        yield front.as_owner(OWNER)


def work(stand: Stand, job_id: str) -> None:
    """Do a job as a worker does."""
    from worker.tasks.evaluate import evaluate
    from worker.tasks.generate import generate
    from worker.tasks.ingest import ingest
    from worker.tasks.train import train

    kinds = {"ingest": ingest, "train": train, "generate": generate, "evaluate": evaluate}
    runtime = Runtime(stand.settings, stand.database, stand.store, stand.broker)
    execute(runtime, job_id, kinds.__getitem__)


def accepted(answer: httpx.Response) -> str:
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_from_its_line_to_a_report(stand: Stand, caller: Caller) -> None:
    ingestion = stand.ingest(long_csv(600))
    work(stand, ingestion)
    body = {"dataset_id": stand.succeed(ingestion)["dataset_id"], "generator": "newcomer", "settings": {"times": 1.2}}
    training = accepted(caller.http.post("/train", json=body))
    work(stand, training)
    model_id = stand.succeed(training)["model_id"]
    (model,) = caller.http.get("/models").json()["items"]
    assert (model["id"], model["generator"]) == (model_id, "newcomer")
    assert caller.http.get(f"/models/{model_id}").json()["details"]["settings"] == {"times": 1.2}

    generation = accepted(caller.http.post("/generate", json={"model_id": model_id, "n": 1500}))
    work(stand, generation)
    evaluation = stand.succeed(generation)["evaluate_job_id"]
    work(stand, evaluation)
    stand.succeed(evaluation)
    report = caller.http.get(f"/reports/{generation}").json()
    assert report["records"] == 1500 and report["model_id"] == model_id
    assert "cannot tell" in report["fidelity"]["metrics"]["held_out_elbo"]["figures"]["value"]["absent"]
    assert f"Report on cohort {generation}" in caller.http.get(f"/reports/{generation}.html").text


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_the_command_line_offers_it(caller: Caller) -> None:
    offered = CliRunner().invoke(cli, ["--url", caller.front.url, "--key", caller.key, "generators"])
    assert offered.exit_code == 0 and "newcomer" in offered.output
    assert "`ehr-d3pm generators`" in CliRunner().invoke(cli, ["train", "--help"]).output


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_its_settings_are_checked_and_its_name_is_offered(stand: Stand, caller: Caller) -> None:
    schema = caller.http.get("/openapi.json").json()["components"]["schemas"]["TrainRequest"]
    assert schema["properties"]["generator"]["enum"] == [
        *(spec.name for spec in GENERATORS),
        "newcomer",
        *history_generator_names(),
    ]
    request = {"dataset_id": caller.dataset(), "generator": "newcomer"}
    for changes, words in (
        ({"settings": {"times": 3}}, "times: Input should be less than or equal to 2"),
        ({"settings": {"tims": 1}}, "tims: Extra inputs"),
        ({"preset": "fast"}, "leave it out"),
        ({"generator": "stranger"}, "'tabsyn', 'newcomer'"),
    ):
        answer = caller.http.post("/train", json=request | changes)
        assert answer.status_code == 422 and words in answer.text
    assert caller.http.post("/train", json=request).status_code == 202


def test_an_unknown_name_is_told_the_known_ones() -> None:
    assert generator_spec("newcomer") is NEWCOMER and generator_names()[-1] == "newcomer"
    with pytest.raises(ConfigError, match=r"unknown generator 'stranger'; known: d3pm, .*, newcomer"):
        generator_spec("stranger")
