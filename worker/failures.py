"""What a failed job tells its owner: a stable word and a sentence without data."""

import errno

from ehr import errors
from ehr.errors import EhrError


def reason_and_detail(error: Exception) -> tuple[str, str]:
    """Deliberate errors speak for themselves; of all others only the type is told, their words may quote the data."""
    translated = as_service_error(error)
    if translated is not None:
        return translated.reason, str(translated)
    return "internal", f"an unexpected {type(error).__name__}; the worker's log has its place"


def as_service_error(error: Exception) -> EhrError | None:
    """The service's error for the system's; None if it is not a deliberate one."""
    if isinstance(error, EhrError):
        return error
    if isinstance(error, MemoryError):
        return errors.DataError("there is not enough memory for this job")
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return errors.StoreFullError("there is no room left for what the job writes")
    return None
