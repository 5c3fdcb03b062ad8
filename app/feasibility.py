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
class Judgement:
    """`problem`: the request is impossible. `warnings`: it is possible, and there is something to know about it."""

    support: Support
    problem: RequestError | None = None
    targets: list[TargetSupportAnswer] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    relaxation: RelaxationAnswer | None = None


def check_limits(services: Services, model: Model, body: GenerateRequest) -> str:
    """The method that `body.method` means; RequestError if the model or the service does not offer what is asked."""
    if body.n > services.settings.max_records:
        raise RequestError(f"n: a cohort has at most {services.settings.max_records:,} records")
    timesteps = services.timesteps_of(model)
    if body.steps is not None and timesteps is not None and body.steps > timesteps:
        calls = "one network call" if timesteps == 1 else f"{timesteps} network calls"
        raise RequestError(f"steps: this model makes at most {calls} for a record")
    methods = generator_spec(model.generator).methods
    method = methods[0] if body.method == "auto" else body.method
    if method not in methods:
        known = ", ".join(f"'{name}'" for name in ("auto", *methods))
        raise RequestError(f"method: a '{model.generator}' model does not offer '{method}'; known: {known}")
    return method


def judge(services: Services, model: Model, body: GenerateRequest) -> Judgement:
    """Hold conditions and targets against the vocabulary, then against the training records if they are still there."""
    vocabulary, index = services.vocabulary_of(model), None
    if body.asks_for_something:
        index = services.training_index_of(model)
    terms = terms_of(vocabulary, body.conditions)
    try:
        vocabulary.resolve_targets(vocabulary.resolve(body.conditions), body.targets)
    except (UnknownCodeError, ConditionError) as error:
        return Judgement(UNKNOWN, error, relaxation=_relaxed(vocabulary, index, terms, body.targets))
    support = _support(index, terms)
    targets = [_target(vocabulary, index, terms, target) for target in body.targets]
    relaxation = None if support.is_enough else _relaxed(vocabulary, index, terms, body.targets)
    warnings = _warnings(body, support, targets)
    if body.asks_for_something and generator_spec(model.generator).methods == ("rejection",):
        warnings.append(REJECTION)
    return Judgement(support, None, targets, warnings, relaxation)


def _support(index: TrainingIndex | None, terms: list[Term], *more: Requirement) -> Support:
    return UNKNOWN if index is None else index.support([*(term.requirement for term in terms), *more])


def _target(
    vocabulary: Vocabulary, index: TrainingIndex | None, terms: list[Term], target: AskedTarget
) -> TargetSupportAnswer:
    codes = tuple(vocabulary.matching_any(target.codes))
    meeting, others = (_support(index, terms, Requirement(codes, wanted)) for wanted in (True, False))
    return TargetSupportAnswer(
        codes=target.codes,
        share=target.share,
        meeting=SupportAnswer.of(meeting),
        others=SupportAnswer.of(others),
    )


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
