"""Whether a cohort will be compared with real records, and what its report could not say: told before it is made.

For custodians alone: whether there are enough patients depends on how many there are.
"""

from dataclasses import dataclass, field

from app.access import Identity
from app.feasibility import Feasibility
from app.schemas.requests import GenerateRequest
from app.services import Services
from ehr.errors import NotFoundError
from ehr.history_conditions import AskedHistoryCondition
from ehr.report_needs import SMALLEST_ATTACKED, can_be_judged
from model_store.repositories import DatasetRepository, ReportRepository
from model_store.tables import Model

NOT_EVALUATED = (
    "evaluate is false: no report will judge this cohort, and how close it comes to single patients is not looked at"
)
DATA_GONE = (
    "the data that the model learned from was deleted: the cohort is not compared with real records, and what is known"
    " of its model decides whether it may leave"
)
SMALL_COHORT = (
    f"a cohort of fewer than {SMALLEST_ATTACKED} records cannot be attacked, so its report will judge it as unsafe:"
    " ask for more records"
)
FEW_PATIENTS = (
    f"the data has fewer than {SMALLEST_ATTACKED} records in one of its splits: no attack can be run, so the report"
    " will withhold the cohort"
)
FEW_WITH_CONDITION = (
    f"by the records that the model drew once, fewer than {SMALLEST_ATTACKED} patients of one of the data's splits"
    " satisfy the condition: whether the cohort gives those away, its report will not know"
)


@dataclass(frozen=True)
class Comparison:
    against_real: bool
    notices: list[str] = field(default_factory=list)  # go with the job, for everyone who may see it
    # told to whoever asks and kept nowhere: others read the job and the manifest of its cohort
    about_patients: list[str] = field(default_factory=list)
    report_seconds: float | None = None  # what the last report on a cohort of the model took


def comparison_of(
    services: Services, identity: Identity, model: Model, body: GenerateRequest, feasibility: Feasibility
) -> Comparison:
    """What whoever asks for a cohort should know about its report."""
    if not identity.is_custodian:
        return Comparison(False)
    if not body.evaluate:
        return Comparison(True, [NOT_EVALUATED])
    try:
        with services.database.read_scope() as session:
            data = DatasetRepository(session).get(identity.owner, model.dataset_id)
            seconds = ReportRepository(session).last_seconds(identity.owner, model.id)
    except NotFoundError:
        return Comparison(False, [DATA_GONE])
    if not data.summary.get("may_be_attacked", True):
        return Comparison(True, report_seconds=seconds)  # not attacked whatever there is
    splits, share = data.summary.get("splits"), feasibility.support.share
    notices = [SMALL_COHORT] if body.n < SMALLEST_ATTACKED else []
    about_patients = []
    if not can_be_judged(splits):
        about_patients.append(FEW_PATIENTS)
    elif _asks(body) and share is not None and not can_be_judged(splits, share):
        about_patients.append(FEW_WITH_CONDITION)
    return Comparison(True, notices, about_patients, seconds)


def _asks(body: GenerateRequest) -> bool:
    """Whether the report attacks some patients alone."""
    return not body.conditions.is_empty or body.history != AskedHistoryCondition()
