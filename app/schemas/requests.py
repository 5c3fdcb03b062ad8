"""Request bodies. They refuse what they do not know, so that a misspelt option is an error and not a surprise."""

import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, Json, model_validator

from app.schemas.names import GeneratorName, Preset
from ehr.conditions import MOST_TARGETS, AskedCondition, AskedTarget
from ehr.fields import Code, Name, PlainText, Seed, SettingsDict
from ehr.formats.write.dates import HISTORY_ORIGIN
from ehr.generators import DEFAULT_GENERATOR
from ehr.groups import DeclaredGroup
from ehr.history_conditions import AskedHistoryCondition
from ehr.references import Sink, Source
from worker.contract import MOST_MINUTES, FormatName, MethodName, RollupName, SamplingName, method_fits

Id = Annotated[str, Field(max_length=64)]
MOST_GROUPS = 100  # that an upload declares


def _as_text(schema: dict[str, Any]) -> None:
    """Without the schema of what is in the text: it refers to a place that the form of an upload does not have."""
    schema.pop("contentSchema")


def with_examples(*examples: dict[str, Any]) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": list(examples)})


class Request(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TrainRequest(Request):
    """Learn from a dataset's training split."""

    model_config = with_examples(
        {
            "dataset_id": "ds_0123456789abcdef0123456789abcdef",
            "name": "cardiology, quick look",
            "preset": "fast",
            "settings": {"training": {"epochs": 5}},
            "seed": 7,
        }
    )

    dataset_id: Id = Field(description="of a finished ingestion")
    name: Name | None = Field(None, description="shown in lists; the dataset's name if left out")
    generator: GeneratorName = Field(
        DEFAULT_GENERATOR,
        description="`independent` ignores how codes occur together: a yardstick; `visits` learns histories, which it"
        " does if left out, and `markov` is their yardstick; the others are published generators to compare with",
    )
    preset: Preset = Field(
        "auto",
        description="settings to start from; `auto` follows a rule from the size of the data and tells beforehand how"
        " long it takes; published generators start from their published settings and take no other preset",
    )
    settings: SettingsDict = Field(default_factory=dict, description="changes to the preset, nested like it")
    seed: Seed = 0
    holdout_share: float | None = Field(
        None, gt=0, lt=0.5, description="share of patients kept for early stopping, if other than the dataset's own"
    )
    max_minutes: float | None = Field(
        None,
        gt=0,
        le=MOST_MINUTES,
        allow_inf_nan=False,
        description="with the preset `auto` of `d3pm`: the longest that the job may run; a few batches are timed first,"
        " and epochs and width are chosen to fit",
    )


class ModelChanges(Request):
    """What people call a model and say about it. What is left out stays as it is."""

    model_config = with_examples({"name": "cardiology 2026", "tags": ["pilot"], "notes": "for the method paper"})

    name: Name | None = None
    tags: list[Annotated[PlainText, Field(min_length=1, max_length=40)]] | None = Field(None, max_length=20)
    notes: Annotated[PlainText, Field(max_length=2000)] | None = None


class GenerateRequest(Request):
    """Draw a synthetic cohort. The same model, request and seed give the same records."""

    model_config = with_examples(
        {
            "model_id": "mdl_0123456789abcdef0123456789abcdef",
            "n": 10000,
            "conditions": {
                "all_of": ["ICD10CM:E84"],
                "any_of": [["ICD10CM:J96", "ICD10CM:J18*"]],
                "none_of": ["ICD10CM:O*"],
            },
            "targets": [{"codes": ["ICD10CM:E11*"], "share": 0.3}],
            "seed": 7,
        },
        {
            "model_id": "mdl_0123456789abcdef0123456789abcdef",
            "n": 10000,
            "conditions": {"all_of": ["ICD10CM:E84"]},
            "method": "langevin",
            "strength": 2.0,
        },
    )

    model_id: Id
    n: int = Field(ge=1, le=2**31, strict=True, description="synthetic records to draw")
    conditions: AskedCondition = Field(default_factory=AskedCondition)
    targets: list[AskedTarget] = Field(
        default_factory=list, max_length=MOST_TARGETS, description="shares of the cohort; not met by `langevin`"
    )
    method: MethodName = Field(
        "auto",
        description="how conditions are met: `exact` by every record, `langevin` (the paper's guidance, `d3pm` models"
        " only) by more records than without, `rejection` (published generators) by throwing the others away; `auto` is"
        " `exact` or, where that is not offered, `rejection`",
    )
    strength: float = Field(1.0, ge=0, le=1000, allow_inf_nan=False, description="of `langevin`; 0 is none")
    seed: Seed = 0
    steps: int | None = Field(
        None, ge=1, le=10_000, strict=True, description="network calls; the model's choice if none"
    )
    sampling: SamplingName = Field(
        "auto",
        description="how the records of a cohort come to be: `dealt`, a stratified sample in which rare codes, sizes"
        " and kinds of records are about as common as the model says, which `auto` is where it is offered; or"
        " `independent`, in which every record is drawn by itself and numbers vary as those of real samples do",
    )
    evaluate: bool = Field(
        True, description="also measure the cohort and write a report; false needs the scope `admin`"
    )
    history: AskedHistoryCondition = Field(
        default_factory=AskedHistoryCondition, description="of models of histories: what every patient must be"
    )
    origin: datetime.date = Field(
        HISTORY_ORIGIN,
        validate_default=True,
        ge=datetime.date(1900, 1, 1),
        le=datetime.date(2100, 1, 1),
        description="of models of histories: the day of all first visits",
    )

    _method_fits = model_validator(mode="after")(method_fits)

    @property
    def asks_for_something(self) -> bool:
        """Whether there is anything a record must satisfy."""
        return bool(self.targets) or not self.conditions.is_empty


class ProbeRequest(Request):
    """Look at a few records."""

    model_config = with_examples(
        {
            "model_id": "mdl_0123456789abcdef0123456789abcdef",
            "n": 20,
            "conditions": {"all_of": ["ICD10CM:E84"]},
        }
    )

    model_id: Id
    n: int = Field(20, ge=1, le=100, strict=True, description="most records to show")
    conditions: AskedCondition = Field(default_factory=AskedCondition)
    targets: list[AskedTarget] = Field(default_factory=list, max_length=MOST_TARGETS)
    history: AskedHistoryCondition = Field(
        default_factory=AskedHistoryCondition, description="of models of histories: what every patient must be"
    )


class DatasetOptions(Request):
    """How records are read, wherever they come from."""

    name: Name | None = Field(None, description="shown in lists; the first file's name if left out")
    format: FormatName = Field("auto", description="`auto` looks at the files' names and headers")
    unit: Literal["auto", "visit", "patient", "history"] = Field(
        "auto",
        description="what a record is: a visit (admission, encounter, claim), a patient with all their visits, or a"
        " patient's history: the visits in order, with the days between them",
    )
    codes_from: Literal["source", "concept"] = Field(
        "source", description="of OMOP tables: the codes as recorded, or their concepts"
    )
    demographics: bool = Field(True, description="make codes of sex and age band where they are known")
    birth_years: bool = Field(
        False,
        description="of `unit=history`: also make a code of the ten years in which a patient was born, which tells"
        " generations apart and is the only thing of a synthetic patient that says anything about the calendar",
    )
    rollup: RollupName = Field("none", description="how ICD codes are grouped")
    default_vocabulary: Annotated[Name, Field(max_length=40)] | None = Field(
        None, description="the system of codes when the upload names none"
    )
    min_records: int = Field(11, ge=1, le=2**31, description="codes in fewer records than this are dropped")
    holdout_share: float = Field(0.1, ge=0, lt=0.5, allow_inf_nan=False)
    test_share: float = Field(0.1, ge=0, lt=0.5, allow_inf_nan=False)
    may_be_attacked: bool = Field(
        True,
        description="false if the data's terms forbid experiments in re-identification: reports then leave out the"
        " attacks on privacy, and cohorts are withheld until someone with the scope `admin` releases them",
    )

    @model_validator(mode="after")
    def _births_are_of_histories(self) -> Self:
        if self.birth_years and self.unit != "history":
            raise ValueError("birth_years are codes of patients over time: they need unit=history")
        return self


class DatasetForm(DatasetOptions):
    """The fields beside the files of an upload."""

    groups: Json[Annotated[list[DeclaredGroup], Field(max_length=MOST_GROUPS)]] = Field(
        "[]",
        validate_default=True,
        json_schema_extra=_as_text,
        description="codes of which every record has exactly one, or at most one, as JSON:"
        ' `[{"codes": "PAYER:*", "rule": "exactly one"}]`; sex, age bands, deciles of a lab and prefixes are found'
        " without",
    )


class ReferenceRequest(DatasetOptions):
    """Make a dataset of records that lie elsewhere, at a place that whoever runs the service allows."""

    model_config = with_examples(
        {
            "source": {"kind": "objects", "urls": ["s3://hospital-lake/exports/2024/"]},
            "name": "2024",
            "unit": "patient",
        },
        {"source": {"kind": "omop", "connection": "warehouse", "cdm_schema": "cdm", "cohort_id": 42}},
        {"source": {"kind": "fhir", "server": "hospital", "group": "diabetes-registry"}},
    )

    source: Source
    groups: list[DeclaredGroup] = Field(
        default_factory=list,
        max_length=MOST_GROUPS,
        description="codes of which every record has exactly one, or at most one",
        examples=[[{"codes": "PAYER:*", "rule": "exactly one"}]],
    )


class ExportRequest(Request):
    """Write a cohort to a place that whoever runs the service allows."""

    model_config = with_examples(
        {"sink": {"kind": "parquet", "url": "s3://hospital-lake/synthetic/"}},
        {"sink": {"kind": "omop", "connection": "warehouse", "cdm_schema": "synthetic_1"}},
        {"sink": {"kind": "delta", "url": "s3://hospital-lake/tables/synthetic/"}},
    )

    sink: Sink


class EvaluateRequest(Request):
    """Measure a finished cohort, again or against other real records."""

    model_config = with_examples(
        {
            "cohort_id": "job_0123456789abcdef0123456789abcdef",
            "dataset_id": "ds_0123456789abcdef0123456789abcdef",
            "labels": ["ICD10CM:E84", "ICD10CM:J4*"],
        }
    )

    cohort_id: Id
    dataset_id: Id | None = Field(None, description="the real records to compare with; the model's own if left out")
    labels: list[Code] | None = Field(
        None, max_length=20, description="codes or wildcards to predict; six common diseases if left out"
    )
    seed: Seed = 0


class ReleaseRequest(Request):
    """Why a withheld cohort may leave after all."""

    model_config = with_examples({"reason": "for internal tests on this machine only"})

    reason: Annotated[PlainText, Field(min_length=3, max_length=500, description="kept in the audit trail")]
