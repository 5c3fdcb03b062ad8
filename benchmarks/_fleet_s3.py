"""The stage `s3` of benchmarks.fleet: concurrent writers, lost writes, and MB/s beside plain files."""

import hashlib
import os
import secrets
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks._harness import Figures, show
from ehr.errors import StoreError
from model_store.blobs import BlobStore, open_store
from tests.service.s3_server import BUCKET, CREDENTIALS, S3Server

WRITERS = 32
MIB = 1 << 20


@dataclass(frozen=True)
class Round:
    """`writes` blobs by each of `writers` threads."""

    name: str
    writers: int
    writes: int
    size: int


ROUNDS = (Round("small", WRITERS, 32, 16 << 10), Round("large", 8, 2, 24 * MIB))
QUICK = (Round("small", WRITERS, 4, 16 << 10), Round("large", 2, 1, 9 * MIB))


@dataclass(frozen=True)
class Outcome:
    done: int  # writes that ended without an error
    failed: int
    lost: int  # writes that ended without an error and are not there as they were written
    mb_per_second: float


def s3_writers(figures: Figures, quick: bool) -> None:
    rows, lost = [], 0
    with server() as url, tempfile.TemporaryDirectory() as folder:
        for store_name, store_url in (("s3", url), ("file", f"file://{folder}")):
            store = open_store(store_url)
            for each in QUICK if quick else ROUNDS:
                outcome = write(store, each)
                rows.append(
                    [
                        f"{store_name}, {each.name}",
                        str(each.writers),
                        f"{each.size / MIB:.3g}",
                        *(str(count) for count in (outcome.done, outcome.failed, outcome.lost)),
                        f"{outcome.mb_per_second:.1f}",
                    ]
                )
                figures.add(f"{store_name}.{each.name}_mb_per_second", outcome.mb_per_second, "MB/s")
                lost += outcome.lost if store_name == "s3" else 0
                if store_name == "s3":
                    figures.add(f"s3.{each.name}_failed_writes", outcome.failed, "writes")
    show("writers", ["store, blobs", "writers", "MiB each", "written", "failed", "lost", "MB/s"], rows)
    figures.add("s3.lost_writes", lost, "writes")


def write(store: BlobStore, each: Round) -> Outcome:
    """Write at the same time, then look for everything by its hash."""
    folder = f"bench/{secrets.token_hex(6)}"
    content = secrets.token_bytes(each.size)

    def writer(number: int) -> dict[str, str]:
        hashes = {}
        for i in range(each.writes):
            key, data = f"{folder}/w{number}/{i}.bin", f"{number} {i} ".encode() + content
            try:
                store.write(key, data)
            except StoreError:
                continue
            hashes[key] = hashlib.sha256(data).hexdigest()
        return hashes

    start = time.perf_counter()
    with ThreadPoolExecutor(each.writers) as pool:
        written = {key: sha256 for hashes in pool.map(writer, range(each.writers)) for key, sha256 in hashes.items()}
    seconds = time.perf_counter() - start
    with ThreadPoolExecutor(8) as pool:
        lost = sum(pool.map(lambda item: not is_there(store, *item), written.items()))
    lost += len(set(written) - set(store.list(folder)))
    store.delete_folder(folder)
    return Outcome(
        len(written), each.writers * each.writes - len(written), lost, len(written) * each.size / 1e6 / seconds
    )


def is_there(store: BlobStore, key: str, sha256: str) -> bool:
    try:
        store.read(key, sha256)
    except StoreError:
        return False
    return True


@contextmanager
def server() -> Iterator[str]:
    """The store URL of a server on loopback."""
    running = S3Server()
    os.environ.update({**CREDENTIALS, "AWS_ENDPOINT_URL": running.url})
    try:
        yield f"s3://{BUCKET}/bench"
    finally:
        running.kill()
