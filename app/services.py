"""What requests work with, opened once per process."""

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

from sqlalchemy.exc import SQLAlchemyError

from app.metrics import Metrics
from ehr.errors import NotFoundError
from ehr.generators import generator_spec
from ehr.groups import Groups
from ehr.support import TrainingIndex
from ehr.vocabulary import Vocabulary
from model_store import datasets
from model_store.blobs import BlobStore, open_store
from model_store.database import Database
from model_store.manifests import DatasetManifest, ModelManifest, vocabulary_in
from model_store.repositories import DatasetRepository, IdempotencyRepository
from model_store.repositories.base import OwnedRepository, Row
from model_store.tables import Dataset, Model
from runtime.broker import Broker
from runtime.settings import Settings
from runtime.sweeper import Sweeper
from worker.contract import ROUTES

REMEMBERED_VOCABULARIES = 16
REMEMBERED_INDEXES = 2  # each holds a number for every code of every training record
KEY_SECONDS = 7 * 86_400


@dataclass(frozen=True)
class ModelFacts:
    """What requests are held against."""

    vocabulary: Vocabulary
    timesteps: int | None  # the most network calls for a record; None: there is no limit
    groups: Groups  # codes of which one holds


@dataclass(frozen=True)
class CodeCounts:
    """The codes of a dataset and their counts; None where a count may not be shown."""

    codes: tuple[str, ...]
    counts: tuple[int | None, ...]


class Services:
    """The database, the store, the broker and the sweeper of this process."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.database = Database(settings.resolved_database_url)
        self.store: BlobStore = open_store(settings.resolved_store_url)
        self.broker = Broker(settings.resolved_redis_url)
        self.metrics = Metrics(self.database)
        self.sweeper = Sweeper(self.database, self.broker, self.store, ROUTES, settings)
        # What lies under a manifest's hash never changes, so it can be remembered without ever being wrong.
        self._facts = lru_cache(REMEMBERED_VOCABULARIES)(self._load_facts)
        self._code_counts = lru_cache(REMEMBERED_VOCABULARIES)(self._load_code_counts)
        self._index = lru_cache(REMEMBERED_INDEXES)(self._load_index)
        self._index_lock = threading.Lock()

    def row(self, repository: type[OwnedRepository[Row]], owner: str, row_id: str) -> Row:
        """The owner's row of that table, or NotFoundError."""
        with self.database.read_scope() as session:
            return repository(session).get(owner, row_id)

    def facts_of(self, model: Model) -> ModelFacts:
        """The codes a model knows, and how many network calls it can make."""
        return self._facts(model.prefix, model.manifest_hash, model.generator)

    def training_index_of(self, model: Model) -> TrainingIndex | None:
        """The records a model learned from, by code; None if they are gone."""
        try:
            dataset = self.row(DatasetRepository, model.owner, model.dataset_id)
        except NotFoundError:
            return None
        if dataset.vocabulary_hash != self.facts_of(model).vocabulary.hash:
            return None
        with self._index_lock:  # two requests must not load a large dataset twice
            return self._index(dataset.prefix, dataset.manifest_hash, model.details.get("holdout_share"))

    def codes_of(self, dataset: Dataset) -> CodeCounts:
        """The codes of a dataset with the counts that may be shown."""
        return self._code_counts(dataset.prefix, dataset.manifest_hash)

    def check_codes(self, dataset: Dataset, patterns: Sequence[str]) -> None:
        """UnknownCodeError unless the dataset has every code or a match for every wildcard."""
        vocabulary = Vocabulary(self.codes_of(dataset).codes)
        for pattern in patterns:
            vocabulary.matching(pattern)

    def forget_old_keys(self) -> None:
        """Idempotency-Keys are for retries of a request, not for ever."""
        with suppress(SQLAlchemyError), self.database.session_scope() as session:
            IdempotencyRepository(session).forget_older_than(KEY_SECONDS)

    def close(self) -> None:
        self.sweeper.stop()
        self.broker.close()
        self.database.close()

    def _load_facts(self, prefix: str, manifest_hash: str, generator: str) -> ModelFacts:
        manifest = ModelManifest.read(self.store, prefix, manifest_hash)
        calls = generator_spec(generator).most_calls(manifest.config.get("settings", {}))
        groups = Groups.from_json(manifest.config.get("groups", []), range(len(manifest.vocabulary)))
        return ModelFacts(vocabulary_in(manifest), calls, groups)

    def _load_index(self, prefix: str, manifest_hash: str, holdout_share: float | None) -> TrainingIndex:
        dataset = datasets.load_dataset(self.store, prefix, manifest_hash)
        return TrainingIndex(dataset.split("train", holdout_share))

    def _load_code_counts(self, prefix: str, manifest_hash: str) -> CodeCounts:
        manifest = DatasetManifest.read(self.store, prefix, manifest_hash)
        return CodeCounts(manifest.vocabulary, manifest.shown_counts)
