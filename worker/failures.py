"""What a failed job tells its owner: a stable word and a sentence without data."""

from ehr.errors import DataError, EhrError, StoreFullError
from model_store.blobs.file import FULL


def reason_and_detail(error: Exception) -> tuple[str, str]:
    """Deliberate errors speak for themselves; of all others only the type is told, their words may quote the data."""
    if isinstance(error, EhrError):
        return error.reason, str(error)
    if isinstance(error, MemoryError):
        return DataError.reason, "there is not enough memory for this job"
    if isinstance(error, OSError) and error.errno in FULL:
        return StoreFullError.reason, "there is no room left for what the job writes"
    return "internal", f"an unexpected {type(error).__name__}; the worker's log has its place"
