"""Effective sample size: how many independent records a weighted cohort is worth."""

from worker.engine.metrics.measurement import Measurement, Metric, Words
from worker.engine.metrics.verdicts import at_least

NO_WEIGHTS = "the records were drawn without weights: each counts once"


def measure(effective: float | None, n: int) -> Measurement:
    """The share of the cohort that counts; absent where no weights were used."""
    if effective is None or n == 0:
        return Measurement(absent=NO_WEIGHTS)
    return Measurement(effective / n, effective / n, effective / n, n_used=n)


ESS = Metric(
    name="ess",
    family="conditional",
    title="Records it is worth, by weight",
    direction="higher",
    bounds=(0.0, 1.0),
    meaning="The share of the synthetic records that count as independent ones when records were drawn by weight.",
    rule=at_least(good=0.5, caution=0.1),
    words=Words(
        good="Most records are different patients.",
        caution="Many records are repetitions of few patients.",
        fail="The cohort consists of few patients repeated many times.",
        advice="Ask for fewer records or for a more common condition.",
    ),
)
