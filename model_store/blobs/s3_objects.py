"""Objects of buckets that are not the store's: listed, read and written. What goes wrong there is an OutsideError, and
never one of the store."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

from ehr.errors import OutsideError, StoreError
from model_store.blobs.s3 import client
from model_store.blobs.s3_files import Download, Upload
from model_store.blobs.s3_requests import WRITTEN_BEFORE, Patience, Requests, S3Error


@dataclass(frozen=True)
class Listed:
    key: str
    size: int
    version: str


class S3Objects:
    """Of one bucket, with the credentials of this process."""

    def __init__(self, bucket: str, patience: Patience | None = None) -> None:
        self._requests = Requests(client(), bucket, patience or Patience())

    def list(self, prefix: str) -> Iterator[Listed]:
        position: dict[str, Any] = {}
        while True:
            with _outside(prefix):
                page = self._requests("list_objects_v2", Prefix=prefix, **position)
            for found in page.get("Contents", ()):
                yield Listed(found["Key"], int(found["Size"]), str(found["ETag"]))
            if not page.get("IsTruncated"):
                return
            position = {"ContinuationToken": page["NextContinuationToken"]}

    def look(self, key: str) -> tuple[int, str]:
        """(size, version)."""
        with _outside(key):
            found = self._requests("head_object", Key=key)
        return int(found["ContentLength"]), str(found["ETag"])

    def blocks(self, key: str) -> Iterator[bytes]:
        """All of one version, or it is an error."""
        with _outside(key):
            yield from Download(self._requests, key, _name(key)).blocks()

    @contextmanager
    def create(self, key: str) -> Iterator[BinaryIO]:
        """As a store's: whole or absent, and an error if there is one of that name with other contents."""
        upload = _Upload(self._requests, key, _name(key))
        try:
            yield cast(BinaryIO, upload)
            with _outside(key):
                upload.finish()
        except BaseException:
            upload.abort()
            raise


class _Upload(Upload):
    def write(self, data: Any, /) -> int:
        with _outside(self.key):
            return super().write(data)


def _name(key: str) -> str:
    return key.rstrip("/").rsplit("/", 1)[-1] or "the bucket"


@contextmanager
def _outside(key: str) -> Iterator[None]:
    try:
        yield
    except (S3Error, StoreError) as error:
        cause = error if isinstance(error, S3Error) else error.__cause__
        why = f"the bucket answers {cause.code}" if isinstance(cause, S3Error) else str(error)
        if isinstance(cause, S3Error) and cause.code in WRITTEN_BEFORE:
            why = "there is one of that name with other contents"
        raise OutsideError(f"{_name(key)}: {why}") from None


def storage_options() -> dict[str, str]:
    """Credentials, region and endpoint of this process, as libraries of other languages want them."""
    from botocore.session import Session

    session = Session()
    found, credentials = client().meta, session.get_credentials()
    options = {"AWS_REGION": found.region_name, "AWS_ENDPOINT_URL": found.endpoint_url}
    if credentials is not None:
        key = credentials.get_frozen_credentials()
        options |= {"AWS_ACCESS_KEY_ID": key.access_key, "AWS_SECRET_ACCESS_KEY": key.secret_key}
        options |= {} if key.token is None else {"AWS_SESSION_TOKEN": key.token}
    if str(found.endpoint_url).startswith("http://"):
        options["AWS_ALLOW_HTTP"] = "true"
    return {name: str(value) for name, value in options.items() if value}
