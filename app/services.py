"""What requests work with, opened once per process."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

from sqlalchemy.exc import SQLAlchemyError

from app.metrics import Metrics
from model_store import bundles, datasets
from model_store.blobs import BlobStore, open_store
from model_store.broker import Broker
from model_store.database import Database
from model_store.repositories import IdempotencyRepository
from model_store.settings import Settings
from model_store.sweeper import Sweeper
from model_store.tables import Dataset, Model
from model_store.vocabulary import Vocabulary
from worker.contract import ROUTES

REMEMBERED_VOCABULARIES = 16
KEY_SECONDS = 7 * 86_400


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
        self.metrics = Metrics()
        self.metrics.watch_jobs(self.database)
        self.sweeper = Sweeper(self.database, self.broker, self.store, ROUTES, settings)
        # What lies under a manifest's hash never changes, so it can be remembered without ever being wrong.
        self._vocabulary = lru_cache(REMEMBERED_VOCABULARIES)(self._load_vocabulary)
        self._code_counts = lru_cache(REMEMBERED_VOCABULARIES)(self._load_code_counts)

    def vocabulary_of(self, model: Model) -> Vocabulary:
        """The codes a model knows."""
        return self._vocabulary(model.prefix, model.manifest_hash)

    def codes_of(self, dataset: Dataset) -> CodeCounts:
        """The codes of a dataset with the counts that may be shown."""
        return self._code_counts(dataset.prefix, dataset.manifest_hash)

    def known_codes(self, dataset: Dataset, patterns: Sequence[str]) -> None:
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

    def _load_vocabulary(self, prefix: str, manifest_hash: str) -> Vocabulary:
        return bundles.load_vocabulary(self.store, prefix, manifest_hash)

    def _load_code_counts(self, prefix: str, manifest_hash: str) -> CodeCounts:
        manifest = datasets.load_dataset_manifest(self.store, prefix, manifest_hash)
        return CodeCounts(tuple(manifest["vocabulary"]), tuple(manifest["shown_counts"]))
