"""An object being written in parts, and an object being read by ranges."""

import base64
import hashlib
import io
import logging
from collections.abc import Iterator
from typing import Any

from ehr.errors import CorruptError, StoreError
from model_store.blobs.s3_requests import MISSING, NOT_OFFERED, ONCE, WRITTEN_BEFORE, Requests, S3Error

log = logging.getLogger(__name__)

# A writer holds one part and a copy of it that is being sent: 16 MiB and a little. S3 takes 10,000 parts: 78 GiB.
PART = 8 << 20


class Upload(io.RawIOBase):
    """A file to write to. It becomes an object in `finish`, and not before: parts of an upload are invisible.

    What fits into one part is sent by a single request, which needs no cleaning up.
    """

    def __init__(self, requests: Requests, key: str, name: str) -> None:
        self.requests, self.key, self.name = requests, key, name
        self.size, self.digest = 0, hashlib.sha256()
        self._buffer = bytearray()
        self._upload_id: str | None = None
        self._parts: list[dict[str, Any]] = []
        self._made = False  # the object is this writer's
        self._proven = True  # so far, the server has told a hash of everything it took

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        view = memoryview(data).cast("B")
        self.size += len(view)
        self.digest.update(view)
        taken = 0
        while len(self._buffer) + len(view) - taken > PART:  # the last part waits for `finish`
            room = PART - len(self._buffer)
            self._buffer += view[taken : taken + room]
            self._send_part(bytes(self._buffer))
            self._buffer.clear()
            taken += room
        self._buffer += view[taken:]
        return len(view)

    def finish(self) -> None:
        """Make it an object, once: a second one of that name is an error unless it has the same bytes.

        That also settles a request whose answer was lost: it is repeated, and finds what it wrote the first time.
        """
        try:
            self._complete() if self._upload_id is not None else self._put()
            if not self._proven and not self._is_there():
                raise CorruptError(f"{self.name} did not arrive in the store as it was sent")
            self._upload_id = None
        except S3Error as error:
            if error.code not in (*WRITTEN_BEFORE, "NoSuchUpload"):
                raise error.as_store_error(self.name) from error
            self.abort()
            if not self._is_there():
                raise StoreError(f"{self.name} is in the store with other contents") from error
        except CorruptError:
            if self._made:
                self._delete()
            raise

    def abort(self) -> None:
        """Have the server forget the parts. If it cannot be told, they go when the folder is removed."""
        self._buffer.clear()
        if self._upload_id is None:
            return
        try:
            self.requests("abort_multipart_upload", ONCE, Key=self.key, UploadId=self._upload_id)
        except S3Error as error:
            if error.code != "NoSuchUpload":
                log.warning("an upload stays unfinished", extra={"reason": error.code})
        self._upload_id = None

    def _delete(self) -> None:
        try:
            self.requests("delete_object", Key=self.key)
        except S3Error as error:
            raise error.as_store_error(self.name) from error

    def _put(self) -> None:
        data = bytes(self._buffer)
        answer = self._once("put_object", Key=self.key, Body=data, ChecksumSHA256=_sha256(data))
        self._prove(answer, data)

    def _send_part(self, data: bytes) -> None:
        try:
            if self._upload_id is None:
                begun = self.requests("create_multipart_upload", Key=self.key, ChecksumAlgorithm="SHA256")
                self._upload_id = begun["UploadId"]
            number, checksum = len(self._parts) + 1, _sha256(data)
            part: dict[str, Any] = {"PartNumber": number, "Body": data, "ChecksumSHA256": checksum}
            answer = self.requests("upload_part", Key=self.key, UploadId=self._upload_id, **part)
        except S3Error as error:
            raise error.as_store_error(self.name) from error
        self._prove(answer, data)
        told = {"ChecksumSHA256": checksum} if answer.get("ChecksumSHA256") else {}
        self._parts.append({"PartNumber": number, "ETag": answer["ETag"], **told})

    def _complete(self) -> None:
        self._send_part(bytes(self._buffer))
        self._buffer.clear()
        parts = {"Parts": self._parts}
        self._once("complete_multipart_upload", Key=self.key, UploadId=self._upload_id, MultipartUpload=parts)
        size = self.requests("head_object", Key=self.key)["ContentLength"]
        if size != self.size:
            raise CorruptError(f"{self.name} has {size:,} bytes in the store and not {self.size:,}")

    def _once(self, operation: str, **details: Any) -> dict[str, Any]:
        """Refused if the object is there. A server that does not know the condition is asked without it: then it is the
        layout alone, in which no two writers have a name in common, that keeps objects from being replaced."""
        try:
            answer = self.requests(operation, IfNoneMatch="*", **details)
        except S3Error as error:
            if error.code not in NOT_OFFERED:
                raise
            answer = self.requests(operation, **details)
        self._made = True
        return answer

    def _prove(self, answer: dict[str, Any], data: bytes) -> None:
        """The server tells a hash of what it took. One without checksums tells MD5 as ETag, unless it encrypts."""
        if (told := answer.get("ChecksumSHA256")) is not None:
            if told != _sha256(data):
                raise CorruptError(f"{self.name} did not arrive in the store as it was sent")
            return
        md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
        self._proven &= str(answer.get("ETag", "")).strip('"') == md5

    def _is_there(self) -> bool:
        """Whether the object has the bytes that were written here; it is read back."""
        digest = hashlib.sha256()
        for block in Download(self.requests, self.key, self.name).blocks():
            digest.update(block)
        return digest.digest() == self.digest.digest()


class Download(io.RawIOBase):
    """A seekable file of ranges. All of them are of the same object, or it is an error."""

    def __init__(self, requests: Requests, key: str, name: str) -> None:
        self.requests, self.key, self.name = requests, key, name
        try:
            found = requests("head_object", Key=key)
        except S3Error as error:
            raise error.as_store_error(name) from error
        self.size, self._etag, self._at = int(found["ContentLength"]), found["ETag"], 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}[whence]
        self._at = max(start + offset, 0)
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer).cast("B")
        data = self._range(len(view))
        view[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        whole = bytearray(max(self.size - self._at, 0))
        filled = 0
        for block in self.blocks():
            whole[filled : filled + len(block)] = block
            filled += len(block)
        return bytes(whole)

    def blocks(self) -> Iterator[bytes]:
        """From here to the end, a part at a time."""
        while data := self._range(PART):
            yield data

    def _range(self, length: int) -> bytes:
        length = min(length, PART, self.size - self._at)
        if length <= 0:
            return b""
        span = f"bytes={self._at}-{self._at + length - 1}"
        try:
            data = self.requests.body(Key=self.key, Range=span, IfMatch=self._etag)
        except S3Error as error:
            if error.code in WRITTEN_BEFORE:
                raise CorruptError(f"{self.name} was replaced while it was read") from error
            raise error.as_store_error(self.name) from error
        if len(data) != length:
            raise CorruptError(f"{self.name} has fewer bytes than the store says")
        self._at += length
        return data


def is_missing(error: S3Error) -> bool:
    return error.code in MISSING


def _sha256(data: bytes) -> str:
    return base64.b64encode(hashlib.sha256(data).digest()).decode()
