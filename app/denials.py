"""What was refused, for the audit trail: noted at once, and counted from then on, so that a flood of refusals is some
rows a minute and not some rows a request."""

import logging
import threading
from collections import Counter
from dataclasses import dataclass

from sqlalchemy.exc import SQLAlchemyError

from model_store.database import Database
from model_store.repositories import AuditRepository
from model_store.repositories.audit import NOBODY

log = logging.getLogger(__name__)
ACTION = "denied"
STATUSES = (401, 403, 404, 429)
COUNT_SECONDS = 60.0


@dataclass(frozen=True)
class Denial:
    """Whom what was refused. There are few of them: a caller cannot make up new ones."""

    target: str  # method and route, with names in place of ids
    status: int
    owner: str = NOBODY
    key_prefix: str | None = None


class Denials:
    """Of this process."""

    def __init__(self, database: Database, count_seconds: float = COUNT_SECONDS) -> None:
        self._database, self._count_seconds = database, count_seconds
        self._counted: Counter[Denial] = Counter()  # what was noted less than a minute ago, and how often since
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def note(self, denial: Denial) -> None:
        """The first of its kind becomes a row now; how many more there were, with the next flush."""
        with self._lock:
            is_first = denial not in self._counted
            self._counted[denial] += 0 if is_first else 1
            if self._timer is None:
                self._timer = threading.Timer(self._count_seconds, self.flush)
                self._timer.daemon = True
                self._timer.start()
        if is_first:
            self._write({denial: 1})

    def flush(self) -> None:
        """Write down what was counted, and begin anew."""
        with self._lock:
            counted, self._counted = self._counted, Counter()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        self._write({denial: times for denial, times in counted.items() if times > 0})

    def _write(self, denials: dict[Denial, int]) -> None:
        """In a transaction of its own: the one of the request was rolled back, if there was any."""
        if not denials:
            return
        try:
            with self._database.session_scope() as session:
                audit = AuditRepository(session)
                for denial, times in denials.items():
                    detail = {"status": denial.status, "times": times}
                    audit.record(denial.owner, ACTION, denial.target, denial.key_prefix, detail)
        except SQLAlchemyError as error:
            log.warning("refusals were not recorded", extra={"type": type(error).__name__})
