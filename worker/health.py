"""`python -m worker.health`: whether a worker of this machine or container lives; exit code 1 if none does.

The Celery parent touches a file from its event loop, so one that hangs is not alive; while it waits for the broker, the
loop that waits does (worker/broker_patches.py). Nothing is asked of the broker or the database: a worker that waits for
them is in order, and starting it again would help nobody.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

PREFIX = "ehr-d3pm-worker-"
LONGEST_SILENCE_SECONDS = 30.0


def note(folder: Path | None = None) -> None:
    """This worker lives."""
    _file(folder).touch()


def forget(folder: Path | None = None) -> None:
    """This worker ends."""
    _file(folder).unlink(missing_ok=True)


def living(folder: Path | None = None, seconds: float = LONGEST_SILENCE_SECONDS) -> list[int]:
    """Process ids of the workers that were heard of lately."""
    found = []
    for path in (folder or _place()).glob(f"{PREFIX}*"):
        try:
            if time.time() - path.stat().st_mtime < seconds:
                found.append(int(path.name.removeprefix(PREFIX)))
        except (OSError, ValueError):
            continue  # it has just ended, or is not ours
    return sorted(found)


def _place() -> Path:
    return Path(tempfile.gettempdir())


def _file(folder: Path | None) -> Path:
    return (folder or _place()) / f"{PREFIX}{os.getpid()}"


if __name__ == "__main__":
    sys.exit(0 if living() else 1)
