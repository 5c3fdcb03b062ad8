"""How many of the generated records are what was asked for?"""

from math import sqrt

from worker.engine.metrics.intervals import Z
from worker.engine.metrics.measurement import Measurement, Metric, Words
from worker.engine.metrics.verdicts import at_least


def wilson(met: int, n: int) -> tuple[float, float]:
    """Wilson's score interval of a proportion."""
    p, spread = met / n, 1 + Z * Z / n
    centre = (p + Z * Z / (2 * n)) / spread
    half = Z * sqrt(p * (1 - p) / n + Z * Z / (4 * n * n)) / spread
    return max(0.0, centre - half), min(1.0, centre + half)


def measure(met: int, n: int) -> Measurement:
    """The share `met / n` with its interval."""
    if n == 0:
        return Measurement(absent="the cohort is empty")
    low, high = wilson(met, n)
    return Measurement(met / n, min(low, met / n), max(high, met / n), n_used=n)


ATTAINMENT = Metric(
    name="attainment",
    family="conditional",
    title="Records that meet the condition",
    direction="higher",
    bounds=(0.0, 1.0),
    meaning="The share of synthetic records that satisfy the condition they were asked for.",
    rule=at_least(good=0.95, caution=0.5),
    words=Words(
        good="Nearly all synthetic patients meet the condition that was asked for.",
        caution="Not all synthetic patients meet the condition that was asked for.",
        fail="Most synthetic patients do not meet the condition that was asked for.",
        advice="Keep only the records that meet the condition, or generate with another method or more strength.",
    ),
)
