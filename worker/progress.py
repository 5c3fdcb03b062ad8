"""How far a job is, for its row: steps with value and maximum, and the time that remains."""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from worker.contract import steps_of

# Of a job's time passes between two events that keep its progress: a week's training has some hundreds of them.
SHARE_BETWEEN_EVENTS = 1 / 40


class JobProgress:
    """Advanced by the working thread, read by the heartbeat thread. `on_step` hears of each step that begins."""

    def __init__(
        self, kind: str, payload: Mapping[str, Any] | None = None, on_step: Callable[[str], None] = lambda _: None
    ) -> None:
        self._on_step = on_step
        names = steps_of(kind, payload or {})
        self._steps: list[dict[str, Any]] = [{"name": name, "value": 0, "maximum": None} for name in names]
        self._current = 0
        self._started = time.monotonic()
        self._first_value = 0.0
        self._details: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._last_news: dict[str, Any] | None = None
        self._kept = ("", 0.0)  # step and time of the last event

    def step(self, name: str, maximum: float, value: float = 0, unit: str = "") -> None:
        """A step begins; those before it are done. `value` above 0 is what an earlier attempt had done."""
        with self._lock:
            self._current = next(i for i, step in enumerate(self._steps) if step["name"] == name)
            for before in self._steps[: self._current]:
                before["maximum"] = before["maximum"] or 1
                before["value"] = before["maximum"]
            self._steps[self._current] |= {"value": value, "maximum": maximum, "unit": unit}
            self._started, self._first_value = time.monotonic(), value
        self._on_step(name)

    @property
    def current(self) -> str:
        """The step that has begun last."""
        return str(self._steps[self._current]["name"])

    def end_with(self, value: float) -> None:
        """The current step is done with less than was thought."""
        with self._lock:
            self._steps[self._current] |= {"value": value, "maximum": value}

    def advance(self, value: float, **details: Any) -> None:
        """The current step has come to `value`."""
        with self._lock:
            self._steps[self._current]["value"] = value
            self._details |= details

    def news(self) -> dict[str, Any] | None:
        """What to write into the row, or None if nothing has changed since it was asked for last."""
        told = self.now()
        with self._lock:
            news = {name: value for name, value in told.items() if name != "remaining_seconds"}
            if news == self._last_news:
                return None
            self._last_news = news
        return told

    def now(self) -> dict[str, Any]:
        """The same, whether it has changed or not."""
        with self._lock:
            step = self._steps[self._current]
            steps = [dict(each) for each in self._steps]
            return {"step": step["name"], "steps": steps, **self._details, "remaining_seconds": self._remaining(step)}

    def is_an_event(self, ran_seconds: float) -> bool:
        """Whether what has just been told is kept beyond the next news: a step has begun, or, by how long the job has
        run, it is time again."""
        step, moment = self._steps[self._current]["name"], time.monotonic()
        was, when = self._kept
        if was == step and moment - when < SHARE_BETWEEN_EVENTS * ran_seconds:
            return False
        self._kept = step, moment
        return True

    def _remaining(self, step: dict[str, Any]) -> float | None:
        """Of the current step, at the pace it had so far."""
        done: float = step["value"] - self._first_value
        if done <= 0 or step["maximum"] is None:
            return None
        pace = (time.monotonic() - self._started) / done
        left: float = max(step["maximum"] - step["value"], 0)
        return round(left * pace, 1)
