"""Query parameters that nobody reads are refused: a filter that is misspelt would answer with everything."""

from fastapi import Request
from fastapi.exceptions import RequestValidationError


async def known_parameters(request: Request) -> None:
    """A dependency of every route: 422 for parameters that the OpenAPI document does not have, with those it has."""
    sent = request.query_params.keys()
    if not sent:
        return
    operation = request.app.openapi()["paths"][request.scope["route"].path][_documented(request.method)]
    known = {each["name"] for each in operation.get("parameters", []) if each["in"] == "query"}
    if unknown := sorted(sent - known):
        message = f"unknown parameter; known: {', '.join(sorted(known)) or 'none'}"
        raise RequestValidationError([{"loc": ("query", name), "msg": message, "type": "extra"} for name in unknown])


def _documented(method: str) -> str:
    """HEAD is GET without the body."""
    return "get" if method == "HEAD" else method.lower()
