"""s3://: Amazon S3, or another server of its protocol. An object appears whole, and once (docs/deployment.md)."""

import builtins
import io
import logging
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import urlsplit

from ehr.errors import StoreError
from model_store.blobs.protocol import BlobStore, Entry, checked_key, is_kept
from model_store.blobs.s3_files import PART, Download, Upload, is_missing
from model_store.blobs.s3_requests import NOT_OFFERED, ONCE, Patience, Requests, S3Error

log = logging.getLogger(__name__)
AT_ONCE = 1000  # keys that one request may delete
DESCRIPTORS = Path("/proc/self/fd")


class S3Store(BlobStore):
    """Credentials, region and endpoint come from where AWS's own tools look: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
    AWS_DEFAULT_REGION, AWS_ENDPOINT_URL, ~/.aws, or the role of the machine."""

    scheme = "s3"

    def __init__(self, url: str, scratch: Path | None = None, patience: Patience | None = None) -> None:
        address = urlsplit(url)
        self.prefix = f"{address.path.strip('/')}/".lstrip("/")
        self.scratch = scratch
        self.requests = Requests(client(), address.netloc, patience or Patience())

    @contextmanager
    def create(self, key: str) -> Iterator[BinaryIO]:
        upload = Upload(self.requests, self._path(key), _name(key))
        try:
            yield cast(BinaryIO, upload)
            upload.finish()
        except BaseException:
            upload.abort()
            raise

    @contextmanager
    def open(self, key: str) -> Iterator[BinaryIO]:
        with io.BufferedReader(self._download(key), PART) as file:
            yield file

    def read(self, key: str, sha256: str | None = None) -> bytes:
        return self._verified(key, self._download(key).readall(), sha256)

    @contextmanager
    def local_path(self, key: str) -> Iterator[Path]:
        download = self._download(key)
        if self.scratch is not None:
            self.scratch.mkdir(parents=True, exist_ok=True)
        # Where it can be, the file has no name: patients' data does not outlive this process, however it ends.
        nameless = DESCRIPTORS.exists()
        make: Any = tempfile.TemporaryFile if nameless else tempfile.NamedTemporaryFile
        with make(dir=self.scratch) as file:
            for block in download.blocks():
                file.write(block)
            file.flush()
            yield Path(f"/proc/{os.getpid()}/fd/{file.fileno()}" if nameless else file.name)

    def exists(self, key: str) -> bool:
        try:
            self.requests("head_object", Key=self._path(key))
        except S3Error as error:
            if is_missing(error):
                return False
            raise error.as_store_error(_name(key)) from error
        return True

    def entries(self, folder: str) -> Iterator[Entry]:
        for page in self._pages("list_objects_v2", folder):
            for found in page.get("Contents", ()):
                yield Entry(found["Key"].removeprefix(self.prefix), found["Size"], found["LastModified"].timestamp())

    def delete(self, key: str) -> None:
        with _translated(_name(key)):
            self.requests("delete_object", Key=self._path(key))

    def delete_folder(self, folder: str, keep: Sequence[str] = ()) -> None:
        """Also what killed writers have left of unfinished uploads."""
        deleted: set[str] = set()
        # until a listing has nothing new: one may lag behind what was written or deleted just before
        while keys := [key for key in self.list(folder) if key not in deleted and not is_kept(key, keep)]:
            for first in range(0, len(keys), AT_ONCE):
                self._delete_all(keys[first : first + AT_ONCE])
            deleted.update(keys)
        for key, upload_id in self.unfinished(folder):
            if not is_kept(key, keep):
                self._abort(key, upload_id)

    def unfinished(self, folder: str) -> Iterator[tuple[str, str]]:
        """Key and id of uploads under a folder that were begun and neither finished nor aborted."""
        try:
            for page in self._pages("list_multipart_uploads", folder):
                for found in page.get("Uploads", ()):
                    yield found["Key"].removeprefix(self.prefix), found["UploadId"]
        except StoreError as error:
            if not (isinstance(error.__cause__, S3Error) and error.__cause__.code in NOT_OFFERED):
                raise
            log.warning("this store cannot list unfinished uploads; have it remove old ones by a lifecycle rule")

    def check(self) -> None:
        with _translated("the bucket"):
            self.requests("head_bucket", ONCE)

    def _path(self, key: str) -> str:
        return self.prefix + checked_key(key)

    def _download(self, key: str) -> Download:
        return Download(self.requests, self._path(key), _name(key))

    def _pages(self, operation: str, folder: str) -> Iterator[dict[str, Any]]:
        position: dict[str, Any] = {}
        while True:
            with _translated(_name(folder)):
                page = self.requests(operation, Prefix=f"{self._path(folder)}/", **position)
            yield page
            if not page.get("IsTruncated"):
                return
            if "NextContinuationToken" in page:
                position = {"ContinuationToken": page["NextContinuationToken"]}
            else:
                position = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}

    def _delete_all(self, keys: builtins.list[str]) -> None:
        objects = [{"Key": self._path(key)} for key in keys]
        with _translated("a folder"):
            answer = self.requests("delete_objects", Delete={"Objects": objects, "Quiet": True})
        for error in answer.get("Errors", ()):
            raise StoreError(f"{_name(error['Key'])} could not be removed from the store: {error['Code']}")

    def _abort(self, key: str, upload_id: str) -> None:
        try:
            self.requests("abort_multipart_upload", Key=self._path(key), UploadId=upload_id)
        except S3Error as error:
            if error.code != "NoSuchUpload":  # finished or aborted meanwhile
                raise error.as_store_error(_name(key)) from error


def client() -> Any:
    from botocore.config import Config
    from botocore.session import Session

    config = Config(
        retries={"total_max_attempts": 1},
        connect_timeout=5,
        read_timeout=60,
        max_pool_connections=32,
        # the checksum is ours and a plain header; others would come as trailers, which few other servers know
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    return Session().create_client("s3", config=config)


def _name(key: str) -> str:
    return key.rsplit("/", 1)[-1]


@contextmanager
def _translated(name: str) -> Iterator[None]:
    try:
        yield
    except S3Error as error:
        raise error.as_store_error(name) from error
