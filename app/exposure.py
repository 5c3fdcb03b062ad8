"""What a request asks a model for, as it is counted, and how much whoever sends it may have."""

import hashlib
from collections.abc import Mapping

from app.access import Identity
from app.feasibility import Feasibility
from app.schemas.requests import GenerateRequest
from ehr.canonical_json import to_json
from ehr.canonical_request import CanonicalRequest
from model_store.repositories.exposure import COUNTED, Asked
from runtime.settings import Settings


def request_hash(request: CanonicalRequest) -> str | None:
    """The same for requests that mean the same, however they are written; None if nothing is asked for."""
    return None if request == CanonicalRequest() else hashlib.sha256(to_json(request.as_json())).hexdigest()


def exposed_by(body: GenerateRequest, feasibility: Feasibility) -> Asked:
    """What a request that can be met would expose."""
    small = feasibility.gate.warning is not None
    return Asked(body.model_id, body.n, request_hash(feasibility.request), small)


def caps_of(settings: Settings, identity: Identity) -> Mapping[str, int | None]:
    """The key's own caps, else the settings'; custodians, who hold the records anyway, have none unless they were given
    some."""
    general = (settings.cap_records, settings.cap_conditions, settings.cap_small_conditions)
    none: dict[str, int | None] = dict.fromkeys(COUNTED)
    return (none if identity.is_custodian else dict(zip(COUNTED, general, strict=True))) | dict(identity.caps or {})
