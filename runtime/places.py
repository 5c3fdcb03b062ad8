"""The places outside that whoever runs the service allows: SOURCES to read from, SINKS to write to. None by default.

A client names a place, or an address within one. It never sends a path of a file, a connection string or a secret.
"""

import json
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal, TypeVar
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, TypeAdapter, ValidationError, field_validator

from ehr.errors import RequestError
from ehr.references import PlaceName
from runtime.pinned_http import checked_url


class Place(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    owners: tuple[str, ...] | None = Field(None, description="whose keys may use it; null: everybody's")

    def is_for(self, owner: str) -> bool:
        return self.owners is None or owner in self.owners


class ObjectPlace(Place):
    """A folder of objects. `private`: an `https://` one may be in this network, and have `http://`."""

    kind: Literal["objects"]
    url: str
    private: bool = False

    @field_validator("url")
    @classmethod
    def _is_a_folder(cls, url: str) -> str:
        if urlsplit(url).scheme not in ("s3", "https", "http") or not url.endswith("/") or not urlsplit(url).netloc:
            raise ValueError("must begin with s3:// or https:// and end in /")
        return url


class DatabasePlace(Place):
    """A Postgres database; `schemas` may have wildcards (`synthetic_*`)."""

    kind: Literal["postgres"]
    name: PlaceName
    url: SecretStr
    schemas: tuple[str, ...] = Field(min_length=1)

    @property
    def sqlalchemy_url(self) -> str:
        """With psycopg 3 where the URL only says postgres."""
        scheme, _, rest = self.url.get_secret_value().partition("://")
        return f"{'postgresql+psycopg' if scheme in ('postgres', 'postgresql') else scheme}://{rest}"


class FhirPlace(Place):
    """A FHIR server. With a `client_id`, tokens come from `token_url` by SMART backend services. `files`: where else
    than at the server itself its exported files may lie."""

    kind: Literal["fhir"]
    name: PlaceName
    url: str
    private: bool = False
    client_id: str | None = None
    token_url: str | None = None
    key_file: Path | None = Field(None, description="private key, PEM: RSA (RS384) or P-384 (ES384)")
    key_id: str | None = None
    scope: str = "system/*.read"
    files: tuple[str, ...] = ()

    @property
    def base(self) -> str:
        return self.url.rstrip("/")


SourcePlace = Annotated[ObjectPlace | DatabasePlace | FhirPlace, Field(discriminator="kind")]
SinkPlace = Annotated[ObjectPlace | DatabasePlace, Field(discriminator="kind")]
Places = Sequence[ObjectPlace | DatabasePlace | FhirPlace]
_SOURCES: TypeAdapter[tuple[SourcePlace, ...]] = TypeAdapter(tuple[SourcePlace, ...])
_SINKS: TypeAdapter[tuple[SinkPlace, ...]] = TypeAdapter(tuple[SinkPlace, ...])
Named = TypeVar("Named", DatabasePlace, FhirPlace)
T = TypeVar("T")


def source_places(text: str) -> tuple[SourcePlace, ...]:
    """What SOURCES says: a JSON list, or the path of a file with one."""
    return _read(_SOURCES, text)


def sink_places(text: str) -> tuple[SinkPlace, ...]:
    """What SINKS says, in the same way."""
    return _read(_SINKS, text)


def _read(adapter: TypeAdapter[T], text: str) -> T:
    try:
        if text.strip() == "":
            text = "[]"
        if not text.lstrip().startswith("["):
            text = Path(text).read_text(encoding="utf-8")
        return adapter.validate_python(json.loads(text))
    except OSError as error:
        raise ValueError(f"the file cannot be read: {type(error).__name__}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"this is not JSON: line {error.lineno}, column {error.colno}") from None
    except ValidationError as error:  # whose own words repeat what was given, passwords too
        wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_input=False)[:5])
        raise ValueError(wrong) from None


# --- what an owner may use ---


def object_place(places: Places, owner: str, url: str, field: str) -> ObjectPlace:
    """The place an address lies in; RequestError that names the field otherwise."""
    allowed = [place for place in places if isinstance(place, ObjectPlace) and place.is_for(owner)]
    _refuse_tricks(url, field)
    for place in allowed:
        if url.startswith(place.url):
            if not url.startswith("s3://"):
                checked_url(url, place.private)
            return place
    known = ", ".join(place.url for place in allowed)
    raise RequestError(f"{field}: {_unknown('address', known)}")


def database_place(places: Places, owner: str, name: str, schemas: dict[str, str]) -> DatabasePlace:
    """The database of that name, if all these schemas (by field) may be used there."""
    place = _named(DatabasePlace, places, owner, name, "connection")
    for field, schema in schemas.items():
        if not any(fnmatchcase(schema, pattern) for pattern in place.schemas):
            raise RequestError(f"{field}: {_unknown('schema', ', '.join(place.schemas))}")
    return place


def fhir_place(places: Places, owner: str, name: str) -> FhirPlace:
    return _named(FhirPlace, places, owner, name, "server")


def _named(kind: type[Named], places: Iterable[Place], owner: str, name: str, field: str) -> Named:
    allowed = {place.name: place for place in places if isinstance(place, kind) and place.is_for(owner)}
    if name not in allowed:
        raise RequestError(f"{field}: {_unknown(field, ', '.join(sorted(allowed)))}")
    return allowed[name]


def _unknown(what: str, known: str) -> str:
    return f"this {what} is not allowed here; allowed: {known or 'none'}"


def _refuse_tricks(url: str, field: str) -> None:
    """An address that a server may take for another one than it begins with."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise RequestError(f"{field}: this is not an address") from None
    if parts.query or parts.fragment or "?" in url or "#" in url or "@" in parts.netloc:
        raise RequestError(f"{field}: must have no user name, password, query or fragment")
    if "\\" in url or any(segment in (".", "..") for segment in unquote(parts.path).split("/")):
        raise RequestError(f"{field}: must have no '.' or '..' between slashes")
