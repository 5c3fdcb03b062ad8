"""Blob backends by URL scheme. A new one is a file here and a line in BACKENDS."""

from pathlib import Path
from urllib.parse import urlsplit

from ehr.errors import RequestError
from model_store.blobs.file import FileStore
from model_store.blobs.protocol import BlobStore, sha256_of
from model_store.blobs.s3 import S3Store

__all__ = ["BACKENDS", "BlobStore", "FileStore", "S3Store", "open_store", "sha256_of"]

BACKENDS: tuple[type[BlobStore], ...] = (FileStore, S3Store)


def open_store(url: str, scratch: Path | None = None) -> BlobStore:
    """The store behind a URL such as file:///data/store or s3://bucket/prefix.

    `scratch`: a folder on a disk, for blobs that must become files; otherwise where temporary files lie.
    """
    scheme = urlsplit(url).scheme
    for backend in BACKENDS:
        if backend.scheme == scheme:
            return backend(url, scratch)
    raise RequestError(f"no blob backend for '{scheme}://'; known: {', '.join(b.scheme + '://' for b in BACKENDS)}")
