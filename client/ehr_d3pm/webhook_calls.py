"""What the client can do with webhooks."""

from collections.abc import Iterator, Sequence
from typing import Unpack

from ehr_d3pm.errors import Json
from ehr_d3pm.requests import Filters, given
from ehr_d3pm.transport import Transport


class WebhookCalls:
    """Of a client."""

    _http: Transport

    def webhooks(self, limit: int | None = None, **wanted: Unpack[Filters]) -> Iterator[Json]:
        return self._http.pages("/webhooks", dict(wanted), limit)

    def webhook(self, webhook_id: str) -> Json:
        return self._http.get(f"/webhooks/{webhook_id}")

    def add_webhook(self, url: str, *, name: str | None = None, kinds: Sequence[str] | None = None) -> Json:
        """Have an address told how jobs end; the answer has the secret that signs what is sent, once."""
        return self._http.ask("POST", "/webhooks", given({"url": url, "name": name, "kinds": kinds}))

    def rotate_webhook(self, webhook_id: str) -> Json:
        """A new secret; the one before signs too for a day."""
        return self._http.ask("POST", f"/webhooks/{webhook_id}/rotate", None)

    def enable_webhook(self, webhook_id: str) -> Json:
        return self._http.ask("POST", f"/webhooks/{webhook_id}/enable", None)

    def test_webhook(self, webhook_id: str) -> Json:
        """Send it a message now."""
        return self._http.ask("POST", f"/webhooks/{webhook_id}/test", None)

    def deliveries(self, webhook_id: str, state: str | None = None, limit: int | None = None) -> Iterator[Json]:
        """What was sent to a webhook, newest first."""
        return self._http.pages(f"/webhooks/{webhook_id}/deliveries", {"state": state}, limit)

    def replay(self, webhook_id: str, delivery_id: str) -> Json:
        """Send a message again, under its id."""
        return self._http.ask("POST", f"/webhooks/{webhook_id}/deliveries/{delivery_id}/replay", None)
