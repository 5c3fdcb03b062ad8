"""Where things lie in the blob store. Keys are made from server-made ids only.

Every attempt of a job writes into a folder of its own, so an attempt that was replaced can never touch its
successor's files; the row of the finished thing says which folder counts.
"""

from typing import Any

from model_store.ids import checked_id

FOLDERS = ("uploads", "datasets", "models", "cohorts", "checkpoints")  # everything lies under one of these


def upload_blob(upload_id: str) -> str:
    """An uploaded file, waiting for ingestion."""
    return f"uploads/{checked_id(upload_id)}/file"


def upload_folder(upload_id: str) -> str:
    return f"uploads/{checked_id(upload_id)}"


def fetched_blob(fetch_id: str, name: str) -> str:
    """A file that was fetched instead of uploaded; `name` is ours."""
    return f"{upload_folder(fetch_id)}/{name}"


def dataset_folder(dataset_id: str, attempt: int | None = None) -> str:
    return _attempt(f"datasets/{checked_id(dataset_id)}", attempt)


def model_folder(model_id: str, attempt: int | None = None) -> str:
    return _attempt(f"models/{checked_id(model_id)}", attempt)


def cohort_folder(job_id: str) -> str:
    return f"cohorts/{checked_id(job_id)}"


def form_folder(job_id: str, name: str) -> str:
    """A file that was made of a cohort for those who read it by ranges."""
    return f"{cohort_folder(job_id)}/forms/{name}"


def checkpoint_folder(job_id: str) -> str:
    return f"checkpoints/{checked_id(job_id)}"


def _attempt(folder: str, attempt: int | None) -> str:
    return folder if attempt is None else f"{folder}/a{attempt:d}"


def folders_of_job(kind: str, payload: dict[str, Any]) -> list[str]:
    """The folders a job may have written to, or whose contents are useless once it has ended."""
    if kind == "ingest":
        return [dataset_folder(payload["dataset_id"])]
    if kind == "train":
        return [model_folder(payload["model_id"])]
    return []


# kind of job -> the ends after which it can be tried again and goes on with what it has. A cancelled training is gone:
# its checkpoint holds what was learned from patients. Parts of a cohort are synthetic.
RETRIED_AFTER: dict[str, tuple[str, ...]] = {"generate": ("failed", "cancelled")}


def can_be_retried(kind: str, state: str) -> bool:
    return state in RETRIED_AFTER.get(kind, ("failed",))


def retry_folders_of_job(kind: str, job_id: str, payload: dict[str, Any]) -> list[str]:
    """The folders from which a retry would go on."""
    if kind == "ingest":
        fetched = [payload["fetch_id"]] if payload.get("fetch_id") is not None else []
        return [upload_folder(each) for each in (*(file["upload_id"] for file in payload["files"]), *fetched)]
    return {"train": [checkpoint_folder(job_id)], "generate": [cohort_folder(job_id)]}.get(kind, [])


def needs_what_it_had(kind: str, payload: dict[str, Any]) -> bool:
    """Whether a retry is impossible without those folders: other jobs begin anew, and what was fetched is again."""
    return kind == "ingest" and payload.get("fetch_id") is None
