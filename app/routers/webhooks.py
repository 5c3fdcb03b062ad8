"""Webhooks by the Standard Webhooks specification: make, look, rotate, test, replay."""

from typing import Annotated

from fastapi import APIRouter, Query
from sqlalchemy.orm import Session

from app.access import Identity, Reader, Services_
from app.library import Cursor, Limit, MaybeNamed, listed
from app.readers import kinds_for
from app.schemas.answers import PageAnswer
from app.schemas.webhooks import DeliveryAnswer, DeliveryState, NewWebhookAnswer, WebhookAnswer, WebhookRequest
from app.submissions import audit
from ehr.errors import ScopeError
from model_store.repositories import DeliveryRepository, WebhookRepository
from model_store.webhook_tables import Webhook
from runtime.pinned_http import checked_url

router = APIRouter(tags=["webhooks"])


@router.post("/webhooks", status_code=201)
def create_webhook(body: WebhookRequest, services: Services_, identity: Reader) -> NewWebhookAnswer:
    """Have an address told when jobs succeed, fail or are cancelled. The answer has the secret, once.

    A message says which job, of which kind, in which state, and nothing of what came of it. A key without the scope
    `data` hears of trainings and cohorts only. When the key is revoked, nothing more is sent.
    """
    allowed = kinds_for(identity, None)
    kinds = list(dict.fromkeys(body.kinds or allowed))
    if forbidden := [kind for kind in kinds if kind not in allowed]:
        raise ScopeError(f"jobs of the kind '{forbidden[0]}' need a key with the scope 'data'")
    url = checked_url(body.url, services.settings.webhooks_private)
    with services.database.session_scope() as session:
        row = WebhookRepository(session).create(identity.owner, identity.key_prefix, body.name, url, kinds)
        audit(session, identity, "create webhook", row.id)
        return NewWebhookAnswer.of(row, secret=row.secrets[0]["secret"])


@router.get("/webhooks")
def list_webhooks(
    services: Services_, identity: Reader, wanted: MaybeNamed, cursor: Cursor = None, limit: Limit = 50
) -> PageAnswer[WebhookAnswer]:
    """List webhooks."""
    return listed(services, WebhookRepository, WebhookAnswer.of, identity.owner, cursor, limit, wanted)


@router.get("/webhooks/{webhook_id}")
def get_webhook(webhook_id: str, services: Services_, identity: Reader) -> WebhookAnswer:
    """Show a webhook, and why it is disabled if it is."""
    return WebhookAnswer.of(services.row(WebhookRepository, identity.owner, webhook_id))


@router.delete("/webhooks/{webhook_id}", status_code=204)
def delete_webhook(webhook_id: str, services: Services_, identity: Reader) -> None:
    """Delete a webhook, with what was still to be sent."""
    with services.database.session_scope() as session:
        _mine(session, identity, webhook_id)
        WebhookRepository(session).delete(identity.owner, webhook_id)
        audit(session, identity, "delete webhook", webhook_id)


@router.post("/webhooks/{webhook_id}/rotate")
def rotate_webhook(webhook_id: str, services: Services_, identity: Reader) -> NewWebhookAnswer:
    """Give a webhook a new secret. For a day messages carry the signature of the one before, too."""
    with services.database.session_scope() as session:
        _mine(session, identity, webhook_id)
        row = WebhookRepository(session).rotate(identity.owner, webhook_id)
        audit(session, identity, "rotate webhook", webhook_id)
        return NewWebhookAnswer.of(row, secret=row.secrets[0]["secret"])


@router.post("/webhooks/{webhook_id}/enable")
def enable_webhook(webhook_id: str, services: Services_, identity: Reader) -> WebhookAnswer:
    """Send again to a webhook that was disabled because its address answered `410`."""
    with services.database.session_scope() as session:
        _mine(session, identity, webhook_id)
        return WebhookAnswer.of(WebhookRepository(session).enable(identity.owner, webhook_id))


@router.post("/webhooks/{webhook_id}/test", status_code=202)
def test_webhook(webhook_id: str, services: Services_, identity: Reader) -> DeliveryAnswer:
    """Send `webhook.test` to a webhook, as any other message is sent."""
    with services.database.session_scope() as session:
        _mine(session, identity, webhook_id)
        told = {"webhook_id": webhook_id}
        return DeliveryAnswer.of(DeliveryRepository(session).add(webhook_id, identity.owner, "webhook.test", told))


@router.get("/webhooks/{webhook_id}/deliveries")
def list_webhook_deliveries(
    webhook_id: str,
    services: Services_,
    identity: Reader,
    state: Annotated[DeliveryState | None, Query(description="only these")] = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> PageAnswer[DeliveryAnswer]:
    """List what was sent to a webhook or is to be sent, newest first. What is over is kept for 30 days."""
    with services.database.read_scope() as session:
        _mine(session, identity, webhook_id)
        page = DeliveryRepository(session).page(webhook_id, cursor, limit, state)
        return PageAnswer(items=[DeliveryAnswer.of(row) for row in page.rows], next_cursor=page.next_cursor)


@router.post("/webhooks/{webhook_id}/deliveries/{delivery_id}/replay", status_code=202)
def replay_webhook_delivery(webhook_id: str, delivery_id: str, services: Services_, identity: Reader) -> DeliveryAnswer:
    """Send a message again that was delivered or given up, under its id and with the attempts of a new one."""
    with services.database.session_scope() as session:
        _mine(session, identity, webhook_id)
        return DeliveryAnswer.of(DeliveryRepository(session).replay(webhook_id, delivery_id))


def _mine(session: Session, identity: Identity, webhook_id: str) -> Webhook:
    """The owner's webhook; ScopeError if it tells of jobs that the key may not see."""
    row = WebhookRepository(session).get(identity.owner, webhook_id)
    if not set(row.kinds) <= set(kinds_for(identity, None)):
        raise ScopeError("this webhook tells of jobs that need a key with the scope 'data'")
    return row
