"""The id of the present request: taken from X-Request-ID or made, in every answer and every log line."""

import re
import secrets
from contextvars import ContextVar

HEADER = "X-Request-ID"
_FORM = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)


def accepted_or_new(sent: str | None) -> str:
    """The client's id if it is harmless in a log line, else a fresh one."""
    return sent if sent is not None and _FORM.match(sent) else secrets.token_hex(8)
