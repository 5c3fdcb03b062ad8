"""A request for a cohort held against its model and the records that the model drew once: can it be met, how well, and
may what comes of it leave?

Nothing here looks at patients: the answers are a function of the model's bundle and the request.
"""

from dataclasses import dataclass, field
from functools import cached_property

from app.gate import Gate, gate_of, smallest_part, unknown
from app.schemas.answers import RelaxationAnswer, ReplacementAnswer, SupportAnswer, TargetSupportAnswer
from app.schemas.requests import GenerateRequest
from app.services import ModelFacts, Services
from ehr.audits import ModelAudit, withholding_verdict
from ehr.canonical_request import CanonicalRequest
from ehr.conditions import AskedTarget, Target
from ehr.errors import ConditionError, RequestError, UnknownCodeError
from ehr.generators import generator_spec, spec_named
from ehr.relaxation import ReadTarget, Term, nearest, read_targets, terms_of
from ehr.support import ReferenceCohort, Requirement
from model_store.tables import Model

NAMED = 3  # codes of a target in a sentence
FEW_PATIENTS = 200  # what comes with a condition is then learned from hardly anyone
NOT_KNOWN = SupportAnswer(matching=None, drawn=None, share=None)
REJECTION = (
    "this model can only draw records and throw away those that do not satisfy the condition: the rarer it is, the"
    " longer it takes, and if fewer than about one in 200 of the model's records satisfy it, the job fails"
)


@dataclass(frozen=True)
class Feasibility:
    """`problem`: the request is impossible. `warnings`: it is possible, and there is something to know about it."""

    method: str | None  # how conditions would be met; None without conditions
    sampling: str  # how records would be drawn
    support: SupportAnswer = NOT_KNOWN
    unknown: str | None = None  # why the support is not known
    problem: RequestError | None = None
    targets: list[TargetSupportAnswer] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    relaxation: RelaxationAnswer | None = None
    request: CanonicalRequest = field(default_factory=CanonicalRequest)
    gate: Gate = field(default_factory=Gate)
    withheld: str | None = None  # why the cohort would be, by its model or by what it asks for

    def require(self) -> None:
        """Raise the problem, with the nearest request that has none."""
        if self.problem is not None:
            if self.relaxation is not None:
                self.problem.more["relaxation"] = self.relaxation.model_dump()
            raise self.problem


def feasibility_of(services: Services, model: Model, body: GenerateRequest) -> Feasibility:
    """Hold conditions and targets against the vocabulary, then against the records that the model drew once.

    RequestError if the model or the service does not offer what is asked, whatever the conditions are.
    """
    facts = services.facts_of(model)
    check_limits(services.settings.max_records, facts.timesteps, body)
    method = _method(model, body)
    sampling = sampling_of(model, body, method)
    verdict = withholding_verdict(model.details)
    by_model = None if verdict is None else f"every cohort of this model is withheld: {verdict.reason}"
    if not body.asks_for_something:
        warnings = [] if by_model is None else [by_model]
        return Feasibility(method, sampling, *everyone(facts), warnings=warnings, withheld=by_model)
    asked = Asked(facts, services.reference_of(model), services.settings.smallest_condition, body)
    try:
        request, targets = asked.resolved()
    except (UnknownCodeError, ConditionError) as error:
        return Feasibility(method, sampling, unknown=asked.unknown, problem=error, relaxation=asked.relaxed())
    gate = asked.gate(ModelAudit.of(model.details), targets)
    return Feasibility(
        method,
        sampling,
        asked.support(),
        asked.unknown,
        None,
        asked.targets(),
        [*filter(None, (by_model, gate.warning)), *asked.warnings(), *([REJECTION] if method == "rejection" else [])],
        # nothing helps a request that would not be withheld, nor one of a model whose every cohort is
        None if gate.withholds is None or by_model is not None or asked.reference is None else asked.relaxed(),
        request,
        gate,
        by_model or gate.withholds,
    )


@dataclass(frozen=True)
class Asked:
    """Conditions and targets, and the records they are held against."""

    facts: ModelFacts
    reference: ReferenceCohort | None
    fewest_patients: int
    body: GenerateRequest

    @cached_property
    def terms(self) -> list[Term]:
        return terms_of(self.facts.vocabulary, self.body.conditions)

    def resolved(self) -> tuple[CanonicalRequest, tuple[Target, ...]]:
        """What is asked for in one form for all wordings, and its targets; UnknownCodeError or ConditionError."""
        vocabulary, rules = self.facts.vocabulary, self.facts.rules
        condition = vocabulary.resolve(self.body.conditions)
        targets = vocabulary.resolve_targets(condition, self.body.targets)
        rules.check(condition, targets, vocabulary.codes)
        return CanonicalRequest.of(self.body.conditions, self.body.targets, vocabulary, rules), targets

    def gate(self, audit: ModelAudit | None, targets: tuple[Target, ...]) -> Gate:
        return gate_of(self.reference, self.facts.reference, audit, self.fewest_patients, self.terms, targets)

    @property
    def unknown(self) -> str | None:
        return unknown(self.facts.reference) if self.reference is None else None

    def support(self, *more: Requirement) -> SupportAnswer:
        """Of the condition and `more`."""
        if self.reference is None:
            return NOT_KNOWN
        count = self.reference.count([*(term.requirement for term in self.terms), *more])
        return share_of(count, self.reference.n_records)

    def targets(self) -> list[TargetSupportAnswer]:
        """Of each target, met and missed."""
        found = []
        for target in self.body.targets:
            codes = tuple(self.facts.vocabulary.matching_any(target.codes))
            meeting, others = (self.support(Requirement(codes, wanted)) for wanted in (True, False))
            found.append(TargetSupportAnswer.of(target, meeting=meeting, others=others))
        return found

    def relaxed(self) -> RelaxationAnswer:
        """The nearest request that can be met, and would not be withheld where that is known."""
        fewest = 1 if self.reference is None else self.reference.fewest_for(self.fewest_patients)
        found = nearest(self.facts.vocabulary, self.reference, self.terms, fewest)
        kept: list[ReadTarget] = []
        read = read_targets(self.facts.vocabulary, self.body.targets)
        less = self._with(conditions=found.conditions, targets=[])
        for each in read:
            more = self._with(conditions=found.conditions, targets=_targets([*kept, each]))
            if each.target is not None and more.fits(fewest):
                kept, less = [*kept, each], more
        replaced = [*found.replaced, *(one for each in kept for one in each.replaced)]
        return RelaxationAnswer(
            conditions=found.conditions.model_dump(),
            targets=[target.model_dump() for target in _targets(kept)],
            dropped=[*found.dropped, *(entry for each in read for entry in each.dropped(each in kept))],
            replaced=[ReplacementAnswer.of(each) for each in replaced],
            support=less.support(),
        )

    def fits(self, fewest: int) -> bool:
        """Whether it can be met, and `fewest` drawn records or more satisfy each part of it."""
        try:
            targets = self.resolved()[1]
        except (UnknownCodeError, ConditionError):
            return False
        return self.reference is None or smallest_part(self.reference, self.terms, targets) >= fewest

    def warnings(self) -> list[str]:
        """At most one about how few are like what is asked for: about the part of the request that fewest are like."""
        found = self._about_the_fewest()
        if self.body.method == "langevin":
            found.append("'langevin' makes what is asked more common; it does not make every record satisfy it")
        return found

    def _about_the_fewest(self) -> list[str]:
        anyone, fits = self.body.conditions.is_empty, "satisfy the condition"
        parts = [] if anyone else [(self.support(), fits)]
        for target in self.targets():
            codes = " or ".join(target.codes[:NAMED]) + (" or others" if len(target.codes) > NAMED else "")
            met, missed = (
                ("have", "lack") if anyone else ("satisfy the condition with", "satisfy the condition without")
            )
            parts += [(target.meeting, f"{met} {codes}")] if target.share > 0 else []
            parts += [(target.others, f"{missed} {codes}")] if target.share < 1 else []
        known = [(support.matching, support.drawn, what) for support, what in parts if support.matching is not None]
        if self.reference is None or not known:
            return []
        matching, drawn, what = min(known, key=lambda part: part[0])
        if self.reference.expected_patients(matching) >= FEW_PATIENTS:
            return []
        told = (
            f"{f'only {matching:,}' if matching else 'none'} of the {drawn:,} records that the model drew once {what}"
        )
        extrapolated = "such records are extrapolated from what the model has seen"
        return [f"{told}: {'what comes with it is learned from few patients' if matching else extrapolated}"]

    def _with(self, **changes: object) -> "Asked":
        return Asked(self.facts, self.reference, self.fewest_patients, self.body.model_copy(update=changes))


def _targets(read: list[ReadTarget]) -> list[AskedTarget]:
    return [each.target for each in read if each.target is not None]


def everyone(facts: ModelFacts) -> tuple[SupportAnswer, str | None]:
    """Nothing is asked for: every drawn record satisfies it, and none has to be looked at."""
    drawn = facts.reference
    if drawn is None or not drawn.may_be_told:
        return NOT_KNOWN, unknown(drawn)
    return share_of(drawn.records, drawn.records), None


def share_of(matching: int, drawn: int) -> SupportAnswer:
    return SupportAnswer(matching=matching, drawn=drawn, share=matching / drawn if drawn else None)


def check_limits(max_records: int, timesteps: int | None, body: GenerateRequest) -> None:
    if body.n > max_records:
        raise RequestError(f"n: a cohort has at most {max_records:,} records")
    if body.steps is not None and timesteps is not None and body.steps > timesteps:
        calls = "one network call" if timesteps == 1 else f"{timesteps} network calls"
        raise RequestError(f"steps: this model makes at most {calls} for a record")


def sampling_of(model: Model, body: GenerateRequest, method: str | None) -> str:
    """What `body.sampling` means for this model; RequestError if it does not offer it."""
    return spec_named(model.generator).sampling(body.sampling, model.details.get("settings") or {}, method)


def _method(model: Model, body: GenerateRequest) -> str | None:
    """What `body.method` means for this model; None without conditions."""
    methods = generator_spec(model.generator).methods
    method = methods[0] if body.method == "auto" else body.method
    if method not in methods:
        known = ", ".join(f"'{name}'" for name in ("auto", *methods))
        raise RequestError(f"method: a '{model.generator}' model does not offer '{method}'; known: {known}")
    return method if body.asks_for_something else None
