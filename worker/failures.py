"""What a failed job tells its owner: a stable word and a sentence without data."""

from ehr.errors import EhrError, OutOfMemoryError, StoreFullError
from model_store.blobs.file import FULL


def reason_and_detail(error: Exception) -> tuple[str, str]:
    """Deliberate errors speak for themselves; of all others only the type is told, their words may quote the data."""
    if isinstance(error, EhrError):
        return error.reason, str(error)
    if is_out_of_memory(error):
        advice = "train with a smaller training.batch_size, or run workers with more"
        return OutOfMemoryError.reason, f"there is not enough memory for this job: {advice}"
    if isinstance(error, OSError) and error.errno in FULL:
        return StoreFullError.reason, "there is no room left for what the job writes"
    return "internal", f"an unexpected {type(error).__name__}; the worker's log has its place"


def is_out_of_memory(error: Exception) -> bool:
    """Python, CUDA and torch's allocator of the CPU each say it in their own way; the last only in words."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)
