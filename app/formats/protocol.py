"""What a format is: a name, a media type, and a function from a stored cohort to blocks of bytes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from model_store.blobs import BlobStore

# (store, verified manifest) -> the file, block by block: memory holds one part of the cohort, however many there are
Writer = Callable[[BlobStore, dict[str, Any]], Iterator[bytes]]


@dataclass(frozen=True)
class Format:
    name: str
    media_type: str
    extension: str
    write: Writer
