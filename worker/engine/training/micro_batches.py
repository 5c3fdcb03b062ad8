"""A batch in parts whose gradients add up to its own, so that a step's memory does not grow with the batch."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from worker.engine.contexts import Contexts


@dataclass(frozen=True)
class MicroBatch:
    """Noisy records, some more as a condition shows them, and how much of the batch they are."""

    x_start: Tensor  # (B, N)
    x_t: Tensor  # (B, N)
    t: Tensor  # (B,)
    probability: Tensor  # (B,) of having drawn t
    contexts: Contexts | None
    shown: int  # of the contexts, the first so many are asked for their codes, all for their number
    share: float = 1.0  # of the batch's records
    context_share: float = 1.0  # of its contexts

    def parts(self, rows: int | None) -> "Iterator[MicroBatch]":
        """At most so many records at a time; None: all at once."""
        n = len(self.x_start)
        number = 1 if rows is None else -(-n // rows)
        # The last one has contexts if any has: processes share gradients there, of all weights or they would hang.
        for part in reversed(range(number)):
            mine = slice(part, None, number)  # every part has its share of contexts, and of those that are shown
            x_start = self.x_start[mine]
            contexts, context_share = self._contexts(mine)
            yield MicroBatch(
                x_start,
                self.x_t[mine],
                self.t[mine],
                self.probability[mine],
                contexts,
                len(range(part, self.shown, number)),
                len(x_start) / n,
                context_share,
            )

    def _contexts(self, mine: slice) -> tuple[Contexts | None, float]:
        if self.contexts is None:
            return None, 1.0
        some = self.contexts.share(mine)
        return (some, len(some.x_start) / len(self.contexts.x_start)) if len(some.x_start) else (None, 0.0)
