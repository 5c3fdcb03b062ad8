"""Ids are made here and nowhere else: a kind, an underscore and 128 random bits in hexadecimal.

Only ids of this form become parts of a blob key, so no name chosen by a client ever reaches the store.
"""

import re
import secrets

from ehr.errors import NotFoundError

DATASET, MODEL, JOB, KEY, UPLOAD = "ds", "mdl", "job", "key", "up"
WEBHOOK, MESSAGE = "wh", "msg"

_FORM = re.compile(r"(?:ds|mdl|job|key|up|wh|msg)_[0-9a-f]{32}\Z")


def new_id(kind: str) -> str:
    """A fresh id such as `job_3f...`."""
    return f"{kind}_{secrets.token_hex(16)}"


def checked_id(value: str, kind: str | None = None) -> str:
    """`value` if it has the form of an id (of that kind), else NotFoundError: what cannot exist is not found."""
    if _FORM.match(value) is None or (kind is not None and not value.startswith(f"{kind}_")):
        raise NotFoundError("there is nothing with this id")
    return value
