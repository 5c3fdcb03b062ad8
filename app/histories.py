"""Requests for patients over time, held against their model. Nothing here looks at patients."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from app.feasibility import (
    FEW_PATIENTS,
    NOT_KNOWN,
    Feasibility,
    check_limits,
    everyone,
    feasibility_of,
    sampling_of,
    share_of,
)
from app.gate import Gate, gate_by, unknown
from app.schemas.answers import RelaxationAnswer, SupportAnswer, TargetSupportAnswer
from app.schemas.codes import PatientAnswer, VisitAnswer
from app.schemas.requests import GenerateRequest
from app.services import ModelFacts, Services
from ehr.audits import ModelAudit, withholding_verdict
from ehr.canonical_json import to_json
from ehr.canonical_request import CanonicalRequest
from ehr.conditions import AskedTarget
from ehr.errors import ConditionError, RequestError, UnknownCodeError
from ehr.generators import history_generator_names, spec_named
from ehr.histories import Histories
from ehr.history_conditions import AskedHistoryCondition, HistoryCondition
from ehr.history_support import HistoryReference, nearest_history
from ehr.history_targets import HistoryTarget, resolve_targets, with_certain
from ehr.records import Records
from ehr.vocabulary import Vocabulary
from model_store.tables import Dataset, Model


def draws_histories(model: Model) -> bool:
    return model.generator in history_generator_names()


def has_histories(dataset: Dataset) -> bool:
    return (dataset.summary.get("format") or {}).get("unit") == "history"


def feasibility_for(services: Services, model: Model, body: GenerateRequest) -> Feasibility:
    """Of a request to any model, of records or of histories."""
    if draws_histories(model):
        return _history_feasibility(services, model, body)
    if asks_over_time(body.model_dump()):
        raise RequestError("history: this model draws records without time; `conditions` says what they must have")
    return feasibility_of(services, model, body)


def _history_feasibility(services: Services, model: Model, body: GenerateRequest) -> Feasibility:
    """RequestError if the model does not offer what is asked, whatever the conditions are."""
    facts = services.facts_of(model)
    check_limits(services.settings.max_records, facts.timesteps, body)
    if not body.conditions.is_empty:
        raise RequestError("conditions: this model draws patients over time; `history` says what they must be")
    if body.method not in ("auto", "exact"):
        raise RequestError(f"method: this model draws patients over time and does not offer '{body.method}'")
    asks = body.history != AskedHistoryCondition() or bool(body.targets)
    sampling = sampling_of(model, body, "exact" if asks else None)
    verdict = withholding_verdict(model.details)
    by_model = None if verdict is None else f"every cohort of this model is withheld: {verdict.reason}"
    warnings = [] if by_model is None else [by_model]
    if not asks:
        return Feasibility(None, sampling, *everyone(facts), warnings=warnings, withheld=by_model)
    if not spec_named(model.generator).methods:
        raise RequestError(f"history: a '{model.generator}' model meets no conditions; leave them out")
    reference, fewest = services.patients_of(model), services.settings.smallest_condition
    asked = AskedOfPatients(facts, reference, fewest, body.history, tuple(body.targets))
    try:
        condition, targets = asked.resolved()
    except (UnknownCodeError, ConditionError) as error:
        return Feasibility("exact", sampling, unknown=asked.unknown, problem=error, relaxation=asked.relaxed())
    smallest = asked.smallest(condition, targets)
    gate = asked.gate(smallest, ModelAudit.of(model.details))
    helps = gate.withholds is not None and by_model is None and asked.reference is not None
    return Feasibility(
        "exact",
        sampling,
        asked.support(condition),
        asked.unknown,
        targets=asked.target_support(condition, targets),
        warnings=[*warnings, *filter(None, [gate.warning]), *asked.warnings(smallest)],
        relaxation=asked.relaxed() if helps else None,
        request=canonical(condition, facts.vocabulary, targets),
        gate=gate,
        withheld=by_model or gate.withholds,
    )


@dataclass(frozen=True)
class AskedOfPatients:
    """What is asked of patients over time, and the drawn ones it is held against."""

    facts: ModelFacts
    reference: HistoryReference | None
    fewest_patients: int
    history: AskedHistoryCondition
    targets: tuple[AskedTarget, ...] = ()

    def resolved(self) -> tuple[HistoryCondition, tuple[HistoryTarget, ...]]:
        """In indices; UnknownCodeError or ConditionError if that cannot be, or no patient of the model can be so."""
        condition = self.history.resolve(self.facts.vocabulary)
        most = self.facts.most_visits
        if most is not None and condition.fewest_visits > most:
            raise ConditionError(
                f"at least {condition.fewest_visits} visits are asked for, but the model knows patients with {most} at"
                " most"
            )
        return condition, resolve_targets(self.facts.vocabulary, condition, self.targets)

    @property
    def unknown(self) -> str | None:
        return unknown(self.facts.reference) if self.reference is None else None

    def support(self, condition: HistoryCondition) -> SupportAnswer:
        if self.reference is None:
            return NOT_KNOWN
        return share_of(int(self.reference.satisfied(condition).sum()), self.reference.n_records)

    def target_support(
        self, condition: HistoryCondition, targets: Sequence[HistoryTarget]
    ) -> list[TargetSupportAnswer]:
        """Of each target, met and missed."""
        found = []
        for asked, target in zip(self.targets, targets, strict=True):
            meeting, others = NOT_KNOWN, NOT_KNOWN
            if self.reference is not None:
                inside, met = self.reference.satisfied(condition), self.reference.meeting(target)
                counts = (int((inside & met).sum()), int((inside & ~met).sum()))
                meeting, others = (share_of(count, self.reference.n_records) for count in counts)
            found.append(TargetSupportAnswer.of(asked, meeting=meeting, others=others))
        return found

    def smallest(self, condition: HistoryCondition, targets: Sequence[HistoryTarget]) -> int | None:
        """How many drawn patients are in the smallest part of the cohort that is asked for."""
        return None if self.reference is None else self.reference.smallest_part(condition, targets)

    def gate(self, matching: int | None, audit: ModelAudit | None) -> Gate:
        parts = "be in one of the parts that its targets divide the cohort into"
        what, drawn = f"would {parts if self.targets else 'be as asked'}", "patients"
        return gate_by(matching, self.reference, self.facts.reference, audit, self.fewest_patients, what, drawn)

    def relaxed(self) -> RelaxationAnswer | None:
        """The nearest request that can be met, and would not be withheld where that is known."""
        fewest = 1 if self.reference is None else self.reference.fewest_for(self.fewest_patients)
        found = nearest_history(self.facts.vocabulary, self.reference, self.history, fewest)
        if found is None:
            return None
        kept: tuple[AskedTarget, ...] = ()
        for target in self.targets:
            more = replace(self, history=found.asked, targets=(*kept, target))
            kept = more.targets if more.fits(fewest) else kept
        known = self.reference is not None and found.matching is not None
        return RelaxationAnswer(
            conditions={},
            targets=[target.model_dump() for target in kept],
            history=found.asked.model_dump(mode="json", exclude_defaults=True),
            dropped=[
                *found.dropped,
                *({"field": "targets", "codes": target.codes} for target in self.targets if target not in kept),
            ],
            support=share_of(found.matching or 0, self.reference.n_records) if known and self.reference else NOT_KNOWN,
        )

    def fits(self, fewest: int) -> bool:
        """Whether it can be met, and `fewest` drawn patients or more are in each part of it."""
        try:
            smallest = self.smallest(*self.resolved())
        except (UnknownCodeError, ConditionError):
            return False
        return smallest is None or smallest >= fewest

    def warnings(self, smallest: int | None) -> list[str]:
        if self.reference is None or smallest is None:
            return []
        drawn = f"of the {self.reference.n_records:,} patients that the model drew once"
        what = "in the smallest part that targets divide the cohort into" if self.targets else "as asked"
        if smallest == 0:
            return [f"none {drawn} is {what}: such patients are extrapolated from what the model has seen"]
        if self.reference.expected_patients(smallest) < FEW_PATIENTS:
            return [f"only {smallest:,} {drawn} are {what}: what comes with it is learned from few patients"]
        return []


def shown_patients(histories: Histories, vocabulary: Vocabulary) -> list[PatientAnswer]:
    """Patients as they are sent."""

    def named(records: Records, row: int) -> list[str]:
        return [vocabulary.codes[code] for code in records.indices[records.indptr[row] : records.indptr[row + 1]]]

    return [
        PatientAnswer(
            static=named(histories.static, patient),
            visits=[
                VisitAnswer(gap_days=int(histories.gaps[row]), codes=named(histories.visits, row))
                for row in range(histories.offsets[patient], histories.offsets[patient + 1])
            ],
        )
        for patient in range(len(histories))
    ]


def asks_over_time(request: Mapping[str, Any]) -> bool:
    """Whether a stored request says what histories must be."""
    asked = AskedHistoryCondition.model_validate(request.get("history") or {})
    return asked != AskedHistoryCondition()


def canonical(
    condition: HistoryCondition, vocabulary: Vocabulary, targets: Sequence[HistoryTarget] = ()
) -> CanonicalRequest:
    """What is asked for in one form for all wordings: a clause for each code that must be there at some visit, one for
    all else that must hold. The share of a target does not count, unless it is all patients or none."""
    condition = with_certain(condition, targets)

    def words(codes: frozenset[int]) -> frozenset[str]:
        return frozenset(f"ever {vocabulary.codes[code]}" for code in codes)

    clauses = {words(codes) for codes in condition.ever}
    rest = replace(condition, ever=(), never=frozenset())
    if not rest.is_empty:
        clauses.add(frozenset({f"history {hashlib.sha256(to_json(_plain(rest))).hexdigest()}"}))
    parts = frozenset(words(target.codes - condition.never) for target in targets if 0 < target.share < 1)
    return CanonicalRequest(frozenset(clauses), words(condition.never), parts)


def _plain(value: Any) -> Any:
    """As JSON in which equal conditions are equal."""
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Histories):
        return [value.gaps.tolist(), value.visits.indptr.tolist(), value.visits.indices.tolist()]
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value) if field.compare}
    return value
