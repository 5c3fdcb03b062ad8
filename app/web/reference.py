"""The page about the API: every operation out of the OpenAPI document, with examples that can be sent from it."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fastapi import Request
from fastapi.responses import Response
from markupsafe import Markup, escape

from app.access import Identity, Services_, identify
from app.services import Services
from app.web import lists
from app.web.shell import page, page_router
from ehr.errors import AccessError

router = page_router()
EXAMPLE_ID = re.compile(r"(ds|mdl|job)_0123456789abcdef0123456789abcdef")


@dataclass(frozen=True)
class Field:
    """A parameter, or a field of a body. `place`: path, query, header or body."""

    name: str
    place: str
    kind: str
    required: bool
    default: str
    text: Markup
    example: str = ""


@dataclass(frozen=True)
class Operation:
    """One thing that can be asked of the API."""

    name: str
    method: str
    path: str
    summary: str
    text: Markup
    fields: list[Field]
    example: str | None  # of a JSON body
    is_upload: bool
    answers: list[tuple[str, str]]


@router.get("/docs")
def show_reference(request: Request, services: Services_) -> Response:
    """For everyone: it tells what the service offers, and nothing of what it holds."""
    try:
        identity: Identity | None = identify(request, services, None)
    except AccessError:
        identity = None
    document = request.app.openapi()
    newest = _newest(services, identity)
    groups: dict[str, list[Operation]] = {tag["name"]: [] for tag in document["tags"]}
    for path, methods in document["paths"].items():
        for method, told in methods.items():
            groups[told["tags"][0]].append(_operation(document, newest, method.upper(), path, told))
    about = {tag["name"]: tag["description"] for tag in document["tags"]}
    intro = _text(document["info"]["description"])
    return page(
        request, "reference.html", identity, {"active": "reference", "groups": groups, "about": about, "intro": intro}
    )


def _newest(services: Services, identity: Identity | None) -> dict[str, str]:
    """The caller's newest ids by kind, so that examples run."""
    if identity is None or not identity.may("read"):
        return {}
    datasets = lists.datasets(services, identity, 1).items
    models = lists.models(services, identity, 1).items
    cohorts = lists.cohorts(services, identity, 1).items
    found = {"ds": [each.id for each in datasets], "mdl": [each.id for each in models]}
    found["job"] = [each.job_id for each in cohorts]
    return {kind: ids[0] for kind, ids in found.items() if ids}


def _operation(
    document: dict[str, Any], newest: dict[str, str], method: str, path: str, told: dict[str, Any]
) -> Operation:
    bodies = told.get("requestBody", {}).get("content", {})
    body: dict[str, Any] = next(iter(bodies.values()), {})
    schema = _resolved(document, body.get("schema", {}))
    fields = [_parameter(newest, each) for each in told.get("parameters", [])]
    fields += [
        _field(name, "body", each, name in schema.get("required", [])) for name, each in _properties(document, schema)
    ]
    example = None
    if "application/json" in bodies:
        given = (schema.get("examples") or [{}])[0]
        example = _with_ids(json.dumps(given, indent=2), newest)
    answers = [(status, str(each["description"])) for status, each in told["responses"].items() if status < "300"]
    return Operation(
        told["operationId"],
        method,
        path,
        told["description"].split("\n\n")[0].split(". ")[0].rstrip(".").replace("`", ""),
        _text(told["description"]),
        fields,
        example,
        "multipart/form-data" in bodies,
        answers,
    )


def _parameter(newest: dict[str, str], told: dict[str, Any]) -> Field:
    kind = {"dataset_id": "ds", "model_id": "mdl", "job_id": "job"}.get(told["name"], "")
    example = newest.get(kind, "") if told["in"] == "path" else ""
    schema = told["schema"] | {"description": told.get("description", "")}
    return _field(told["name"], told["in"], schema, told["required"], example)


def _field(name: str, place: str, schema: dict[str, Any], required: bool, example: str = "") -> Field:
    default = schema.get("default")
    shown = "" if default is None or default == {} or default == [] else json.dumps(default)
    return Field(name, place, _kind(schema), required, shown, _text(schema.get("description", "")), example)


def _kind(schema: dict[str, Any]) -> str:
    """A type in a word or two."""
    if "enum" in schema:
        return "one of " + ", ".join(map(str, schema["enum"]))
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[-1]
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(each) for each in schema["anyOf"] if each.get("type") != "null"))
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return str(schema.get("type", "any"))


def _properties(document: dict[str, Any], schema: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """The fields of a body, and below an object its own."""
    for name, told in schema.get("properties", {}).items():
        yield f"{before}{name}", told
        inner = _resolved(document, told)
        if inner is not told and not before:
            yield from _properties(document, inner, f"{name}.")


def _resolved(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in schema:
        return schema
    found: dict[str, Any] = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[-1]]
    return found


def _with_ids(text: str, newest: dict[str, str]) -> str:
    return EXAMPLE_ID.sub(lambda found: newest.get(found[1], found[0]), text)


def _text(told: str) -> Markup:
    """Paragraphs with `code` and **strong** words."""
    escaped = str(escape(told.strip()))
    marked = re.sub(r"\*\*([^*]+)\*\*", r"<b>\1</b>", re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped))
    return Markup("".join(f"<p>{part}</p>" for part in marked.split("\n\n") if part.strip()))
