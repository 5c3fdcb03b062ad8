"""The codes of a dataset, or of what a model learned from."""

from typing import Annotated

import typer

from ehr_d3pm.cli.output import AsJson, Limit, client_of, errors, print_json, print_table


def codes(
    context: typer.Context,
    thing: Annotated[str, typer.Argument(metavar="ID", help="id of a dataset or a model")],
    text: Annotated[str | None, typer.Argument(help="words of the code or of what it means, such as diabetes")] = None,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """Search the codes that conditions and targets can ask for."""
    with client_of(context) as client:
        dataset = client.model(thing)["dataset_id"] if thing.startswith("mdl_") else thing
        found = list(client.codes(dataset, text, limit))
    if as_json:
        print_json(found)
        return
    rows = [[c["code"], "few" if c["records"] is None else f"{c['records']:,}", c["description"] or ""] for c in found]
    print_table(["code", "records", "meaning"], rows, right=(1,), lines=False)
    if len(found) == limit:
        errors.print(f"the first {limit}; --limit shows more", highlight=False)
