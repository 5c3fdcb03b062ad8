"""The options of requests, and the bodies made of them. What is None is left to the service's defaults."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from ehr_d3pm.errors import Json

Codes = str | Sequence[str]  # one code or wildcard, or several


class UploadOptions(TypedDict, total=False):
    """The form of `POST /datasets`."""

    name: str | None
    format: str | None
    unit: str | None
    codes_from: str | None
    demographics: bool | None
    birth_years: bool | None  # with unit="history"
    rollup: str | None
    default_vocabulary: str | None
    min_records: int | None
    holdout_share: float | None
    test_share: float | None
    may_be_attacked: bool | None
    groups: Sequence[Json] | None  # such as {"codes": "PAYER:*", "rule": "exactly one"}


class TrainOptions(TypedDict, total=False):
    """The body of `POST /train`; `settings` are changes to the preset, nested like it."""

    name: str | None
    generator: str | None
    preset: str | None
    settings: Json | None
    seed: int | None
    holdout_share: float | None
    max_minutes: float | None  # with the preset `auto`


class CohortOptions(TypedDict, total=False):
    """The body of `POST /generate`. A flat list in `any_of` is one group; `targets` may be shares by code, such as
    `{"ICD10CM:E11*": 0.3}`."""

    all_of: Codes | None
    any_of: Codes | Sequence[Sequence[str]] | None
    none_of: Codes | None
    targets: Mapping[str, float] | Sequence[Json] | None
    method: str | None
    strength: float | None
    steps: int | None
    sampling: str | None  # "dealt" or "independent"
    seed: int | None
    evaluate: bool | None
    history: Json | None  # of models of histories: {"ever": [...], "before": [{"first": ..., "then": ...}], ...}
    origin: str | None  # of histories: the day of all first visits


class Filters(TypedDict, total=False):
    """The query of a list; each list has some of these, and refuses the others."""

    id: str | None  # how it begins
    name: str | None  # what it contains
    sort: str | None  # such as `name` or `-created_at`
    model_id: str | None
    dataset_id: str | None
    generator: str | None
    tag: str | None


class AuditFilters(TypedDict, total=False):
    """The query of `GET /audit`; moments are ISO 8601, UTC if they name no zone."""

    action: str | None
    key: str | None  # prefix of a key
    target: str | None
    since: str | None
    until: str | None


def cohort_body(model_id: str, n: int, options: Mapping[str, Any]) -> Json:
    """The body of `POST /generate`."""
    rest = dict(options)
    conditions = {name: as_list(rest.pop(name, None)) for name in ("all_of", "any_of", "none_of")}
    targets = rest.pop("targets", None) or []
    if isinstance(targets, Mapping):
        targets = [{"codes": [code], "share": share} for code, share in targets.items()]
    return {"model_id": model_id, "n": n, "conditions": conditions, "targets": list(targets)} | given(rest)


def as_list(values: Any) -> list[Any]:
    """A text is one value: iterating over it would ask for its letters."""
    if values is None:
        return []
    return [values] if isinstance(values, str | Path) else list(values)


def files_at(path: Path) -> list[Path]:
    """The file, or all files of a folder and of those in it."""
    if not path.is_dir():
        return [path]
    return sorted(found for found in path.rglob("*") if found.is_file() and not found.name.startswith("."))


def given(values: Mapping[str, Any]) -> Json:
    return {name: value for name, value in values.items() if value is not None}
