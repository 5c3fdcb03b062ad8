"""Everything a client can ask for: which request each is, and nothing about how its answer is waited for.

A method returns what its transport returns: the answer, or something to await it by.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Unpack

from ehr_d3pm.errors import Json
from ehr_d3pm.oversight import OversightCalls
from ehr_d3pm.requests import (
    Codes,
    CohortOptions,
    Filters,
    TrainOptions,
    UploadOptions,
    as_list,
    cohort_body,
    files_at,
    given,
)
from ehr_d3pm.transport import TRIES, Transport
from ehr_d3pm.webhook_calls import WebhookCalls


class Calls(WebhookCalls, OversightCalls):
    """`transport` is a Transport, or an AsyncTransport: then whatever a method returns is awaited, or gone through by
    `async for`."""

    def __init__(self, transport: Transport) -> None:
        self._http = transport

    @property
    def url(self) -> str:
        return self._http.url

    @property
    def headers(self) -> dict[str, str]:
        """What a reader of an `address` must send."""
        return dict(self._http.headers)

    # --- submissions: each returns a job ---

    def upload(
        self, files: str | Path | Sequence[str | Path], *, key: str | None = None, **form: Unpack[UploadOptions]
    ) -> Json:
        """Upload tables; a folder stands for the files in it."""
        paths = [path for file in as_list(files) for path in files_at(Path(file))]
        data = {name: _field(value) for name, value in given(form).items()}
        # a large file is fsynced and checked after its last byte: the answer may take a while
        return self._http.submit("/datasets", None, key, paths=paths, data=data, timeout=600, tries=1)

    def fetch(self, source: Json, *, key: str | None = None, **form: Unpack[UploadOptions]) -> Json:
        """Make a dataset of records that lie elsewhere, such as `{"kind": "objects", "urls": ["s3://lake/2024/"]}`;
        `places` lists where that may be."""
        return self._http.submit("/datasets/by-reference", {"source": source} | given(form), key)

    def export(self, cohort_id: str, sink: Json, *, key: str | None = None) -> Json:
        """Write a cohort elsewhere, such as `{"kind": "parquet", "url": "s3://lake/synthetic/"}`."""
        return self._http.submit(f"/cohorts/{cohort_id}/exports", {"sink": sink}, key)

    def import_model(self, path: str | Path, *, name: str | None = None, manifest_hash: str | None = None) -> Json:
        """Bring in a bundle of another instance; the model. Give the `manifest_hash` that it shows, to be sure."""
        data = given({"name": name, "manifest_hash": manifest_hash})
        return self._http.ask("POST", "/models/import", None, paths=[Path(path)], data=data, timeout=600)

    def train(self, dataset_id: str, *, key: str | None = None, **options: Unpack[TrainOptions]) -> Json:
        """Train a model."""
        return self._http.submit("/train", {"dataset_id": dataset_id} | given(options), key)

    def generate(self, model_id: str, n: int, *, key: str | None = None, **options: Unpack[CohortOptions]) -> Json:
        """Generate a cohort of `n` records."""
        return self._http.submit("/generate", cohort_body(model_id, n, options), key)

    def estimate(self, model_id: str, n: int, **options: Unpack[CohortOptions]) -> Json:
        """What `generate` with the same arguments would take: support among the records that the model drew once,
        whether the cohort would be withheld, method, seconds, memory, and the nearest request that can be met."""
        return self._http.ask("POST", "/generate/estimate", cohort_body(model_id, n, options), tries=TRIES)

    def probe(self, model_id: str, n: int = 20, **options: Unpack[CohortOptions]) -> Json:
        """Some of the records that the model drew once, of those that satisfy conditions and targets; counted like a
        cohort of so many."""
        return self._http.ask("POST", "/probe", cohort_body(model_id, n, options), tries=TRIES)

    def evaluate(
        self,
        cohort_id: str,
        *,
        key: str | None = None,
        dataset_id: str | None = None,
        labels: Codes | None = None,
        seed: int | None = None,
    ) -> Json:
        """Measure a finished cohort, also against other real records or with other codes to predict."""
        wanted = None if labels is None else as_list(labels)
        body = {"cohort_id": cohort_id, "dataset_id": dataset_id, "labels": wanted, "seed": seed}
        return self._http.submit("/reports", given(body), key)

    def release(self, cohort_id: str, reason: str) -> Json:
        """Let a cohort go that is withheld; needs the scope `data`."""
        return self._http.ask("POST", f"/cohorts/{cohort_id}/release", {"reason": reason})

    def cancel(self, job_id: str) -> Json:
        return self._http.submit(f"/jobs/{job_id}/cancel")

    def retry(self, job_id: str) -> Json:
        """Try a failed job again, or a cancelled cohort; finished parts are kept."""
        return self._http.submit(f"/jobs/{job_id}/retry")

    # --- looking ---

    def job(self, job_id: str) -> Json:
        return self._http.get(f"/jobs/{job_id}")

    def log(self, job_id: str) -> list[Json]:
        """What happened to a job and when: the states it came into and the steps it began."""
        return self._http.items(f"/jobs/{job_id}/log")

    def jobs(
        self, kind: str | None = None, state: str | None = None, limit: int | None = None, **wanted: Unpack[Filters]
    ) -> Iterator[Json]:
        """Jobs, newest first; all of them unless there is a limit."""
        return self._http.pages("/jobs", {"kind": kind, "state": state, **wanted}, limit)

    def datasets(self, limit: int | None = None, **wanted: Unpack[Filters]) -> Iterator[Json]:
        return self._http.pages("/datasets", dict(wanted), limit)

    def dataset(self, dataset_id: str) -> Json:
        return self._http.get(f"/datasets/{dataset_id}")

    def codes(self, thing_id: str, search: str | None = None, limit: int | None = None) -> Iterator[Json]:
        """The codes of a model, or of a dataset with the counts that may be shown, and what they mean: all of them, or
        the best first of those that have all words of `search`, in any order and with small typos."""
        kind = "models" if thing_id.startswith("mdl_") else "datasets"
        return self._http.pages(f"/{kind}/{thing_id}/codes", {"search": search}, limit)

    def labs(self, dataset_id: str) -> list[Json]:
        """The labs of a dataset that became deciles, with their cut points."""
        return self._http.items(f"/datasets/{dataset_id}/labs")

    def models(self, limit: int | None = None, **wanted: Unpack[Filters]) -> Iterator[Json]:
        return self._http.pages("/models", dict(wanted), limit)

    def model(self, model_id: str) -> Json:
        return self._http.get(f"/models/{model_id}")

    def change_model(
        self, model_id: str, *, name: str | None = None, tags: Sequence[str] | None = None, notes: str | None = None
    ) -> Json:
        """What it is called and what is said about it; what is left out stays as it is."""
        body = given({"name": name, "tags": None if tags is None else as_list(tags), "notes": notes})
        return self._http.ask("PATCH", f"/models/{model_id}", body)

    def cohorts(self, limit: int | None = None, **wanted: Unpack[Filters]) -> Iterator[Json]:
        return self._http.pages("/cohorts", dict(wanted), limit)

    def cohort(self, job_id: str) -> Json:
        return self._http.get(f"/cohorts/{job_id}")

    def parts(self, job_id: str) -> Json:
        """The finished parts of a cohort, also while its job runs, or when it failed or was cancelled."""
        return self._http.get(f"/cohorts/{job_id}/parts")

    def report(self, job_id: str, reader: str | None = None) -> Json:
        """The newest report on a cohort. `reader`: `custodian` (beside real records, needs the scope `data`) or
        `shareable` (what may be passed on); the former if you may see it."""
        return self._http.get(f"/reports/{job_id}", reader=reader)

    def report_page(self, job_id: str, reader: str | None = None) -> str:
        """The same as an HTML page."""
        return self._http.text(f"/reports/{job_id}.html", reader=reader)

    def places(self) -> Json:
        """Where records may be fetched from, and where cohorts may be written to."""
        return self._http.get("/places")

    # --- the service ---

    def openapi(self) -> Json:
        """The OpenAPI document, which says what the service accepts."""
        return self._http.get("/openapi.json")

    def ready(self) -> Json:
        return self._http.get("/readyz", tries=1)

    def delete(self, kind: str, thing_id: str) -> None:
        """Delete one of `datasets`, `models`, `cohorts` or `webhooks`."""
        return self._http.remove(f"/{kind}/{thing_id}")

    def dependants(self, dataset_id: str) -> Json:
        """What was made from a dataset, by id, and the jobs that work on it."""
        return self._http.get(f"/datasets/{dataset_id}/dependants")

    def erase(self, dataset_id: str) -> Json:
        """Delete a dataset and everything made from it; the answer says what was removed and what remains."""
        return self._http.ask("DELETE", f"/datasets/{dataset_id}", params={"cascade": "true"})

    def erasure(self, dataset_id: str) -> Json:
        """The report of an erasure, as `erase` gave it, and whether all files are gone by now."""
        return self._http.get(f"/datasets/{dataset_id}/erasure")

    def address(self, job_id: str, format: str = "parquet") -> str:
        """Where a cohort's records can be read without downloading them first:
        `pandas.read_parquet(client.address(cohort), storage_options=client.headers)`."""
        return f"{self.url}/cohorts/{job_id}/records.{format}"

    def download_part(self, job_id: str, number: int, path: str | Path) -> int:
        """Save one finished part of a cohort as Parquet; returns the bytes."""
        return self._http.save(f"/cohorts/{job_id}/parts/{number}", Path(path), {})

    def download_bundle(self, model_id: str, path: str | Path) -> int:
        """Save a model as a zip file; returns the bytes."""
        return self._http.save(f"/models/{model_id}/bundle", Path(path), {})


def _field(value: Any) -> str:
    """A field of a form: a list travels as JSON."""
    return json.dumps(value) if isinstance(value, list) else str(value)
