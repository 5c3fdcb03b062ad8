"""Requests for patients over time, held against their model. Nothing here looks at patients."""

import hashlib
from collections.abc import Mapping
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
from app.schemas.answers import RelaxationAnswer, SupportAnswer
from app.schemas.codes import PatientAnswer, VisitAnswer
from app.schemas.requests import GenerateRequest
from app.services import ModelFacts, Services
from ehr.audits import ModelAudit, withholding_verdict
from ehr.canonical_json import to_json
from ehr.canonical_request import CanonicalRequest
from ehr.errors import ConditionError, RequestError, UnknownCodeError
from ehr.generators import history_generator_names, spec_named
from ehr.histories import Histories
from ehr.history_conditions import AskedHistoryCondition, HistoryCondition
from ehr.history_support import HistoryReference, nearest_history
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
    if body.asks_for_something or body.method != "auto":
        raise RequestError("conditions: this model draws patients over time; `history` says what they must be")
    asks = body.history != AskedHistoryCondition()
    sampling = sampling_of(model, body, "exact" if asks else None)
    verdict = withholding_verdict(model.details)
    by_model = None if verdict is None else f"every cohort of this model is withheld: {verdict.reason}"
    warnings = [] if by_model is None else [by_model]
    if not asks:
        return Feasibility(None, sampling, *everyone(facts), warnings=warnings, withheld=by_model)
    if not spec_named(model.generator).methods:
        raise RequestError(f"history: a '{model.generator}' model meets no conditions; leave them out")
    asked = AskedOfPatients(facts, services.patients_of(model), services.settings.smallest_condition, body.history)
    try:
        condition = body.history.resolve(facts.vocabulary)
    except (UnknownCodeError, ConditionError) as error:
        return Feasibility("exact", sampling, unknown=asked.unknown, problem=error, relaxation=asked.relaxed())
    support = asked.support(condition)
    gate = asked.gate(support.matching, ModelAudit.of(model.details))
    helps = gate.withholds is not None and by_model is None and asked.reference is not None
    return Feasibility(
        "exact",
        sampling,
        support,
        asked.unknown,
        warnings=[*warnings, *filter(None, [gate.warning]), *asked.warnings(support)],
        relaxation=asked.relaxed() if helps else None,
        request=canonical(condition, facts.vocabulary),
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

    @property
    def unknown(self) -> str | None:
        return unknown(self.facts.reference) if self.reference is None else None

    def support(self, condition: HistoryCondition) -> SupportAnswer:
        if self.reference is None:
            return NOT_KNOWN
        return share_of(int(self.reference.satisfied(condition).sum()), self.reference.n_records)

    def gate(self, matching: int | None, audit: ModelAudit | None) -> Gate:
        what, drawn = "would be as asked", "patients"
        return gate_by(matching, self.reference, self.facts.reference, audit, self.fewest_patients, what, drawn)

    def relaxed(self) -> RelaxationAnswer | None:
        """The nearest request that can be met, and would not be withheld where that is known."""
        fewest = 1 if self.reference is None else self.reference.fewest_for(self.fewest_patients)
        found = nearest_history(self.facts.vocabulary, self.reference, self.history, fewest)
        if found is None:
            return None
        known = self.reference is not None and found.matching is not None
        return RelaxationAnswer(
            conditions={},
            targets=[],
            history=found.asked.model_dump(mode="json", exclude_defaults=True),
            dropped=found.dropped,
            support=share_of(found.matching or 0, self.reference.n_records) if known and self.reference else NOT_KNOWN,
        )

    def warnings(self, support: SupportAnswer) -> list[str]:
        if self.reference is None or support.matching is None:
            return []
        drawn = f"of the {support.drawn:,} patients that the model drew once"
        if support.matching == 0:
            return [f"none {drawn} is as asked: such patients are extrapolated from what the model has seen"]
        if self.reference.expected_patients(support.matching) < FEW_PATIENTS:
            return [f"only {support.matching:,} {drawn} are as asked: what comes with it is learned from few patients"]
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


def canonical(condition: HistoryCondition, vocabulary: Vocabulary) -> CanonicalRequest:
    """What is asked for in one form for all wordings: a clause for each code that must be there at some visit, one for
    all else that must hold."""

    def words(codes: frozenset[int]) -> frozenset[str]:
        return frozenset(f"ever {vocabulary.codes[code]}" for code in codes)

    clauses = {words(codes) for codes in condition.ever}
    rest = replace(condition, ever=(), never=frozenset())
    if not rest.is_empty:
        clauses.add(frozenset({f"history {hashlib.sha256(to_json(_plain(rest))).hexdigest()}"}))
    return CanonicalRequest(frozenset(clauses), words(condition.never))


def _plain(value: Any) -> Any:
    """As JSON in which equal conditions are equal."""
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Histories):
        return [value.gaps.tolist(), value.visits.indptr.tolist(), value.visits.indices.tolist()]
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return value
