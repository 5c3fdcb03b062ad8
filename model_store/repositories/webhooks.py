"""Webhooks: whom to tell how jobs end, what is to be sent, and what became of it."""

import json
import secrets
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import and_, delete, exists, func, or_, select, update

from ehr.errors import ConflictError, NotFoundError, RequestError
from model_store.clock import now
from model_store.ids import MESSAGE, WEBHOOK, checked_id, new_id
from model_store.repositories.base import OwnedRepository, Page, Repository
from model_store.tables import ApiKey, Job
from model_store.webhook_tables import Webhook, WebhookDelivery

SECRET_BYTES = 32
SECRET_PREFIX = "whsec_"
OLD_SECRET_SECONDS = 86_400  # for so long what is sent carries the signature of the secret before, too
MOST_WEBHOOKS = 20
KEPT_SECONDS = 30 * 86_400
PENDING, DELIVERED, FAILED = "pending", "delivered", "failed"


@dataclass(frozen=True)
class Due:
    """A message to send now, and the secrets to sign it with."""

    id: str
    webhook_id: str
    url: str
    body: str
    secrets: tuple[str, ...]
    attempts: int  # before this one


class WebhookRepository(OwnedRepository[Webhook]):
    table, id_column, id_kind = Webhook, "id", WEBHOOK

    def create(self, owner: str, key_prefix: str | None, name: str, url: str, kinds: Sequence[str]) -> Webhook:
        """A new one with a secret of its own; RequestError if there are too many."""
        mine = select(func.count()).select_from(Webhook).where(Webhook.owner == owner)
        if self.session.scalars(mine).one() >= MOST_WEBHOOKS:
            raise RequestError(f"an owner has at most {MOST_WEBHOOKS} webhooks: delete one first")
        said = {"name": name, "url": url, "kinds": list(kinds), "secrets": [_fresh()]}
        row = Webhook(id=new_id(WEBHOOK), owner=owner, key_prefix=key_prefix, **said)
        self.add(row)
        self.session.refresh(row)
        return row

    def rotate(self, owner: str, webhook_id: str) -> Webhook:
        """Give it a new secret; the one before goes on for a day."""
        row = self.get(owner, webhook_id)
        moment: float = self.session.scalars(select(now())).one()
        before = [row.secrets[0] | {"until": moment + OLD_SECRET_SECONDS}]
        row.secrets = [_fresh(), *before]
        self.session.flush()
        return row

    def enable(self, owner: str, webhook_id: str) -> Webhook:
        """Send again what is sent to it."""
        row = self.get(owner, webhook_id)
        row.disabled = None
        self.session.flush()
        return row

    def delete(self, owner: str, webhook_id: str) -> None:
        """Remove it, with what was to be sent."""
        self.session.delete(self.get(owner, webhook_id))


class DeliveryRepository(Repository):
    # --- events ---

    def add_end_of_job(self, job_id: str, state: str) -> None:
        """Have everyone told who wants to know, in the transaction that ends the job. Who and how: nothing more, what
        came of it is for those to see who may."""
        is_active = exists().where(ApiKey.prefix == Webhook.key_prefix, ApiKey.revoked_at.is_(None))
        listening = (
            select(Webhook.id, Webhook.kinds, Job.owner, Job.kind)
            .join(Job, Job.owner == Webhook.owner)
            .where(Job.id == job_id, Webhook.disabled.is_(None), or_(Webhook.key_prefix.is_(None), is_active))
        )
        for row in self.session.execute(listening):
            if row.kind in row.kinds:
                self.add(row.id, row.owner, f"job.{state}", {"job_id": job_id, "kind": row.kind, "state": state})

    def add(self, webhook_id: str, owner: str, event: str, data: dict[str, str]) -> WebhookDelivery:
        moment: float = self.session.scalars(select(now())).one()
        told = {"type": event, "timestamp": datetime.fromtimestamp(moment, UTC).isoformat(), "data": data}
        body = json.dumps(told, separators=(",", ":"))
        row = WebhookDelivery(id=new_id(MESSAGE), webhook_id=webhook_id, owner=owner, event=event, body=body)
        self._insert(row)
        self.session.refresh(row)
        return row

    # --- sending ---

    def has_due(self) -> bool:
        """Whether there is anything to send; asking does not write."""
        due = (WebhookDelivery.state == PENDING, WebhookDelivery.due_at <= now(), Webhook.disabled.is_(None))
        query = select(WebhookDelivery.id).join(Webhook, Webhook.id == WebhookDelivery.webhook_id).where(*due)
        return self.session.scalar(query.limit(1)) is not None

    def take_due(self, lease_seconds: float, limit: int = 50) -> list[Due]:
        """Messages to send now; other senders leave them alone for a while, and get them if this one dies."""
        due = and_(WebhookDelivery.state == PENDING, WebhookDelivery.due_at <= now())
        enabled = select(Webhook.id).where(Webhook.disabled.is_(None))
        first = select(WebhookDelivery.id).where(due, WebhookDelivery.webhook_id.in_(enabled))
        query = update(WebhookDelivery).where(
            WebhookDelivery.id.in_(first.order_by(WebhookDelivery.due_at).limit(limit)), due
        )
        taken = self.session.execute(
            query.values(due_at=now() + lease_seconds).returning(
                WebhookDelivery.id, WebhookDelivery.webhook_id, WebhookDelivery.body, WebhookDelivery.attempts
            )
        ).all()
        hooks = select(Webhook).where(Webhook.id.in_({row.webhook_id for row in taken}))
        known = {hook.id: hook for hook in self.session.scalars(hooks)}
        moment: float = self.session.scalars(select(now())).one()
        return [
            Due(row.id, row.webhook_id, hook.url, row.body, _valid(hook, moment), row.attempts)
            for row in taken
            if (hook := known.get(row.webhook_id)) is not None
        ]

    def delivered(self, due: Due, status: int) -> None:
        self._note(due, status, None, state=DELIVERED, delivered_at=now())

    def refused(self, due: Due, status: int | None, error: str, wait_seconds: float | None) -> None:
        """It was not taken: due again after a wait, or given up if there is none."""
        again = {"state": FAILED} if wait_seconds is None else {"due_at": now() + wait_seconds}
        self._note(due, status, error, **again)

    def disable(self, due: Due, why: str) -> None:
        """The address does not want to be told any more."""
        self.session.execute(update(Webhook).where(Webhook.id == due.webhook_id).values(disabled=why))

    def _note(self, due: Due, status: int | None, error: str | None, **values: object) -> None:
        told = {"attempts": due.attempts + 1, "status": status, "error": None if error is None else error[:200]}
        query = update(WebhookDelivery).where(WebhookDelivery.id == due.id, WebhookDelivery.state == PENDING)
        self.session.execute(query.values(**told, **values))

    # --- looking ---

    def page(self, webhook_id: str, cursor: str | None, limit: int, state: str | None) -> Page[WebhookDelivery]:
        """Newest first; a cursor is the id of the last."""
        query = select(WebhookDelivery).where(WebhookDelivery.webhook_id == webhook_id)
        if state is not None:
            query = query.where(WebhookDelivery.state == state)
        if cursor is not None:
            last = self._get(webhook_id, cursor)
            older = WebhookDelivery.created_at < last.created_at
            same = and_(WebhookDelivery.created_at == last.created_at, WebhookDelivery.id < last.id)
            query = query.where(or_(older, same))
        order = (WebhookDelivery.created_at.desc(), WebhookDelivery.id.desc())
        rows = list(self.session.scalars(query.order_by(*order).limit(limit + 1)))
        return Page(rows[:limit], rows[limit - 1].id if len(rows) > limit else None)

    def replay(self, webhook_id: str, delivery_id: str) -> WebhookDelivery:
        """Send it again, under its id: a receiver that has it knows. ConflictError while it is being sent anyway."""
        row = self._get(webhook_id, delivery_id)
        if row.state == PENDING:
            raise ConflictError("it has not been delivered yet and is sent again by itself")
        row.state, row.attempts, row.delivered_at = PENDING, 0, None
        row.due_at = self.session.scalars(select(now())).one()
        self.session.flush()
        return row

    def forget_old(self) -> None:
        """What was sent or given up weeks ago."""
        old = and_(WebhookDelivery.state != PENDING, WebhookDelivery.created_at < now() - KEPT_SECONDS)
        self.session.execute(delete(WebhookDelivery).where(old))

    def _get(self, webhook_id: str, delivery_id: str) -> WebhookDelivery:
        row = self.session.get(WebhookDelivery, checked_id(delivery_id, MESSAGE))
        if row is None or row.webhook_id != webhook_id:
            raise NotFoundError("there is no delivery with this id")
        return row


def _fresh() -> dict[str, str | None]:
    return {"secret": SECRET_PREFIX + b64encode(secrets.token_bytes(SECRET_BYTES)).decode(), "until": None}


def _valid(hook: Webhook, moment: float) -> tuple[str, ...]:
    return tuple(each["secret"] for each in hook.secrets if each["until"] is None or each["until"] > moment)
