"""Requests for patients over time, held against their model. Nothing here looks at patients."""

import hashlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from app.feasibility import Feasibility, check_limits, feasibility_of, sampling_of
from app.gate import CUSTODIAN, Gate
from app.schemas.requests import GenerateRequest
from app.services import Services
from ehr.audits import withholding_verdict
from ehr.canonical_json import to_json
from ehr.canonical_request import CanonicalRequest
from ehr.errors import ConditionError, RequestError, UnknownCodeError
from ehr.generators import history_generator_names, spec_named
from ehr.histories import Histories
from ehr.history_conditions import AskedHistoryCondition, HistoryCondition
from ehr.vocabulary import Vocabulary
from model_store.tables import Model

NOT_COUNTED = "how many patients would satisfy what is asked of their histories is not known"
NOT_MEASURED = "cohorts that are asked for something over time are not evaluated yet: there will be no report"


def draws_histories(model: Model) -> bool:
    return model.generator in history_generator_names()


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
        return Feasibility(None, sampling, unknown=NOT_COUNTED, warnings=warnings, withheld=by_model)
    if not spec_named(model.generator).methods:
        raise RequestError(f"history: a '{model.generator}' model meets no conditions; leave them out")
    try:
        condition = body.history.resolve(facts.vocabulary)
    except (UnknownCodeError, ConditionError) as error:
        return Feasibility("exact", sampling, unknown=NOT_COUNTED, problem=error)
    gate = Gate()
    if services.settings.smallest_condition > 0:
        gate = Gate(f"{NOT_COUNTED[0].upper()}{NOT_COUNTED[1:]}.", f"{NOT_COUNTED}; {CUSTODIAN}")
    return Feasibility(
        "exact",
        sampling,
        unknown=NOT_COUNTED,
        warnings=[*warnings, *filter(None, [gate.warning]), NOT_MEASURED],
        request=canonical(condition, facts.vocabulary),
        gate=gate,
        withheld=by_model or gate.withholds,
    )


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
