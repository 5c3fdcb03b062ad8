"""Bodies about webhooks."""

from typing import Annotated, Literal

from pydantic import Field

from app.schemas.answers import Answer, Moment
from app.schemas.requests import Request, with_examples
from ehr.fields import Name
from runtime.pinned_http import LONGEST_URL
from worker.contract import Kind

DeliveryState = Literal["pending", "delivered", "failed"]


class WebhookRequest(Request):
    """Have an address told how jobs end."""

    model_config = with_examples({"url": "https://example.org/hooks/ehr", "name": "airflow", "kinds": ["generate"]})

    url: Annotated[str, Field(min_length=1, max_length=LONGEST_URL, description="begins with `https://`")]
    name: Name = "webhook"
    kinds: list[Kind] | None = Field(
        None, min_length=1, max_length=4, description="of jobs; those that the key may see if left out"
    )


class WebhookAnswer(Answer):
    """An address that is told how jobs end: `job.succeeded`, `job.failed` and `job.cancelled`."""

    id: str
    name: str
    url: str
    kinds: list[Kind]
    disabled: str | None = Field(description="why nothing is sent; null: it is")
    created_at: Moment


class NewWebhookAnswer(WebhookAnswer):
    secret: str = Field(description="signs what is sent; shown once")


class DeliveryAnswer(Answer):
    """A message, and what became of it."""

    id: str = Field(description="`webhook-id` of the message, the same however often it is sent")
    event: str
    body: str = Field(description="as it is sent, byte for byte")
    state: DeliveryState
    attempts: int
    status: int | None = Field(description="of the last answer")
    error: str | None
    due_at: Moment = Field(description="when a pending one is sent next")
    created_at: Moment
    delivered_at: Moment | None
