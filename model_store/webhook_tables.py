"""The tables of webhooks: where events are sent, and the events that are to be sent there."""

from typing import Any

from sqlalchemy import JSON, ForeignKey, Index, String, Text, text
from sqlalchemy.orm import Mapped, mapped_column

from model_store.clock import now
from model_store.columns import ID, OWNER, Base


class Webhook(Base):
    """An address that is told how jobs end. `secrets` are kept as they are: what is sent must be signed with them."""

    __tablename__ = "webhooks"
    __table_args__ = (Index(None, "owner", "created_at", "id"),)

    id: Mapped[str] = mapped_column(ID, primary_key=True)
    owner: Mapped[str] = mapped_column(OWNER)
    key_prefix: Mapped[str | None] = mapped_column(String(16))  # of the key that made it; revoked, nothing is sent
    name: Mapped[str] = mapped_column(String(200))
    url: Mapped[str] = mapped_column(Text)
    kinds: Mapped[list[str]]  # of jobs
    secrets: Mapped[list[dict[str, Any]]] = mapped_column(JSON)  # {"secret", "until": seconds or None}, newest first
    disabled: Mapped[str | None] = mapped_column(Text)  # why nothing is sent, if nothing is
    created_at: Mapped[float] = mapped_column(default=now())


class WebhookDelivery(Base):
    """An event for one address: written in the transaction that made it true, sent until somebody takes it. States:
    pending, delivered, failed."""

    __tablename__ = "webhook_deliveries"
    __table_args__ = (
        Index(None, "webhook_id", "created_at", "id"),
        Index(
            "ix_webhook_deliveries_pending",
            "due_at",
            postgresql_where=text("state = 'pending'"),
            sqlite_where=text("state = 'pending'"),
        ),
    )

    id: Mapped[str] = mapped_column(ID, primary_key=True)  # the same however often it is sent
    webhook_id: Mapped[str] = mapped_column(ForeignKey("webhooks.id", ondelete="CASCADE"))
    owner: Mapped[str] = mapped_column(OWNER)
    event: Mapped[str] = mapped_column(String(40))
    body: Mapped[str] = mapped_column(Text)  # as it is sent, byte for byte
    state: Mapped[str] = mapped_column(String(20), default="pending")
    attempts: Mapped[int] = mapped_column(default=0)
    due_at: Mapped[float] = mapped_column(default=now())
    status: Mapped[int | None]  # of the last answer
    error: Mapped[str | None] = mapped_column(String(200))  # why there was none, or why it was not taken
    created_at: Mapped[float] = mapped_column(default=now())
    delivered_at: Mapped[float | None]
