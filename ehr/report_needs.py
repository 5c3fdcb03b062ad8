"""How many records a report needs before it can judge privacy."""

from collections.abc import Mapping

SMALLEST_ATTACKED = 50  # of the cohort and of each of the real splits; below, an attack's interval says nothing


def can_be_judged(splits: Mapping[str, int] | None, share: float = 1.0) -> bool:
    """Whether each split has enough records of which `share` satisfies a condition. None: some have so few that their
    counts are not shown."""
    return splits is not None and share * min(splits.values(), default=0) >= SMALLEST_ATTACKED
