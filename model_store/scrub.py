"""Comparing the store with the database: blobs that no row leads to, and rows whose blobs are missing or changed.

A blob that is being written, or whose row commits a moment later, is no leftover. Three things see to that. The store
is listed before the rows are read, so a row that comes meanwhile is seen. Rows are read in the order in which a thing
passes from one to the next: a note to discard an upload, the job that takes it over, the row of what the job made. And
what was written less than a day ago is left alone.
"""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from sqlalchemy import select

from ehr.errors import CorruptError, NotFoundError
from model_store import layout
from model_store.blobs import BlobStore
from model_store.blobs.protocol import Entry, sha256_of
from model_store.database import Database
from model_store.files import MANIFEST
from model_store.tables import Cohort, Dataset, Discard, Job, Model

YOUNGEST_SECONDS = 86_400.0
UNFINISHED = ("queued", "running", "cancelling")


@dataclass(frozen=True)
class Lost:
    """A blob that a row leads to and that is not there, or is not what was written."""

    thing: str  # id of the dataset, model or cohort
    key: str
    fault: str  # "missing" or "changed"


@dataclass(frozen=True)
class Scrubbed:
    leftovers: list[Entry]
    lost: list[Lost]
    blobs: int  # that were looked at


def scrub(
    database: Database,
    store: BlobStore,
    older_than_seconds: float = YOUNGEST_SECONDS,
    *,
    verify: bool = False,
    remove: bool = False,
    clock: Callable[[], float] = time.time,
) -> Scrubbed:
    """Look, and with `remove` take the leftovers away; `verify` reads every blob and compares its hash."""
    begun = clock()
    found = {entry.key: entry for folder in layout.FOLDERS for entry in store.entries(folder)}
    needed, expected = _rows(database)
    leftovers = [
        entry
        for entry in found.values()
        if entry.written_at < begun - older_than_seconds and not _is_needed(entry.key, needed)
    ]
    lost = [fault for thing, its in expected.items() for fault in _faults(store, found, thing, *its, verify)]
    if remove:
        for entry in leftovers:
            store.delete(entry.key)
    return Scrubbed(sorted(leftovers, key=lambda entry: entry.key), lost, len(found))


def _rows(database: Database) -> tuple[set[str], dict[str, tuple[str, str]]]:
    """Folders that are needed, and by thing its folder and the hash of the manifest in it."""
    needed: set[str] = set()
    with database.read_scope() as session:
        needed.update(session.scalars(select(Discard.prefix)))  # a sweeper has them in hand
        for job in session.scalars(select(Job).where(Job.state.in_(UNFINISHED))):
            with suppress(NotFoundError, KeyError):  # what names nothing has no folder, and must not end the search
                needed.update(layout.folders_of_job(job.kind, job.payload))
                needed.update(layout.retry_folders_of_job(job.kind, job.id, job.payload))
        rows = (*session.scalars(select(Dataset)), *session.scalars(select(Model)))
        made = [(row.id, row.prefix, row.manifest_hash) for row in rows]
        cohorts = [(row.job_id, row.prefix, row.manifest_hash) for row in session.scalars(select(Cohort))]
    needed.update(folder for _, folder, _ in made)
    needed.update(layout.cohort_folder(job_id) for job_id, _, _ in cohorts)
    return needed, {thing: (folder, sha256) for thing, folder, sha256 in (*made, *cohorts)}


def _is_needed(key: str, needed: set[str]) -> bool:
    """Whether a blob is, or lies under, a name that is needed."""
    names = key.split("/")
    return any("/".join(names[:i]) in needed for i in range(1, len(names) + 1))


def _faults(
    store: BlobStore, found: dict[str, Entry], thing: str, folder: str, sha256: str, verify: bool
) -> list[Lost]:
    """Of the manifest and of what it names: files beside it, or parts of a cohort."""
    key = f"{folder}/{MANIFEST}"
    if key not in found and not store.exists(key):  # a listing may lag behind
        return [Lost(thing, key, "missing")]
    try:
        manifest = json.loads(store.read(key, sha256))
    except CorruptError:
        return [Lost(thing, key, "changed")]
    hashes = {f"{folder}/{name}": own for name, own in (manifest.get("files") or {}).items()}
    hashes |= {part["blob"]: part["sha256"] for part in manifest.get("parts") or ()}
    lost = []
    for blob, own in hashes.items():
        if blob not in found and not store.exists(blob):
            lost.append(Lost(thing, blob, "missing"))
        elif verify and sha256_of(store, blob) != own:
            lost.append(Lost(thing, blob, "changed"))
    return lost
