"""What the manifests of datasets, models and cohorts say.

A manifest's hash covers its bytes, so `stored` gives back exactly the keys that were set or read: a default that was
never stored stays away, and a key that this version does not know is kept.
"""

from collections.abc import Iterable
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, field_serializer

from ehr.conditions import AskedCondition, AskedTarget
from ehr.errors import CorruptError
from ehr.formats.concepts import CodeConcepts
from ehr.history_conditions import AskedHistoryCondition
from ehr.labs import LabCurve
from ehr.vocabulary import Vocabulary
from model_store.blobs import BlobStore
from model_store.files import CDM, read_file, read_manifest


class Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow")

    def stored(self, without: Iterable[str] = ()) -> dict[str, Any]:
        """As plain JSON."""
        return self.model_dump(exclude_unset=True, exclude=set(without))


class Manifest(Stored):
    """What covers a folder, or the parts of a cohort."""

    FORMAT: ClassVar[str]
    VERSION: ClassVar[int] = 1

    format: str
    version: int
    vocabulary: tuple[str, ...]
    vocabulary_hash: str
    names: dict[str, str] = {}  # of codes, those of labs without their deciles; see ehr/codes/names.py

    @classmethod
    def of(cls, vocabulary: Vocabulary, **said: Any) -> Self:
        """A new one, of the present version."""
        codes: dict[str, Any] = {"vocabulary": vocabulary.codes, "vocabulary_hash": vocabulary.hash}
        if vocabulary.names:
            codes["names"] = dict(vocabulary.names)
        return cls.model_validate({"format": cls.FORMAT, "version": cls.VERSION, **codes, **said})

    @classmethod
    def read(cls, store: BlobStore, folder: str, sha256: str) -> Self:
        """The manifest of a folder, verified; CorruptError if it was changed."""
        return cls.model_validate(read_manifest(store, folder, sha256, cls.FORMAT, cls.VERSION))


class DatasetManifest(Manifest):
    FORMAT = "ehr-d3pm dataset"

    data_hash: str
    test_share: float
    holdout_share: float
    may_be_attacked: bool = True  # False: its terms forbid experiments in re-identification
    shown_counts: tuple[int | None, ...]  # of each code; None where the count may not be shown
    summary: dict[str, Any]
    lab_cut_points: dict[str, tuple[float, ...]] = {}
    lab_curves: dict[str, LabCurve] = {}
    concepts: dict[str, CodeConcepts] = {}  # of codes, where the upload had a concept table
    groups: list[dict[str, Any]] = []  # codes of which exactly one or at most one is in a record
    rules: dict[str, list[list[int]]] = {}  # pairs of codes that no record has, by their places in the vocabulary
    files: dict[str, str] = {}  # name -> sha256

    @field_serializer("concepts")
    def _concepts(self, concepts: dict[str, CodeConcepts]) -> dict[str, Any]:
        return {code: known.as_json() for code, known in concepts.items()}

    @property
    def curves(self) -> dict[str, LabCurve]:
        """Of every lab that became deciles, also where only cut points were stored."""
        return {lab: LabCurve.between(cuts) for lab, cuts in self.lab_cut_points.items()} | self.lab_curves


class ModelManifest(Manifest):
    FORMAT = "ehr-d3pm model"

    config: dict[str, Any]  # the generator's own
    libraries: dict[str, str]
    dataset_id: str | None = None
    data_hash: str | None = None
    seed: int | None = None
    preset: str | None = None
    preset_reason: str | None = None
    settings: dict[str, Any] = {}
    test_share: float | None = None
    holdout_share: float | None = None
    curve: list[Any] = []
    costs: dict[str, Any] | None = None
    lab_curves: dict[str, LabCurve] = {}  # of the dataset it learned from
    reference: dict[str, Any] | None = None  # ehr.audits.ReferenceFacts: of the records it drew once; None: it did not
    audit: dict[str, Any] | None = None  # ehr.audits.ModelAudit; None: of an earlier version
    files: dict[str, str] = {}  # name -> sha256


class SourceModel(Stored):
    """The model a cohort was drawn from, and what it had learned from."""

    id: str | None = None
    generator: str | None = None
    manifest_hash: str | None = None
    dataset_id: str | None = None
    data_hash: str | None = None
    test_share: float | None = None
    holdout_share: float | None = None


class CohortPart(Stored):
    number: int
    blob: str
    sha256: str
    bytes: int | None = None
    first_record: int
    n_records: int  # of histories: patients


class CohortManifest(Manifest):
    FORMAT = "ehr-d3pm cohort"

    model: SourceModel
    request: dict[str, Any]  # as it was asked for
    libraries: dict[str, str]
    dates: str
    parts: tuple[CohortPart, ...]  # in order
    warnings: list[str] = []
    resolved: dict[str, Any] = {}  # what the request's `auto` meant
    lab_curves: dict[str, LabCurve] = {}  # the model's: its records' decile codes become numbers by them
    origin: str | None = (
        None  # of histories: the day of all first visits, as 2000-01-31; None where records have no time
    )
    files: dict[str, str] = {}  # name -> sha256, of what lies beside it

    @property
    def condition(self) -> AskedCondition:
        return AskedCondition.model_validate(self.request.get("conditions") or {})

    @property
    def history(self) -> AskedHistoryCondition | None:
        """What was asked of patients over time; None if nothing was."""
        asked = AskedHistoryCondition.model_validate(self.request.get("history") or {})
        return None if asked == AskedHistoryCondition() else asked

    @property
    def targets(self) -> list[AskedTarget]:
        return [AskedTarget.model_validate(target) for target in self.request.get("targets") or []]


def stored_cdm(
    store: BlobStore, folder: str, manifest: DatasetManifest | ModelManifest | CohortManifest
) -> bytes | None:
    """The `SourceCdm` that lies in the folder, verified; None if there is none."""
    return read_file(store, folder, manifest.files, CDM) if CDM in manifest.files else None


def vocabulary_in(manifest: Manifest) -> Vocabulary:
    """The codes and their names, if the codes are the ones their hash belongs to; CorruptError otherwise."""
    vocabulary = Vocabulary(manifest.vocabulary, manifest.names)
    if vocabulary.hash != manifest.vocabulary_hash:
        raise CorruptError("the vocabulary is not the one its hash belongs to")
    return vocabulary
