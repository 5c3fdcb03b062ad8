"""The codes of a dataset or a model."""

from typing import Annotated

import typer

from ehr_d3pm.cli.ids import id_argument
from ehr_d3pm.cli.output import AsJson, Limit, client_of, errors, print_json, print_table


def codes(
    context: typer.Context,
    thing: Annotated[str, id_argument("id of a dataset or a model, or its beginning", metavar="ID")],
    text: Annotated[list[str] | None, typer.Argument(help="words of what it means, or how the code begins")] = None,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """Search the codes that can be asked for, by what they mean.

    Such as `ehr-d3pm codes mdl_... heart failure`.
    """
    with client_of(context) as client:
        found = list(client.codes(thing, " ".join(text or []) or None, limit))
    if as_json:
        print_json(found)
        return
    if any(c.get("records") is not None for c in found):  # a dataset knows how many have each, and tells custodians
        counts = ["few" if c["records"] is None else f"{c['records']:,}" for c in found]
        rows = [[c["code"], count, c["description"] or ""] for c, count in zip(found, counts, strict=True)]
        print_table(["code", "records", "meaning"], rows, right=(1,), lines=False)
    else:
        print_table(["code", "meaning"], [[c["code"], c["description"] or ""] for c in found], lines=False)
    if len(found) == limit:
        errors.print(f"the first {limit}; --limit shows more", highlight=False)
