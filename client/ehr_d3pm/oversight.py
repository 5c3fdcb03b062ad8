"""What the client can find out about who has had what."""

from collections.abc import Iterator
from typing import Unpack

from ehr_d3pm.errors import Json
from ehr_d3pm.requests import AuditFilters
from ehr_d3pm.transport import Transport


class OversightCalls:
    """Of a client."""

    _http: Transport

    def exposure(self, model_id: str) -> list[Json]:
        """How much of a model each key has had: with the scope `data` every key's, else your own."""
        return self._http.items(f"/models/{model_id}/exposure")

    def budgets(self) -> Json:
        """How much you have waiting and stored, and the most that may be."""
        return self._http.get("/budgets")

    def audit(self, limit: int | None = None, **wanted: Unpack[AuditFilters]) -> Iterator[Json]:
        """What was done and refused, newest first; needs the scope `admin`."""
        return self._http.pages("/audit", dict(wanted), limit)

    def withheld(self, limit: int | None = None) -> list[Json]:
        """Those of the newest cohorts that may not leave, and why, as far as the key may know."""
        return self._listed("/withheld", limit)

    def releases(self, limit: int | None = None) -> list[Json]:
        """Cohorts that were released, with the reasons; needs the scope `data`."""
        return self._listed("/releases", limit)

    def keys(self) -> list[Json]:
        """The owner's keys, without their secrets; needs the scope `admin`."""
        return self._listed("/keys", None)

    def _listed(self, path: str, limit: int | None) -> list[Json]:
        return self._http.items(path, limit=limit)
