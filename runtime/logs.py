"""Structured logs: one JSON object a line. Codes and record ids are never given to a logger."""

import json
import logging
import sys
import time
from contextvars import ContextVar
from typing import Any

# of the HTTP request at hand; the API sets it, workers have none
request_id: ContextVar[str | None] = ContextVar("request_id", default=None)

# of the job at hand, in a worker
job_id: ContextVar[str | None] = ContextVar("job_id", default=None)

# `data` is what Celery adds to its lines: the arguments of tasks
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message", "data"}


class JsonFormatter(logging.Formatter):
    """Time, level, logger, message, the request's id and whatever was given as `extra`.

    Of an exception only its type and place are written: its words may quote the data.
    """

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, current in (("request_id", request_id.get()), ("job_id", job_id.get())):
            if current is not None:
                fields[name] = current
        fields |= {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if isinstance(record.exc_info, tuple) and record.exc_info[1] is not None:
            fields |= {"exception": type(record.exc_info[1]).__name__, "at": place_of(record.exc_info[1])}
        return json.dumps(fields, default=str)


def place_of(error: BaseException) -> str:
    """file:line of the innermost frame."""
    trace = error.__traceback__
    if trace is None:
        return "unknown"
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"


def configure_logging(level: str) -> None:
    """Send every log line of this process to standard error as JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("httpx").setLevel(logging.WARNING)
