"""A request for a cohort held against its model and the model's training records: can it be met, and how well?"""

from dataclasses import dataclass, field

from app.schemas.answers import RelaxationAnswer, SupportAnswer, TargetSupportAnswer
from app.schemas.requests import GenerateRequest
from app.services import Services
from ehr.conditions import AskedTarget, Condition
from ehr.errors import ConditionError, RequestError, UnknownCodeError
from ehr.generators import generator_spec
from ehr.relaxation import Relaxation, Term, nearest, terms_of
from ehr.support import UNKNOWN, Requirement, Support, TrainingIndex
from ehr.vocabulary import Vocabulary
from model_store.tables import Model

FEW_RECORDS = 200  # what comes with a condition is then learned from hardly anyone
REJECTION = (
    "this model can only draw records and throw away those that do not satisfy the condition: the rarer it is, the"
    " longer it takes, and if fewer than about one in 200 of the model's records satisfy it, the job fails"
)


@dataclass(frozen=True)
class Feasibility:
    """`problem`: the request is impossible. `warnings`: it is possible, and there is something to know about it."""

    method: str | None  # how conditions would be met; None without conditions
    support: Support
    problem: RequestError | None = None
    targets: list[TargetSupportAnswer] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    relaxation: RelaxationAnswer | None = None

    def require(self) -> None:
        """Raise the problem, with the nearest request that has none."""
        if self.problem is not None:
            if self.relaxation is not None:
                self.problem.more["relaxation"] = self.relaxation.model_dump()
            raise self.problem


def feasibility_of(services: Services, model: Model, body: GenerateRequest) -> Feasibility:
    """Hold conditions and targets against the vocabulary, then against the training records if they are still there.

    RequestError if the model or the service does not offer what is asked, whatever the conditions are.
    """
    facts = services.facts_of(model)
    _check_limits(services.settings.max_records, facts.timesteps, body)
    method = _method(model, body)
    vocabulary = facts.vocabulary
    index = services.training_index_of(model) if body.asks_for_something else None
    terms = terms_of(vocabulary, body.conditions)
    try:
        condition = vocabulary.resolve(body.conditions)
        facts.groups.check(condition, vocabulary.resolve_targets(condition, body.targets), vocabulary.codes)
    except (UnknownCodeError, ConditionError) as error:
        return Feasibility(method, UNKNOWN, error, relaxation=_relaxed(vocabulary, index, terms, body.targets))
    support = _support(index, terms)
    targets = [_target(vocabulary, index, terms, target) for target in body.targets]
    relaxation = None if support.is_enough else _relaxed(vocabulary, index, terms, body.targets)
    warnings = _warnings(body, support, targets)
    if method == "rejection":
        warnings.append(REJECTION)
    return Feasibility(method, support, None, targets, warnings, relaxation)


def _check_limits(max_records: int, timesteps: int | None, body: GenerateRequest) -> None:
    if body.n > max_records:
        raise RequestError(f"n: a cohort has at most {max_records:,} records")
    if body.steps is not None and timesteps is not None and body.steps > timesteps:
        calls = "one network call" if timesteps == 1 else f"{timesteps} network calls"
        raise RequestError(f"steps: this model makes at most {calls} for a record")


def _method(model: Model, body: GenerateRequest) -> str | None:
    """What `body.method` means for this model; None without conditions."""
    methods = generator_spec(model.generator).methods
    method = methods[0] if body.method == "auto" else body.method
    if method not in methods:
        known = ", ".join(f"'{name}'" for name in ("auto", *methods))
        raise RequestError(f"method: a '{model.generator}' model does not offer '{method}'; known: {known}")
    return method if body.asks_for_something else None


def _support(index: TrainingIndex | None, terms: list[Term], *more: Requirement) -> Support:
    return UNKNOWN if index is None else index.support([*(term.requirement for term in terms), *more])


def _target(
    vocabulary: Vocabulary, index: TrainingIndex | None, terms: list[Term], target: AskedTarget
) -> TargetSupportAnswer:
    codes = tuple(vocabulary.matching_any(target.codes))
    meeting, others = (_support(index, terms, Requirement(codes, wanted)) for wanted in (True, False))
    return TargetSupportAnswer.of(target, meeting=SupportAnswer.of(meeting), others=SupportAnswer.of(others))


def _relaxed(
    vocabulary: Vocabulary, index: TrainingIndex | None, terms: list[Term], targets: list[AskedTarget]
) -> RelaxationAnswer:
    found: Relaxation = nearest(vocabulary, index, terms)
    condition = vocabulary.resolve(found.conditions)
    kept: list[AskedTarget] = []
    for target in targets:
        if _fits(vocabulary, condition, [*kept, target]):
            kept.append(target)
    dropped = [{"field": "targets", "codes": target.codes} for target in targets if target not in kept]
    return RelaxationAnswer(
        conditions=found.conditions.model_dump(),
        targets=[target.model_dump() for target in kept],
        dropped=[*found.dropped, *dropped],
        support=SupportAnswer.of(found.support),
    )


def _fits(vocabulary: Vocabulary, condition: Condition, targets: list[AskedTarget]) -> bool:
    try:
        vocabulary.resolve_targets(condition, targets)
    except (UnknownCodeError, ConditionError):
        return False
    return True


def _warnings(body: GenerateRequest, support: Support, targets: list[TargetSupportAnswer]) -> list[str]:
    warnings = [] if body.conditions.is_empty else _about(SupportAnswer.of(support), "satisfy the condition")
    for number, target in enumerate(targets):
        if target.share > 0:
            warnings += _about(target.meeting, f"meet targets[{number}] and the condition")
        if target.share < 1:
            warnings += _about(target.others, f"satisfy the condition without the codes of targets[{number}]")
    if body.method == "langevin":
        warnings.append("'langevin' makes what is asked more common; it does not make every record satisfy it")
    return warnings


def _about(support: SupportAnswer, what: str) -> list[str]:
    unchecked = "such records are the model's extrapolation and cannot be checked against real ones"
    if support.seen == "no":
        return [f"no training records {what}: {unchecked}"]
    if support.seen == "fewer than 11":
        return [f"fewer than 11 training records, perhaps none, {what}: {unchecked}"]
    if support.seen == "not known":
        return [f"the model's dataset is gone: how many training records {what} is not known"]
    if support.records is not None and support.records < FEW_RECORDS:
        return [f"only about {support.records} training records {what}: what comes with it is learned from them alone"]
    return []
