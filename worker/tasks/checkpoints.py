"""Checkpoints of a training in the store: each in a folder of its own, the job's row points at the newest."""

import hashlib
import json
import logging
import time

from ehr.errors import CorruptError, StoreError
from model_store import layout
from model_store.files import read_file, read_manifest, write_folder
from model_store.repositories import LeaseRepository
from worker.engine.checkpoints import Checkpoint
from worker.execution import JobRun
from worker.patience import patiently
from worker.stopping import stopping
from worker.tasks.loading import tensor_blocks, unpack_tensors

log = logging.getLogger(__name__)
FORMAT, VERSION = "ehr-d3pm checkpoint", 1
TENSORS = "tensors.safetensors"


class Checkpoints:
    """Keeps at most one checkpoint every `checkpoint_seconds`."""

    def __init__(self, run: JobRun, fingerprint: str) -> None:
        """`fingerprint` identifies what is trained: a checkpoint of anything else is not used."""
        self.run, self.fingerprint = run, fingerprint
        self._newest: str | None = None
        self._pointer = run.claim.checkpoint
        self._saved_at = time.monotonic()
        self._furthest = int((run.claim.checkpoint or {}).get("step", 0))  # of all attempts before

    def newest(self) -> Checkpoint | None:
        """Where an earlier attempt was, or this one is; None: training starts from the beginning."""
        pointer = self._pointer
        if pointer is None:
            return None
        store, folder = self.run.runtime.store, pointer["folder"]
        try:
            manifest = read_manifest(store, folder, pointer["sha256"], FORMAT, VERSION)
            tensors = unpack_tensors(read_file(store, folder, manifest["files"], TENSORS))
        except (StoreError, CorruptError) as error:
            log.warning("checkpoint is unusable", extra={"reason": str(error)})
            return None
        if manifest["fingerprint"] != self.fingerprint:
            return None
        self._newest = folder
        values = json.loads(manifest["values"])  # as text: a loss may be NaN, which canonical JSON refuses
        return Checkpoint(tensors, values)

    @property
    def is_due(self) -> bool:
        """Whether it is time for one, or the last moment, and this attempt still has the job."""
        settings, stop = self.run.runtime.settings, self.run.stop
        is_last = stopping.is_set() or stop.turn_over.is_set()
        is_early = time.monotonic() - self._saved_at < settings.checkpoint_seconds and not is_last
        return not (stop.is_lost or stop.cancelled.is_set() or is_early)

    def save(self, checkpoint: Checkpoint) -> None:
        """Keep a checkpoint if it is due."""
        settings = self.run.runtime.settings
        if not self.is_due:
            return
        claim, store = self.run.claim, self.run.runtime.store
        step = int(checkpoint.values["step"])
        folder = f"{layout.checkpoint_folder(claim.job_id)}/a{claim.attempt:d}-{step:d}"
        self.run.own_folders.append(folder)
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "fingerprint": self.fingerprint,
            "values": json.dumps(checkpoint.values),
        }
        sha256 = write_folder(store, folder, {TENSORS: tensor_blocks(checkpoint.tensors)}, manifest)
        pointer = {"folder": folder, "sha256": sha256, "step": step}
        scope = self.run.runtime.database.session_scope
        more = settings.max_attempts if step > self._furthest else None
        patiently(scope, lambda session: LeaseRepository(session).save_checkpoint(claim, pointer, more))
        self.run.own_folders.remove(folder)  # the row points at it now: whoever has the job next may go on from it
        if self._newest is not None and self._newest != folder:
            store.delete_folder(self._newest)
        self._newest, self._pointer, self._saved_at = folder, pointer, time.monotonic()
        self._furthest = max(self._furthest, step)


def fingerprint_of(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
