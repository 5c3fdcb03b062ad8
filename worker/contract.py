"""What the API and the workers agree on: task names, queues, payloads and steps. Imports no mathematics.

A payload is stored in the job's row; a message carries the job's id and nothing else.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ehr.codes.rollups import ROLLUPS
from ehr.conditions import MOST_TARGETS, AskedCondition, AskedTarget
from ehr.formats.read import AUTO, READERS
from ehr.generators import DEFAULT_GENERATOR, GENERATORS, HISTORY_GENERATORS
from ehr.groups import DeclaredGroup
from ehr.history_conditions import AskedHistoryCondition
from ehr.references import Sink, Source

Kind = Literal["ingest", "train", "generate", "evaluate", "export"]
KINDS: tuple[str, ...] = get_args(Kind)
TASKS = {kind: f"ehr_d3pm.{kind}" for kind in KINDS}
# Asks a worker to take parts of a running generate job; losing it only costs time.
HELP_TASK = "ehr_d3pm.generate_parts"

# kind of job -> queue; a worker takes jobs from the queues it is started with. Exports go where uploads go: both move
# records and compute nothing.
QUEUES = {kind: kind for kind in TASKS} | {"export": "ingest"}
# kind of job -> (task, queue)
ROUTES: dict[str, tuple[str, str]] = {kind: (TASKS[kind], QUEUES[kind]) for kind in TASKS}

# kind of job -> its steps, in order, as they appear in a job's progress (`steps_of`)
_STEPS: dict[str, tuple[str, ...]] = {
    "ingest": ("read", "encode", "store"),
    "train": ("load", "train", "calibrate", "audit", "draw", "store"),
    "generate": ("load", "generate", "store"),
    "evaluate": ("load", "measure", "store"),
    "export": ("load", "write"),
}
_CALIBRATED = {spec.name for spec in (*GENERATORS, *HISTORY_GENERATORS) if spec.is_calibrated}


def steps_of(kind: str, payload: Mapping[str, Any]) -> tuple[str, ...]:
    """The steps of a job; records that were not uploaded are fetched first, and not every generator is calibrated."""
    if kind == "ingest" and payload.get("source") is not None:
        return ("fetch", *_STEPS[kind])
    if kind == "train" and payload.get("generator", DEFAULT_GENERATOR) not in _CALIBRATED:
        return tuple(step for step in _STEPS[kind] if step != "calibrate")
    return _STEPS[kind]


# The names of the registries: a new reader or roll-up needs no line here.
if TYPE_CHECKING:
    FormatName = str
    RollupName = str
else:
    FormatName = Literal[AUTO, *(reader.name for reader in READERS)]
    RollupName = Literal[*ROLLUPS]

# How conditions are met: `auto` leaves the choice to the service.
MethodName = Literal["auto", "exact", "langevin", "rejection"]
SamplingName = Literal["auto", "dealt", "independent"]  # how records come to be: ehr/generators/spec.py
UNCONDITIONAL = "unconditional"  # what generating without conditions costs stands under this name in a model's costs
MOST_MINUTES = 60 * 24 * 30
Name = Field(min_length=1, max_length=200)


class Payload(BaseModel):
    """What a later version adds to a payload has a default and is passed over here: while versions are exchanged, an
    API of one stands beside workers of the other. What a cohort must satisfy is not passed over: `AskedCondition`,
    `AskedTarget` and the settings of generators refuse what they do not know."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    def stored(self) -> dict[str, Any]:
        """As plain JSON for the job's row."""
        return self.model_dump(mode="json")


class UploadedFile(Payload):
    """A file the API has streamed into the store under `layout.upload_blob(upload_id)`."""

    upload_id: str
    size: int = Field(ge=0)
    label: str = Field("", max_length=200, description="the client's name for it, shown and never used as a path")


class IngestPayload(Payload):
    """Make a dataset from files of one of the formats of ehr/formats/read: uploaded ones, or what lies at `source` and
    is fetched into the folder of the upload `fetch_id`."""

    dataset_id: str
    name: str = Name
    files: list[UploadedFile] = Field(default_factory=list, max_length=100)
    source: Source | None = None
    fetch_id: str | None = None
    format: FormatName = "auto"
    unit: Literal["auto", "visit", "patient", "history"] = Field(
        "auto", description="what a record is; auto: as the format has it"
    )
    codes_from: Literal["source", "concept"] = Field("source", description="which codes of OMOP tables count")
    demographics: bool = Field(True, description="make codes of sex and age band where they are known")
    birth_years: bool = Field(False, description="of histories: make codes of the ten years of a birth")
    rollup: RollupName = "none"
    default_vocabulary: str | None = Field(
        None, min_length=1, max_length=40, description="put before codes when the upload names no system"
    )
    min_records: int = Field(11, ge=1, description="codes in fewer records than this are dropped")
    holdout_share: float = Field(0.1, ge=0, lt=0.5)
    test_share: float = Field(0.1, ge=0, lt=0.5)
    may_be_attacked: bool = True
    groups: list[DeclaredGroup] = Field(default_factory=list, max_length=100)

    @model_validator(mode="after")
    def _has_records(self) -> Self:
        if bool(self.files) == (self.source is not None) or (self.source is None) != (self.fetch_id is None):
            raise ValueError("records are either uploaded or fetched")
        return self


class TrainPayload(Payload):
    """Train a generator on a dataset's train split."""

    model_id: str
    name: str = Name
    dataset_id: str
    generator: str = Field(DEFAULT_GENERATOR, max_length=40)
    preset: str | None = Field(None, max_length=40, description="settings to start from; None is `auto`")
    settings: dict[str, Any] = Field(default_factory=dict, description="changes to the preset, nested like it")
    seed: int = Field(0, ge=0, lt=2**63)
    holdout_share: float | None = Field(None, gt=0, lt=0.5, description="other than the dataset's own")
    max_minutes: float | None = Field(None, gt=0, le=MOST_MINUTES, description="`auto` chooses what fits into them")

    def stored(self) -> dict[str, Any]:
        """Without a limit that nobody gave: hosts of the version before refuse a field that they do not know."""
        return self.model_dump(mode="json", exclude={"max_minutes"} if self.max_minutes is None else None)


def method_fits(asked: Any) -> Any:
    """ValueError if the method of a request or a payload for a cohort cannot be what was meant."""
    over_time = asked.history not in (None, AskedHistoryCondition())
    if asked.method != "auto" and asked.conditions.is_empty and not asked.targets and not over_time:
        raise ValueError(f"method '{asked.method}' says how to meet conditions, but there are none")
    if asked.method == "langevin" and asked.targets:
        raise ValueError("targets are met by 'exact' or 'rejection'; 'langevin' only makes codes more common")
    return asked


class GeneratePayload(Payload):
    """Draw a cohort. The cohort's id is the job's id."""

    model_id: str
    n: int = Field(ge=1)
    conditions: AskedCondition = Field(default_factory=AskedCondition)
    targets: list[AskedTarget] = Field(default_factory=list, max_length=MOST_TARGETS)
    method: MethodName = "auto"
    strength: float = Field(1.0, ge=0, le=1000, allow_inf_nan=False)
    seed: int = Field(0, ge=0, lt=2**63)
    steps: int | None = Field(None, ge=1, le=10_000)
    sampling: SamplingName = "auto"
    evaluate: bool = True
    against_real: bool = Field(True, description="false: whoever asked for it may not cause work on real records")
    warnings: list[str] = Field(default_factory=list, description="what the service had to say about the request")
    as_asked: dict[str, Any] | None = Field(
        None, description="conditions and targets as they were sent, where those above are written differently"
    )
    history: AskedHistoryCondition | None = Field(None, description="of models of histories: what patients must be")
    origin: str | None = Field(None, pattern=r"^\d{4}-\d\d-\d\d$", description="of histories: the day of first visits")
    _method_fits = model_validator(mode="after")(method_fits)

    def stored(self) -> dict[str, Any]:
        """Without what is as it always was: hosts of the version before refuse a field that they do not know."""
        expected = {"against_real": True, "as_asked": None, "history": None, "origin": None, "sampling": "auto"}
        usual = {name for name, value in expected.items() if getattr(self, name) == value}
        return self.model_dump(mode="json", exclude=usual)


class EvaluatePayload(Payload):
    """Measure the cohort of a finished generate job against a dataset; None is the one its model learned from."""

    cohort_job_id: str
    dataset_id: str | None = None
    labels: list[str] | None = Field(None, max_length=20, description="codes or wildcards to predict; None: defaults")
    seed: int = Field(0, ge=0, lt=2**63)


class ExportPayload(Payload):
    """Write the cohort of a finished generate job to a sink."""

    cohort_job_id: str
    sink: Sink
