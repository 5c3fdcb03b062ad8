"""Multipart uploads, streamed to the store: one block in memory however large the file.

A note to discard each file is written before the file is, and taken back in the transaction that submits the job: an
upload that breaks off, or whose process dies, leaves nothing behind.
"""

import hashlib
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from email.message import Message
from typing import BinaryIO

import anyio.to_thread
from fastapi import Request
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from app.services import Services
from ehr.errors import DataError, RequestError, TooLargeError
from model_store.ids import UPLOAD, new_id
from model_store.layout import upload_blob, upload_folder
from model_store.repositories import DiscardRepository
from worker.contract import UploadedFile

FILE_FIELDS = ("file", "files")
MOST_FILES = 100
MOST_FIELDS = 20
LONGEST_FIELD_BYTES = 4096
BLOCK = 1 << 20
ABANDONED_SECONDS = 86_400  # an upload that takes longer has been given up
GZIP_MAGIC = b"\x1f\x8b"


@dataclass
class Upload:
    """A received form: its fields and its files."""

    fields: dict[str, str] = field(default_factory=dict)
    files: list[UploadedFile] = field(default_factory=list)
    hashes: list[str] = field(default_factory=list)  # sha256 of each file, as sent


class GzipGuard:
    """Inflates what passes, keeping nothing, to refuse bombs and broken files before anyone works on them."""

    def __init__(self, limit: int) -> None:
        self.limit, self.inflated = limit, 0
        self._inflater: zlib._Decompress | None = None
        self._head = b""
        self._plain = False

    def feed(self, data: bytes) -> None:
        if self._plain:
            return
        if self._inflater is None:
            data = self._head + data
            if len(data) < len(GZIP_MAGIC):
                self._head = data
                return
            if not data.startswith(GZIP_MAGIC):
                self._plain = True
                return
            self._inflater = zlib.decompressobj(wbits=31)
        self._inflate(data)

    def finish(self) -> None:
        if self._inflater is not None and not self._inflater.eof:
            raise DataError("the gzip file is cut off")

    def _inflate(self, data: bytes) -> None:
        assert self._inflater is not None
        while data:
            if self._inflater.eof:  # another member follows
                if not data.strip(b"\0"):
                    return  # padding
                self._inflater = zlib.decompressobj(wbits=31)
            try:
                self.inflated += len(self._inflater.decompress(data, BLOCK))
            except zlib.error:
                raise DataError("the gzip file is damaged") from None
            if self.inflated > self.limit:
                raise TooLargeError(f"the file inflates to more than {self.limit:,} bytes")
            data = self._inflater.unconsumed_tail or self._inflater.unused_data


class Receiver:
    """Takes a multipart body block by block; runs in a thread, because files and databases wait."""

    def __init__(self, services: Services, boundary: bytes) -> None:
        self.services = services
        self.upload = Upload()
        self.whole = False
        self.folders: list[str] = []  # in the store; they belong to whoever submits a job for them
        self._files = ExitStack()  # the open blob, if any
        self._file: BinaryIO | None = None
        self._size = 0
        self._received = 0
        self._header: list[bytes] = [b"", b""]
        self._headers: dict[bytes, bytes] = {}
        self._name = ""
        self._value = b""
        self.parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._part_begin,
                "on_header_field": lambda data, start, end: self._header_data(0, data[start:end]),
                "on_header_value": lambda data, start, end: self._header_data(1, data[start:end]),
                "on_header_end": self._header_end,
                "on_headers_finished": self._headers_finished,
                "on_part_data": lambda data, start, end: self._part_data(data[start:end]),
                "on_part_end": self._part_end,
                "on_end": self._end,
            },
        )

    def feed(self, data: bytes) -> None:
        try:
            self.parser.write(data)
        except FormParserError as error:
            raise RequestError(f"the multipart body is malformed: {error}") from None

    def finish(self) -> None:
        if not self.whole:
            raise RequestError("the multipart body is cut off")
        if not self.upload.files:
            raise RequestError(f"there is no file; send one or more as '{FILE_FIELDS[0]}'")

    def give_up(self, error: BaseException | None = None) -> None:
        """Leave nothing behind."""
        if error is not None:
            self._files.__exit__(type(error), error, error.__traceback__)
        if not self.folders:
            return
        with self.services.database.session_scope() as session:
            discards = DiscardRepository(session)
            for folder in self.folders:
                discards.forget(folder)
                discards.add(folder)
        self.services.sweeper.wake()

    # --- the parser's callbacks, in the order they come ---

    def _part_begin(self) -> None:
        self._headers, self._value, self._file = {}, b"", None

    def _header_data(self, which: int, data: bytes) -> None:
        self._header[which] += data

    def _header_end(self) -> None:
        name, value = self._header
        self._headers[name.strip().lower()] = value
        self._header = [b"", b""]

    def _headers_finished(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        self._name = options.get(b"name", b"").decode("utf-8", "replace")
        if b"filename" in options:
            self._open_file(options[b"filename"].decode("utf-8", "replace"))
        elif len(self.upload.fields) >= MOST_FIELDS:
            raise RequestError(f"a form has at most {MOST_FIELDS} fields")

    def _part_data(self, data: bytes) -> None:
        if self._file is None:
            self._value += data
            if len(self._value) > LONGEST_FIELD_BYTES:
                raise TooLargeError(f"a field has at most {LONGEST_FIELD_BYTES:,} bytes")
            return
        self._received += len(data)
        if self._received > self.services.settings.max_upload_bytes:
            raise TooLargeError(f"an upload has at most {self.services.settings.max_upload_bytes:,} bytes")
        self._size += len(data)
        self._digest.update(data)
        self._guard.feed(data)
        self._file.write(data)

    def _part_end(self) -> None:
        if self._file is None:
            if self._name in self.upload.fields:
                raise RequestError(f"the field '{self._name[:40]}' was sent twice")
            try:
                self.upload.fields[self._name] = self._value.decode("utf-8")
            except UnicodeDecodeError:
                raise RequestError(f"the field '{self._name[:40]}' is not UTF-8") from None
            return
        self._guard.finish()
        self._files.close()  # the blob is whole and durable from here on
        self._files, self._file = ExitStack(), None
        self.upload.files.append(UploadedFile(upload_id=self._upload_id, size=self._size, label=self._label))
        self.upload.hashes.append(self._digest.hexdigest())

    def _end(self) -> None:
        self.whole = True

    def _open_file(self, label: str) -> None:
        if self._name not in FILE_FIELDS:
            raise RequestError(f"files are sent as '{FILE_FIELDS[0]}', not as '{self._name[:40]}'")
        if len(self.upload.files) >= MOST_FILES:
            raise RequestError(f"an upload has at most {MOST_FILES} files")
        self._upload_id, self._label, self._size = new_id(UPLOAD), shown_label(label), 0
        self._digest, self._guard = hashlib.sha256(), GzipGuard(self.services.settings.max_inflated_bytes)
        folder = upload_folder(self._upload_id)
        with self.services.database.session_scope() as session:
            DiscardRepository(session).add(folder, wait_seconds=ABANDONED_SECONDS)
        self.folders.append(folder)
        self._file = self._files.enter_context(self.services.store.create(upload_blob(self._upload_id)))


def shown_label(filename: str) -> str:
    """The client's name for a file, for showing: no folders, nothing that does not print."""
    last = filename.replace("\\", "/").rsplit("/", 1)[-1]
    return "".join(character for character in last if character.isprintable())[:200]


def boundary_of(request: Request) -> bytes:
    """What separates the parts; RequestError unless the body is multipart/form-data."""
    header = Message()
    header["content-type"] = request.headers.get("content-type", "")
    boundary = header.get_param("boundary")
    if header.get_content_type() != "multipart/form-data" or not isinstance(boundary, str) or not boundary:
        raise RequestError("send the files as multipart/form-data")
    try:
        return boundary.encode("ascii")
    except UnicodeEncodeError:
        raise RequestError("the multipart boundary must be ASCII") from None


@contextmanager
def given_up_on_error(receiver: Receiver) -> Iterator[None]:
    """Leave nothing behind if this block fails."""
    try:
        yield
    except BaseException as error:  # also when the client goes away
        receiver.give_up(error)
        raise


async def receive(request: Request, services: Services) -> Receiver:
    """Stream the body into the store; whoever gets the receiver submits a job for its files or gives them up."""
    try:
        receiver = Receiver(services, boundary_of(request))
    except FormParserError as error:
        raise RequestError(f"the multipart body is malformed: {error}") from None
    with given_up_on_error(receiver):
        block = bytearray()
        async for chunk in request.stream():
            block += chunk
            if len(block) >= BLOCK:
                await anyio.to_thread.run_sync(receiver.feed, bytes(block))
                block.clear()
        await anyio.to_thread.run_sync(receiver.feed, bytes(block))
        receiver.finish()
    return receiver
