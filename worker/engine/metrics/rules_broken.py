"""How many records have codes that exclude each other, or one without the other that it comes with."""

from ehr.records import Records
from ehr.rules import Rules
from worker.engine.metrics.attainment import measure as share_of
from worker.engine.metrics.measurement import Measurement, Metric, Words
from worker.engine.metrics.verdicts import at_most


def measure(rules: Rules, records: Records) -> Measurement:
    """The share of records that break at least one rule, with its interval."""
    return share_of(int(rules.broken_by(records).sum()), len(records))


RULES_BROKEN = Metric(
    name="rules_broken",
    family="plausible",
    title="Records that break a rule",
    direction="lower",
    bounds=(0.0, 1.0),
    meaning="The share of records with codes that exclude each other, such as a delivery of a man, or that never occur "
    "together in training records although chance would have it so. A few real records break one of the latter.",
    rule=at_most(good=0.0, caution=0.01),
    words=Words(
        good="No record has codes that exclude each other.",
        caution="A few records have codes that exclude each other.",
        fail="Many records have codes that exclude each other.",
        advice="Train the model again: models of this version keep the rules of their data.",
    ),
)
