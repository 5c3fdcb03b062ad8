"""Dates, lengths of time, sizes and states as people read them: filters of the application's templates."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

STATES = {
    "queued": "waiting",
    "running": "running",
    "cancelling": "being cancelled",
    "succeeded": "done",
    "failed": "failed",
    "cancelled": "cancelled",
}
KINDS = {
    "ingest": "Reading data",
    "train": "Training",
    "generate": "Cohort",
    "evaluate": "Report",
    "export": "Writing a cohort",
}
STEPS = {
    "fetch": "fetching",
    "load": "loading",
    "read": "reading",
    "encode": "encoding",
    "store": "storing",
    "train": "training",
    "calibrate": "correcting what it draws",
    "audit": "attacking the model",
    "draw": "drawing records for estimates",
    "generate": "drawing records",
    "measure": "measuring",
    "write": "writing",
}


def moment(value: datetime | None) -> Markup:
    """A date and a time, which machines can read too."""
    if value is None:
        return Markup("\u2013")
    at = value.astimezone(UTC)
    return Markup('<time datetime="{}">{}</time>').format(at.isoformat(timespec="seconds"), f"{at:%d %b %Y, %H:%M} UTC")


def clock(value: datetime) -> Markup:
    """A time to the second, without the year."""
    at = value.astimezone(UTC)
    return Markup('<time datetime="{}">{}</time>').format(at.isoformat(timespec="seconds"), f"{at:%d %b %H:%M:%S}")


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "not known"
    if seconds < 1:
        return "under a second"
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def size(n_bytes: int) -> str:
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if n_bytes >= unit:
            return f"{n_bytes / unit:.3g} {name}"
    return f"{n_bytes / 1e3:.3g} kB"


def short(identifier: str) -> str:
    """Enough of an id to tell it from others."""
    kind, _, rest = identifier.partition("_")
    return f"{kind}_{rest[:6]}"


def elapsed(job: Any) -> float | None:
    """Seconds that a job has run."""
    if job.started_at is None:
        return None
    return float(((job.finished_at or datetime.now(UTC)) - job.started_at).total_seconds())


def sentence(text: str) -> str:
    """With a capital and a full stop."""
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '?', '!')) else '.'}"


def notable(texts: Sequence[str], without: str | None = None) -> list[str]:
    """How a code was read comes last; and without those that have a word in them which is told elsewhere."""
    kept = [text for text in texts if without is None or without not in text]
    return sorted(kept, key=lambda text: " was read as " in text)


def flat(values: Any, before: str = "") -> list[tuple[str, str]]:
    """Nested settings as lines of a table."""
    if not isinstance(values, dict):
        return [
            (before, "none" if values is None else str(values).lower() if isinstance(values, bool) else str(values))
        ]
    found = (line for name, value in values.items() for line in flat(value, f"{before} {name}".strip()))
    return [(name.replace("_", " "), value) for name, value in found]


FILTERS = {
    "moment": moment,
    "clock": clock,
    "duration": duration,
    "short": short,
    "size": size,
    "elapsed": elapsed,
    "flat": flat,
    "sentence": sentence,
    "notable": notable,
    "state": lambda state: STATES.get(state, state),
    "kind": lambda kind: KINDS.get(kind, kind),
    "step": lambda step: STEPS.get(step, step),
}
