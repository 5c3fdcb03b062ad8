"""Request bodies. They refuse what they do not know, so that a misspelt option is an error and not a surprise."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from app.schemas.fields import Code, Name, PlainText, Seed, SettingsDict
from worker.contract import Conditions

# Known to the engine; a test keeps these equal to its own registries, which the API must not import.
GeneratorName = Literal["d3pm", "independent"]
PresetName = Literal["fast", "paper-mimic", "paper-large"]
# How conditions are met: `auto` leaves the choice to the service.
MethodName = Literal["auto", "exact", "langevin"]
# generator -> the methods its models offer
METHODS_OF: dict[str, tuple[str, ...]] = {"d3pm": ("auto", "langevin"), "independent": ("auto", "exact")}

Id = Annotated[str, Field(max_length=64)]


class Request(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TrainRequest(Request):
    """Learn from a dataset's training split."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "dataset_id": "ds_0123456789abcdef0123456789abcdef",
                    "name": "cardiology, quick look",
                    "preset": "fast",
                    "settings": {"training": {"epochs": 5}},
                    "seed": 7,
                }
            ]
        }
    )

    dataset_id: Id = Field(description="of a finished ingestion")
    name: Name | None = Field(None, description="shown in lists; the dataset's name if left out")
    generator: GeneratorName = Field("d3pm", description="`independent` ignores how codes occur together: a yardstick")
    preset: PresetName | None = Field(None, description="settings to start from; the generator's own if left out")
    settings: SettingsDict = Field(default_factory=dict, description="changes to the preset, nested like it")
    seed: Seed = 0
    holdout_share: float | None = Field(
        None, gt=0, lt=0.5, description="share of patients kept for early stopping, if other than the dataset's own"
    )


class ConditionsRequest(Request):
    """Every code of `all_of`, one of each group of `any_of`, none of `none_of`.

    A star stands for any characters: `ICD9DX:250*`. In `all_of` a wildcard asks for at least one of its codes.
    """

    all_of: list[Code] = Field(default_factory=list, max_length=100)
    any_of: list[Code] | list[list[Code]] = Field(
        default_factory=list, max_length=100, description="a list of groups; a flat list is one group"
    )
    none_of: list[Code] = Field(default_factory=list, max_length=100)

    def groups(self) -> list[list[str]]:
        """`any_of` as a list of groups."""
        flat = [code for code in self.any_of if isinstance(code, str)]
        return [flat] if flat else [group for group in self.any_of if not isinstance(group, str)]

    def as_contract(self) -> Conditions:
        return Conditions(all_of=self.all_of, any_of=self.groups(), none_of=self.none_of)

    @property
    def is_empty(self) -> bool:
        return not (self.all_of or self.any_of or self.none_of)


class GenerateRequest(Request):
    """Draw a synthetic cohort. The same model, request and seed give the same records."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "model_id": "mdl_0123456789abcdef0123456789abcdef",
                    "n": 10000,
                    "conditions": {
                        "all_of": ["ICD10CM:E84"],
                        "any_of": [["ICD10CM:J96", "ICD10CM:J18*"]],
                        "none_of": ["ICD10CM:O*"],
                    },
                    "method": "langevin",
                    "strength": 2.0,
                    "seed": 7,
                }
            ]
        }
    )

    model_id: Id
    n: int = Field(ge=1, le=2**31, strict=True, description="synthetic records to draw")
    conditions: ConditionsRequest = Field(default_factory=ConditionsRequest)
    method: MethodName = Field(
        "auto", description="how conditions are met; `d3pm` models offer `langevin`, which makes them more common"
    )
    strength: float = Field(1.0, ge=0, le=1000, allow_inf_nan=False, description="of the guidance; 0 is none")
    seed: Seed = 0
    steps: int | None = Field(
        None, ge=1, le=10_000, strict=True, description="network calls; the model's choice if none"
    )
    evaluate: bool = Field(True, description="also measure the cohort and write a report")

    @model_validator(mode="after")
    def _method_needs_a_condition(self) -> Self:
        if self.method != "auto" and self.conditions.is_empty:
            raise ValueError(f"method '{self.method}' says how to meet conditions, but there are none")
        return self


class DatasetForm(Request):
    """The fields beside the files of an upload."""

    name: Name | None = Field(None, description="shown in lists; the first file's name if left out")
    format: Literal["auto", "long.csv", "long.parquet"] = Field("auto", description="`auto` looks at the first bytes")
    rollup: Literal["none"] = Field("none", description="how codes are grouped")
    default_vocabulary: Annotated[Name, Field(max_length=40)] | None = Field(
        None, description="put before codes when there is no vocabulary column"
    )
    min_records: int = Field(11, ge=1, le=2**31, description="codes in fewer records than this are dropped")
    holdout_share: float = Field(0.1, ge=0, lt=0.5, allow_inf_nan=False)
    test_share: float = Field(0.1, ge=0, lt=0.5, allow_inf_nan=False)


class EvaluateRequest(Request):
    """Measure a finished cohort, again or against other real records."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "cohort_id": "job_0123456789abcdef0123456789abcdef",
                    "dataset_id": "ds_0123456789abcdef0123456789abcdef",
                    "labels": ["ICD10CM:E84", "ICD10CM:J4*"],
                }
            ]
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

    model_config = ConfigDict(json_schema_extra={"examples": [{"reason": "for internal tests on this machine only"}]})

    reason: Annotated[PlainText, Field(min_length=3, max_length=500, description="kept in the audit trail")]
