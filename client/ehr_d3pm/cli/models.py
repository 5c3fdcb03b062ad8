"""Models: training, and what became of it."""

import json
from typing import Annotated, Any

import typer

from ehr_d3pm.cli.collections import collection
from ehr_d3pm.cli.jobs import finish
from ehr_d3pm.cli.output import AsJson, Exit, Wait, client_of, day, fail
from ehr_d3pm.client import Client

cli = collection(
    "models",
    Client.models,
    Client.model,
    {
        "model": lambda model: model["id"],
        "name": lambda model: model["name"],
        "generator": lambda model: model["generator"],
        "codes": lambda model: model["n_codes"],
        "created": lambda model: day(model["created_at"]),
    },
)


def train(
    context: typer.Context,
    dataset: Annotated[str, typer.Argument(help="id of a dataset")],
    name: Annotated[str | None, typer.Option(help="shown in lists")] = None,
    generator: Annotated[str | None, typer.Option(help="what learns; `ehr-d3pm generators` lists them")] = None,
    preset: Annotated[str | None, typer.Option(help="settings to start from; `ehr-d3pm generators` lists them")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="such as training.epochs=5; repeatable")
    ] = None,
    holdout_share: Annotated[
        float | None, typer.Option(help="of patients, kept for early stopping, if other than the dataset's own")
    ] = None,
    seed: int = 0,
    wait: Wait = True,
    as_json: AsJson = False,
) -> None:
    """Train a model on a dataset."""
    settings = parsed_settings(set_ or [])
    with client_of(context) as client:
        job = client.train(
            dataset,
            name=name,
            generator=generator,
            preset=preset,
            settings=settings,
            holdout_share=holdout_share,
            seed=seed,
        )
        finish(client, job, wait, as_json)


def parsed_settings(pairs: list[str]) -> dict[str, Any]:
    """`training.epochs=5` as nested settings; values are JSON, or text where they are none."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        path, equals, text = pair.partition("=")
        if not equals or not path:
            fail(f"--set {pair}: write NAME=VALUE, for example training.epochs=5", Exit.USAGE)
        *outer, last = path.split(".")
        inner = settings
        for name in outer:
            inner = inner.setdefault(name, {})
        try:
            inner[last] = json.loads(text)
        except ValueError:
            inner[last] = text
    return settings
