"""Models: training, and what became of it."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ehr_d3pm.cli.collections import collection
from ehr_d3pm.cli.datasets import DatasetId
from ehr_d3pm.cli.ids import id_argument, short
from ehr_d3pm.cli.jobs import finish
from ehr_d3pm.cli.output import AsJson, Exit, Wait, client_of, errors_as_exit_codes, fail, print_json, say
from ehr_d3pm.client import Client
from ehr_d3pm.requests import TrainOptions

SET = "change a setting, such as training.epochs=5; repeatable"
MAX_MINUTES = "longest that the job may run; with the preset auto, which is made to fit"
HOLDOUT_SHARE = "share of patients kept for early stopping, if not the dataset's own"

cli = collection(
    "models",
    Client.models,
    Client.model,
    {
        "model": lambda model: short(model["id"]),
        "name": lambda model: model["name"],
        "generator": lambda model: model["generator"],
        "codes": lambda model: model["n_codes"],
    },
)


@cli.command()
@errors_as_exit_codes()
def edit(
    context: typer.Context,
    model: Annotated[str, id_argument("id of a model, or its beginning")],
    name: Annotated[str | None, typer.Option(help="name shown in lists")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="instead of those it has; repeatable")] = None,
    notes: Annotated[str | None, typer.Option(help="what there is to say about it")] = None,
    as_json: AsJson = False,
) -> None:
    """Rename a model, tag it, or note something about it."""
    with client_of(context) as client:
        changed = client.change_model(model, name=name, tags=tag or None, notes=notes)
    if as_json:
        print_json(changed)
    else:
        say(f"{changed['id']} {changed['name']}")


@cli.command("import")
@errors_as_exit_codes()
def import_model(
    context: typer.Context,
    bundle: Annotated[Path, typer.Argument(help="zip file, as `ehr-d3pm download mdl_...` writes it")],
    name: Annotated[str | None, typer.Option(help="name shown in lists, if not the one it had")] = None,
    manifest_hash: Annotated[str | None, typer.Option(help="as the instance shows it where it was trained")] = None,
    as_json: AsJson = False,
) -> None:
    """Import a model that was trained elsewhere. Needs the scope admin."""
    with client_of(context) as client:
        model = client.import_model(bundle, name=name, manifest_hash=manifest_hash)
    if as_json:
        print_json(model)
    else:
        say(f"{model['id']} {model['name']}")


def train(
    context: typer.Context,
    dataset: DatasetId,
    name: Annotated[str | None, typer.Option(help="name shown in lists")] = None,
    generator: Annotated[str | None, typer.Option(help="`ehr-d3pm generators` lists them")] = None,
    preset: Annotated[str | None, typer.Option(help="settings to start from; `ehr-d3pm generators` lists them")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help=SET)] = None,
    holdout_share: Annotated[float | None, typer.Option(help=HOLDOUT_SHARE)] = None,
    max_minutes: Annotated[float | None, typer.Option(help=MAX_MINUTES)] = None,
    seed: int = 0,
    wait: Wait = True,
    as_json: AsJson = False,
) -> None:
    """Train a model on a dataset."""
    options: TrainOptions = {"name": name, "generator": generator, "preset": preset, "seed": seed}
    options |= {"settings": parsed_settings(set_ or []), "holdout_share": holdout_share, "max_minutes": max_minutes}
    with client_of(context) as client:
        finish(client, client.train(dataset, **options), wait, as_json)


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
