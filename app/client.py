"""A thin Python client of the service.

    from app.client import Client

    client = Client("http://127.0.0.1:8000", api_key=None)
    dataset = client.wait(client.upload(["records.csv.gz"], name="cardiology"))["result"]["dataset_id"]
    model = client.wait(client.train(dataset))["result"]["model_id"]
    cohort = client.wait(client.generate(model, 10_000, all_of=["ICD10CM:E84"]))
    client.download(cohort["id"], "cohort.csv")

Answers are the service's JSON as dictionaries.
"""

import contextlib
import json
import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

DEFAULT_URL = "http://127.0.0.1:8000"
TERMINAL_STATES = ("succeeded", "failed", "cancelled")
TRIES = 4
LOOK_SECONDS, LONGEST_LOOK_SECONDS = 0.3, 2.0

Json = dict[str, Any]


class ClientError(Exception):
    """The root of what the client raises."""


class UnreachableError(ClientError):
    """Nobody answers at the service's address."""


class ApiError(ClientError):
    """The service refused or failed; `problem` is its RFC 9457 body."""

    def __init__(self, status: int, problem: Json) -> None:
        super().__init__(str(problem.get("detail") or problem.get("title") or f"HTTP status {status}"))
        self.status, self.problem = status, problem

    @property
    def type(self) -> str:
        """The stable word at the end of the problem's type, such as `unknown-code`."""
        return str(self.problem.get("type", "")).rsplit(":", 1)[-1]


class JobFailedError(ClientError):
    """A job that was waited for failed or was cancelled."""

    def __init__(self, job: Json) -> None:
        error = job.get("error") or {}
        super().__init__(str(error.get("detail") or f"the job was {job['state']}"))
        self.job = job


class Client:
    """Connects to `url`, else to $EHR_D3PM_URL; sends `api_key`, else $EHR_D3PM_KEY."""

    def __init__(self, url: str | None = None, api_key: str | None = None, timeout: float = 60) -> None:
        self.url = (url or os.environ.get("EHR_D3PM_URL") or DEFAULT_URL).rstrip("/")
        key = api_key or os.environ.get("EHR_D3PM_KEY")
        headers = {} if key is None or key == "" else {"Authorization": f"Bearer {key}"}
        self._http = httpx.Client(base_url=self.url, headers=headers, timeout=timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    # --- submissions: each returns a job ---

    def upload(self, files: Sequence[str | Path], *, key: str | None = None, **form: Any) -> Json:
        """Upload tables; a folder stands for the files in it. `form`: name, format, unit, rollup, min_records, ..."""
        with ExitStack() as opened:
            paths = [path for f in files for path in _files_at(Path(f))]
            parts = [("file", (path.name, opened.enter_context(path.open("rb")))) for path in paths]
            data = {name: str(value) for name, value in form.items() if value is not None}
            headers = {"Idempotency-Key": key or uuid.uuid4().hex}
            # a large file is fsynced and checked after its last byte: the answer may take a while
            sent = self._send("POST", "/datasets", files=parts, data=data, headers=headers, timeout=600)
        return _body(sent)

    def train(self, dataset_id: str, *, key: str | None = None, **settings: Any) -> Json:
        """Train a model. `settings`: name, generator, preset, settings, seed, holdout_share."""
        return self._submit("/train", {"dataset_id": dataset_id} | _given(settings), key)

    def generate(self, model_id: str, n: int, *, key: str | None = None, **asked: Any) -> Json:
        """Generate a cohort. `asked`: all_of, any_of, none_of (codes or wildcards), targets (shares such as
        `{"ICD10CM:E11*": 0.3}`), method, strength, steps, seed, evaluate."""
        return self._submit("/generate", _generate_body(model_id, n, asked), key)

    def estimate(self, model_id: str, n: int, **asked: Any) -> Json:
        """What `generate` with the same arguments would take: support in training, method, seconds, memory, and the
        nearest condition that can be had if this one cannot."""
        return _body(self._send("POST", "/generate/estimate", json=_generate_body(model_id, n, asked), tries=TRIES))

    def evaluate(self, cohort_id: str, *, key: str | None = None, **settings: Any) -> Json:
        """Measure a finished cohort. `settings`: dataset_id (other real records), labels (codes to predict), seed."""
        return self._submit("/reports", {"cohort_id": cohort_id} | _given(settings), key)

    def release(self, cohort_id: str, reason: str) -> Json:
        """Let a cohort go that its privacy evaluation withholds; needs the scope `admin`."""
        return _body(self._send("POST", f"/cohorts/{cohort_id}/release", json={"reason": reason}))

    def cancel(self, job_id: str) -> Json:
        return self._submit(f"/jobs/{job_id}/cancel", None, None)

    def retry(self, job_id: str) -> Json:
        """Try a failed job again, or a cancelled cohort; finished parts are kept."""
        return self._submit(f"/jobs/{job_id}/retry", None, None)

    # --- looking ---

    def job(self, job_id: str) -> Json:
        return self._get(f"/jobs/{job_id}")

    def jobs(self, kind: str | None = None, state: str | None = None, limit: int | None = None) -> Iterator[Json]:
        """Jobs, newest first; all of them unless there is a limit."""
        return self._pages("/jobs", {"kind": kind, "state": state}, limit)

    def datasets(self, limit: int | None = None) -> Iterator[Json]:
        return self._pages("/datasets", {}, limit)

    def dataset(self, dataset_id: str) -> Json:
        return self._get(f"/datasets/{dataset_id}")

    def codes(self, dataset_id: str, search: str | None = None, limit: int | None = None) -> Iterator[Json]:
        """The vocabulary of a dataset with the counts that may be shown."""
        return self._pages(f"/datasets/{dataset_id}/codes", {"search": search}, limit)

    def labs(self, dataset_id: str) -> list[Json]:
        """The labs of a dataset that became deciles, with their cut points."""
        found: list[Json] = self._send("GET", f"/datasets/{dataset_id}/labs", tries=TRIES).json()
        return found

    def models(self, limit: int | None = None) -> Iterator[Json]:
        return self._pages("/models", {}, limit)

    def model(self, model_id: str) -> Json:
        return self._get(f"/models/{model_id}")

    def cohort(self, job_id: str) -> Json:
        return self._get(f"/cohorts/{job_id}")

    def parts(self, job_id: str) -> Json:
        """The finished parts of a cohort, also while its job runs, or when it failed or was cancelled."""
        return self._get(f"/cohorts/{job_id}/parts")

    def report(self, job_id: str) -> Json:
        """The newest report on a cohort."""
        return self._get(f"/reports/{job_id}")

    def report_page(self, job_id: str) -> str:
        """The newest report on a cohort as an HTML page."""
        return self._send("GET", f"/reports/{job_id}.html").text

    def ready(self) -> Json:
        return self._get("/readyz", tries=1)

    def delete(self, kind: str, thing_id: str) -> None:
        """Delete one of `datasets`, `models` or `cohorts`."""
        self._send("DELETE", f"/{kind}/{thing_id}")

    # --- following and downloading ---

    def wait(self, job: Json | str, on_change: Callable[[Json], None] | None = None) -> Json:
        """The job when it has succeeded; JobFailedError if it did not. `on_change` is told how far it is."""
        job_id = job if isinstance(job, str) else job["id"]
        look, last = LOOK_SECONDS, None
        while True:
            current = self.job(job_id)
            if on_change is not None and current != last:
                on_change(current)
            if current["state"] == "succeeded":
                return current
            if current["state"] in TERMINAL_STATES:
                raise JobFailedError(current)
            look = LOOK_SECONDS if current != last else min(1.3 * look, LONGEST_LOOK_SECONDS)
            last = current
            time.sleep(look)

    def events(self, job_id: str, after: int = 0) -> Iterator[Json]:
        """What happens to a job, as it happens: {id, event, data}. Connects again where it was when cut off."""
        while True:
            ended = False
            with contextlib.suppress(httpx.TransportError), self._stream(f"/jobs/{job_id}/events", after) as answer:
                if answer.status_code == 204:
                    return
                for event in _parsed_events(answer.iter_lines()):
                    after = event["id"]
                    yield event
                    ended = event["data"].get("state") in TERMINAL_STATES
            if ended:
                return
            time.sleep(1)

    def download(self, job_id: str, path: str | Path, format: str = "long.csv") -> int:
        """Save a cohort's records; returns the bytes. The file appears when it is whole.

        Waits for the evaluation that decides whether the cohort may leave; ApiError `withheld` if it may not.
        """
        while True:
            try:
                return self._save(f"/cohorts/{job_id}/records", Path(path), {"format": format})
            except ApiError as error:
                if error.type != "not-evaluated":
                    raise
            time.sleep(LONGEST_LOOK_SECONDS)

    def download_part(self, job_id: str, number: int, path: str | Path) -> int:
        """Save one finished part of a cohort as Parquet; returns the bytes."""
        return self._save(f"/cohorts/{job_id}/parts/{number}", Path(path), {})

    def download_bundle(self, model_id: str, path: str | Path) -> int:
        """Save a model as a zip file; returns the bytes."""
        return self._save(f"/models/{model_id}/bundle", Path(path), {})

    # --- HTTP ---

    def _submit(self, path: str, body: Json | None, key: str | None) -> Json:
        # with a key a lost answer can be asked for again, and nothing is done twice
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}
        return _body(self._send("POST", path, json=body, headers=headers, tries=TRIES))

    def _get(self, path: str, tries: int = TRIES) -> Json:
        return _body(self._send("GET", path, tries=tries))

    def _pages(self, path: str, query: Json, limit: int | None) -> Iterator[Json]:
        cursor, left = None, limit
        while True:
            size = 100 if left is None else min(left, 100)
            page = _body(self._send("GET", path, params=_given(query | {"cursor": cursor, "limit": size}), tries=TRIES))
            yield from page["items"]
            cursor = page["next_cursor"]
            left = None if left is None else left - len(page["items"])
            if cursor is None or left == 0:
                return

    def _send(self, method: str, path: str, tries: int = 1, **options: Any) -> httpx.Response:
        for left in reversed(range(tries)):
            try:
                answer = self._http.request(method, path, **options)
            except httpx.TransportError as error:
                if left == 0:
                    raise UnreachableError(f"the service does not answer at {self.url}: {error}") from None
            else:
                if answer.status_code < 400:
                    return answer
                if answer.status_code != 503 or left == 0:
                    raise _api_error(answer)
            time.sleep(0.5 * (tries - left))
        raise AssertionError("unreachable: the last try returns or raises")

    def _stream(self, path: str, after: int) -> contextlib.AbstractContextManager[httpx.Response]:
        return self._http.stream("GET", path, params={"after": after}, timeout=httpx.Timeout(10, read=60))

    def _save(self, path: str, target: Path, params: Json) -> int:
        partial = target.with_name(f"{target.name}.part")
        try:
            with self._http.stream("GET", path, params=params) as answer, partial.open("wb") as file:
                if answer.status_code >= 400:
                    answer.read()
                    raise _api_error(answer)
                for block in answer.iter_bytes(1 << 20):
                    file.write(block)
            partial.replace(target)
        except httpx.TransportError as error:
            raise UnreachableError(f"the download from {self.url} broke off: {error}") from None
        finally:
            partial.unlink(missing_ok=True)
        return target.stat().st_size


def _generate_body(model_id: str, n: int, asked: Json) -> Json:
    """The body of `POST /generate`. Targets may be given as a dictionary of code and share."""
    settings = dict(asked)
    conditions = {name: list(settings.pop(name, None) or ()) for name in ("all_of", "any_of", "none_of")}
    targets = settings.pop("targets", None) or []
    if isinstance(targets, dict):
        targets = [{"codes": [code], "share": share} for code, share in targets.items()]
    return {"model_id": model_id, "n": n, "conditions": conditions, "targets": list(targets)} | _given(settings)


def _files_at(path: Path) -> list[Path]:
    """The file, or all files of a folder and of those in it."""
    if not path.is_dir():
        return [path]
    return sorted(found for found in path.rglob("*") if found.is_file() and not found.name.startswith("."))


def _given(values: Json) -> Json:
    return {name: value for name, value in values.items() if value is not None}


def _body(answer: httpx.Response) -> Json:
    body: Json = answer.json()
    return body


def _api_error(answer: httpx.Response) -> ApiError:
    try:
        problem = answer.json()
    except ValueError:
        problem = {"title": f"HTTP status {answer.status_code}"}
    return ApiError(answer.status_code, problem if isinstance(problem, dict) else {})


def _parsed_events(lines: Iterator[str]) -> Iterator[Json]:
    event: Json = {}
    for line in lines:
        name, _, value = line.partition(":")
        if line == "" and "data" in event:
            yield event
            event = {}
        elif name == "id":
            event["id"] = int(value)
        elif name == "event":
            event["event"] = value.strip()
        elif name == "data":
            event["data"] = json.loads(value)
