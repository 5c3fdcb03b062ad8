"""Response bodies about places outside."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class PlaceAnswer(BaseModel):
    """A place outside that may be used."""

    model_config = ConfigDict(frozen=True)

    kind: Literal["objects", "postgres", "fhir"]
    name: str | None = Field(description="what requests call it; null: by its address")
    url: str | None = Field(description="addresses that begin so are allowed, or the server's; null for databases")
    schemas: list[str] | None = Field(description="of a database, with wildcards")


class PlacesAnswer(BaseModel):
    """Where records may come from, and where cohorts may go."""

    model_config = ConfigDict(frozen=True)

    sources: list[PlaceAnswer] = Field(description="empty without the scope `data`")
    sinks: list[PlaceAnswer]
