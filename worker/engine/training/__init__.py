"""Finding weights: one loop (`loop`) for every generator that is trained by steps, and what d3pm does in a step."""

from worker.engine.training.devices import precision, resolve_device, seeded
from worker.engine.training.loop import NO_HOOKS, Hooks, TrainingProgress, TrainingRun, require_codes

__all__ = [
    "NO_HOOKS",
    "Hooks",
    "TrainingProgress",
    "TrainingRun",
    "precision",
    "require_codes",
    "resolve_device",
    "seeded",
]
