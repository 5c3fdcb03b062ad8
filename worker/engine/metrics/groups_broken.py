"""How many records could not exist: no or several members of a group of which a record has one."""

from ehr.groups import Groups
from ehr.records import Records
from worker.engine.metrics.attainment import measure as share_of
from worker.engine.metrics.measurement import Measurement, Metric, Words
from worker.engine.metrics.verdicts import at_most


def measure(groups: Groups, records: Records) -> Measurement:
    """The share of records that break at least one group, with its interval."""
    return share_of(int(groups.broken_by(records).any(axis=1).sum()), len(records))


GROUPS_BROKEN = Metric(
    name="groups_broken",
    family="plausible",
    title="Impossible records",
    direction="lower",
    bounds=(0.0, 1.0),
    meaning="The share of records that have none or several of codes of which every patient has one, such as sex or "
    "age band.",
    rule=at_most(good=0.0, caution=0.01),
    words=Words(
        good="No record is impossible: each has one sex, one age band, and one of every such group of codes.",
        caution="A few records are impossible: they have none or several of codes of which every patient has one.",
        fail="Many records are impossible: they have none or several of codes of which every patient has one.",
        advice="Train the model again: models of this version keep such groups.",
    ),
)
