"""What the service offers by name. Its OpenAPI document says so: the client keeps no list that could be out of date."""

from collections.abc import Iterator
from typing import Any

import typer

from ehr_d3pm.cli.output import AsJson, client_of, print_json, say


def generators(context: typer.Context, as_json: AsJson = False) -> None:
    """List the generators that can be trained, and their presets."""
    with client_of(context) as client:
        fields = client.openapi()["components"]["schemas"]["TrainRequest"]["properties"]
    _show({"generators": _names(fields["generator"]), "presets": _names(fields["preset"])}, as_json)


def formats(context: typer.Context, as_json: AsJson = False) -> None:
    """List the formats read and written, and the ICD roll-ups."""
    with client_of(context) as client:
        paths = client.openapi()["paths"]
    upload = paths["/datasets"]["post"]["requestBody"]["content"]["multipart/form-data"]["schema"]["properties"]
    query = paths["/cohorts/{job_id}/records"]["get"]["parameters"]
    written = next(_names(parameter) for parameter in query if parameter["name"] == "format")
    _show({"read": _names(upload["format"]), "written": written, "rollups": _names(upload["rollup"])}, as_json)


def _show(names: dict[str, list[str]], as_json: bool) -> None:
    if as_json:
        print_json(names)
        return
    for what, known in names.items():
        say(f"{what}: {', '.join(known)}")


def _names(schema: dict[str, Any]) -> list[str]:
    """The names a field accepts, or else its examples."""
    return list(dict.fromkeys(_listed(schema, "enum"))) or list(dict.fromkeys(_listed(schema, "examples")))


def _listed(schema: Any, word: str) -> Iterator[str]:
    """What stands under `word`, at any depth."""
    if isinstance(schema, dict):
        for name, value in schema.items():
            yield from value if name == word and isinstance(value, list) else _listed(value, word)
    elif isinstance(schema, list):
        for value in schema:
            yield from _listed(value, word)
