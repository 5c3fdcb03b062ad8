"""A real HTTP server on loopback, and things in its store that no worker had to make."""

import hashlib
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import httpx
import numpy as np
import uvicorn

from app.main import create_app
from app.services import Services
from ehr.audits import ModelAudit, ReferenceFacts
from ehr.histories import Histories
from ehr.records import Records
from ehr.reports import Verdict
from ehr.vocabulary import Vocabulary
from ehr_d3pm import Client
from model_store import layout
from model_store.bundles import Bundle, model_manifest, save_bundle
from model_store.cohorts import cohort_manifest, pack_part, save_cohort_manifest
from model_store.datasets import StoredDataset, positions, save_dataset, split_of, summarise
from model_store.ids import DATASET, JOB, MODEL, new_id
from model_store.repositories import (
    CohortRepository,
    DatasetRepository,
    DeliveryRepository,
    JobRepository,
    KeyRepository,
    ModelRepository,
    ReportRepository,
    WebhookRepository,
)
from model_store.repositories.access import SCOPES
from model_store.tables import Cohort, Dataset, Job, Model, ReportRow
from runtime.settings import Settings
from tests.reporting import small_description
from tests.service.servers import PATIENCE_SECONDS
from worker.contract import ROUTES

STOP_SECONDS = 60.0  # it takes less than one, and on a busy machine some
GOOD = Verdict(level="good", reason="Nothing was found.", advice="")
DATA_HASH = "abad1dea" * 8  # which only custodians may see
CODES = ("ICD10CM:E10", "ICD10CM:E11", "ICD10CM:E84", "ICD9DX:25000", "ICD9DX:25001", "ICD9DX:4019")


class Front:
    """`with Front(settings) as front:` serves; `front.as_owner()` is a client with a key of its own."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.app = create_app(settings)
        self.callers: list[Caller] = []
        self.services: Services = self.app.state.services
        config = uvicorn.Config(self.app, port=0, log_config=None, access_log=False, timeout_graceful_shutdown=1)
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, daemon=True)

    def __enter__(self) -> Self:
        self.thread.start()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self.server.started and time.monotonic() < deadline:
            time.sleep(0.01)
        self.port = self.server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    def __exit__(self, *_: object) -> None:
        self.server.should_exit = True
        self.thread.join(STOP_SECONDS)
        for caller in self.callers:
            caller.http.close()
        assert not self.thread.is_alive(), "the front does not stop; did a test set the clock for all threads?"

    def get(self, path: str, **options: Any) -> httpx.Response:
        """As someone without a key."""
        return httpx.get(f"{self.url}{path}", timeout=PATIENCE_SECONDS, **options)

    def damage(self, key: str, data: bytes) -> None:
        """Other bytes in a blob's place, which no part of the service would put there."""
        self.services.store.delete(key)
        self.services.store.write(key, data)

    def key(self, owner: str, *scopes: str) -> str:
        with self.services.database.session_scope() as session:
            return KeyRepository(session).create(owner, "test", scopes or SCOPES)[1]

    def as_owner(self, owner: str, *scopes: str) -> "Caller":
        self.callers.append(Caller(self, owner, self.key(owner, *scopes)))
        return self.callers[-1]


@dataclass
class Caller:
    """An owner with a key; requests, and things that are theirs."""

    front: Front
    owner: str
    key: str
    http: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        headers = {"Authorization": f"Bearer {self.key}"}
        self.http = httpx.Client(base_url=self.front.url, headers=headers, timeout=PATIENCE_SECONDS)

    def client(self) -> Client:
        return Client(self.front.url, self.key)

    def job(self, kind: str = "train", **payload: Any) -> str:
        """A queued job that nobody takes: its message goes to no broker."""
        with self.front.services.database.session_scope() as session:
            return JobRepository(session).submit(self.owner, kind, *ROUTES[kind], payload, 3).id

    def webhook(self) -> dict[str, str]:
        """The ids of a webhook and of a message to it, as paths call them."""
        with self.front.services.database.session_scope() as session:
            webhook = WebhookRepository(session).create(self.owner, None, "", "https://example.org", ["train"])
            message = DeliveryRepository(session).add(webhook.id, self.owner, "test", {})
            return {"webhook_id": webhook.id, "delivery_id": message.id}

    def dataset(
        self,
        n: int = 400,
        codes: tuple[str, ...] = CODES,
        rows: list[list[int]] | None = None,
        names: dict[str, str] | None = None,
    ) -> str:
        """Every record has the first code, one in forty the third; or `rows`, each a list of code positions."""
        rows = rows or [[0, *([1] if i % 2 else []), *([2] if i % 40 == 0 else [])] for i in range(n)]
        n = len(rows)
        records = csr(rows, len(codes))
        vocabulary = Vocabulary(codes, names or {})
        position = positions(np.arange(n), n)
        dataset_id = new_id(DATASET)
        folder = layout.dataset_folder(dataset_id, 1)
        summary = summarise(records, vocabulary, split_of(position, 0.1, 0.1), n)
        stored = StoredDataset(records, position, vocabulary, 0.1, 0.1, "0" * 64)
        manifest_hash = save_dataset(self.front.services.store, folder, stored, summary)
        row = Dataset(
            id=dataset_id,
            owner=self.owner,
            name="data",
            job_id=new_id(JOB),
            prefix=folder,
            manifest_hash=manifest_hash,
            data_hash="0" * 64,
            vocabulary_hash=vocabulary.hash,
            n_codes=len(codes),
            summary=summary,
        )
        with self.front.services.database.session_scope() as session:
            DatasetRepository(session).add(row)
        return dataset_id

    def model(
        self,
        codes: tuple[str, ...] = CODES,
        generator: str = "d3pm",
        dataset_id: str | None = None,
        costs: dict[str, Any] | None = None,
        names: dict[str, str] | None = None,
        drawn: list[list[int]] | Histories | None = None,
        audit: ModelAudit | None = None,
        more: Mapping[str, Any] | None = None,
        **facts: Any,
    ) -> str:
        """`drawn`: the records of its reference cohort, each a list of code positions (or patients over time), and
        `facts` about it; None: it has none. `more`: what else its row knows."""
        model_id = new_id(MODEL)
        folder = layout.model_folder(model_id, 1)
        details: dict[str, Any] = {"seed": 0}
        if drawn is not None:
            known = {"records": len(drawn), "training_records": len(drawn), "seed": 1, "verdict": GOOD} | facts
            details["reference"] = ReferenceFacts.model_validate(known).model_dump(mode="json")
        manifest = model_manifest({"settings": {"timesteps": 50}}, Vocabulary(codes, names or {}), **details)
        kept = csr(drawn, len(codes)) if isinstance(drawn, list) else drawn
        manifest_hash = save_bundle(self.front.services.store, folder, Bundle(b"weights", manifest), kept)
        if audit is not None:
            details["audit"] = audit.model_dump(mode="json")
        row = Model(
            id=model_id,
            owner=self.owner,
            name="model",
            job_id=new_id(JOB),
            dataset_id=dataset_id or new_id(DATASET),
            generator=generator,
            prefix=folder,
            manifest_hash=manifest_hash,
            n_codes=len(codes),
            details=details | {"costs": costs} | dict(more or {}),
        )
        with self.front.services.database.session_scope() as session:
            ModelRepository(session).add(row)
        return model_id

    def made(self, request: dict[str, Any], parts: list[list[list[int]]] | None = None) -> str:
        """The cohort of a request to `POST /generate`, as a worker would have made it."""
        job_id = str(self.http.post("/generate", json=request).raise_for_status().json()["id"])
        cohort = self.cohort(parts or [[[0, 1]]], job_id=job_id, model_id=request["model_id"])
        with self.front.services.database.session_scope() as session:
            job = session.get_one(Job, job_id)
            job.state, job.result = "succeeded", {"evaluate_job_id": None}
        return cohort

    def cohort(
        self,
        parts: list[list[list[int]]],
        codes: tuple[str, ...] = CODES,
        names: dict[str, str] | None = None,
        job_id: str | None = None,
        model_id: str | None = None,
        **payload: Any,
    ) -> str:
        """`parts` are lists of records, each a list of code positions."""
        job_id = job_id or self.job("generate", n=sum(map(len, parts)), **payload)
        model_id = model_id or new_id(MODEL)
        vocabulary = Vocabulary(codes, names or {})
        folder = layout.cohort_folder(job_id)
        told, first = [], 0
        store = self.front.services.store
        for number, rows in enumerate(parts):
            records = csr(rows, len(codes))
            data = pack_part(first, records, vocabulary)
            blob = f"{folder}/parts/p{number}.parquet"
            store.write(blob, data)
            sha256 = hashlib.sha256(data).hexdigest()
            told.append(
                {"number": number, "blob": blob, "sha256": sha256, "first_record": first, "n_records": len(rows)}
            )
            first += len(rows)
        manifest = cohort_manifest({"id": "m", "data_hash": DATA_HASH}, {"seed": 0}, vocabulary, told)
        manifest_hash = save_cohort_manifest(store, f"{folder}/a1/manifest.json", manifest)
        row = Cohort(
            job_id=job_id,
            owner=self.owner,
            model_id=model_id,
            dataset_id=new_id(DATASET),
            n_records=first,
            prefix=f"{folder}/a1",
            manifest_hash=manifest_hash,
            manifest={"n_parts": len(parts), "model": {"id": "m", "data_hash": DATA_HASH}},
        )
        with self.front.services.database.session_scope() as session:
            CohortRepository(session).add(row)
            description = small_description().model_copy(update={"cohort_id": job_id, "model_id": model_id})
            ReportRepository(session).add_description(self.owner, job_id, description)
        return job_id

    def report(self, body: dict[str, Any], cohort: str | None = None, **columns: Any) -> str:
        job_id = new_id(JOB)
        values = {"cohort_job_id": cohort or new_id(JOB), "owner": self.owner, "version": 2} | columns
        row = ReportRow(job_id=job_id, body=body, **values)
        with self.front.services.database.session_scope() as session:
            ReportRepository(session).add(row)
        return job_id


def csr(rows: list[list[int]], n_codes: int) -> Records:
    indptr = np.cumsum([0, *(len(row) for row in rows)], dtype=np.int64)
    return Records(indptr, np.array([code for row in rows for code in row], dtype=np.int32), n_codes)
