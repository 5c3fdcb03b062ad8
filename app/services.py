"""What requests work with, opened once per process."""

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from app.denials import Denials
from app.failed_logins import FailedLogins
from app.metrics import Metrics
from app.recent_reads import RecentReads
from app.stored_forms import StoredForms
from ehr.audits import ReferenceFacts
from ehr.generators import history_generator_names, spec_named
from ehr.groups import Groups
from ehr.histories import Histories
from ehr.history_support import HistoryReference
from ehr.rules import Rules
from ehr.support import ReferenceCohort
from ehr.vocabulary import Vocabulary
from model_store.blobs import BlobStore, open_store
from model_store.bundles import load_reference
from model_store.database import Database
from model_store.manifests import DatasetManifest, ModelManifest, vocabulary_in
from model_store.repositories.base import OwnedRepository, Row
from model_store.tables import Dataset, Model
from runtime.broker import Broker
from runtime.settings import Settings
from runtime.sweeper import Sweeper
from runtime.webhooks import WebhookSender
from worker.contract import ROUTES

log = logging.getLogger(__name__)
CLOSE_SECONDS = 2.0
REMEMBERED_VOCABULARIES = 16
REMEMBERED_REFERENCES = 4  # each holds a number for every code of every record that a model drew


@dataclass(frozen=True)
class ModelFacts:
    """What requests are held against."""

    vocabulary: Vocabulary
    timesteps: int | None  # the most network calls for a record; None: there is no limit
    rules: Rules  # what no record breaks, with the groups of codes of which one holds
    reference: ReferenceFacts | None  # of the records it drew once; None: a version before drew none
    most_visits: int | None = None  # that a patient of a model of histories can have; None: not known


@dataclass(frozen=True)
class CodeCounts:
    """The codes of a dataset and their counts; None where a count may not be shown."""

    vocabulary: Vocabulary
    counts: tuple[int | None, ...]


class Services:
    """The database, the store, the broker and the sweeper of this process."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.database = Database(settings.resolved_database_url, timeouts=settings.database_timeouts)
        self.store: BlobStore = open_store(settings.resolved_store_url, settings.scratch_dir)
        self.broker = Broker(settings.resolved_redis_url)
        self.metrics = Metrics(self.database)
        self.tracer = settings.tracer
        self.denials = Denials(self.database)
        self.webhooks = WebhookSender(self.database, settings.webhooks_private, settings.sweep_seconds)
        self.forms = StoredForms(self.database, self.store)
        self.recent_reads = RecentReads()
        self.failed_logins = FailedLogins(settings.failed_logins)
        self.sweeper = Sweeper(self.database, self.broker, self.store, ROUTES, settings)
        # What lies under a manifest's hash never changes, so it can be remembered without ever being wrong.
        self._facts = lru_cache(REMEMBERED_VOCABULARIES)(self._load_facts)
        self._code_counts = lru_cache(REMEMBERED_VOCABULARIES)(self._load_code_counts)
        self._reference = lru_cache(REMEMBERED_REFERENCES)(self._load_reference)
        self._reference_lock = threading.Lock()

    def row(self, repository: type[OwnedRepository[Row]], owner: str, row_id: str) -> Row:
        """The owner's row of that table, or NotFoundError."""
        with self.database.read_scope() as session:
            return repository(session).get(owner, row_id)

    def facts_of(self, model: Model) -> ModelFacts:
        """The codes a model knows, and how many network calls it can make."""
        return self._facts(model.prefix, model.manifest_hash, model.generator)

    def reference_of(self, model: Model) -> ReferenceCohort | None:
        """The records that a model drew once, by code; None if there are none that may be asked about."""
        found = self._reference_of(model)
        return found if isinstance(found, ReferenceCohort) else None

    def patients_of(self, model: Model) -> HistoryReference | None:
        """The same of a model of histories: the patients that it drew once."""
        found = self._reference_of(model)
        return found if isinstance(found, HistoryReference) else None

    def _reference_of(self, model: Model) -> ReferenceCohort | HistoryReference | None:
        facts = self.facts_of(model).reference
        if facts is None or not facts.may_be_told:
            return None
        with self._reference_lock:  # two requests must not load the same one twice
            return self._reference(model.prefix, model.manifest_hash, facts.training_records)

    def codes_of(self, dataset: Dataset) -> CodeCounts:
        """The codes of a dataset with the counts that may be shown."""
        return self._code_counts(dataset.prefix, dataset.manifest_hash)

    def check_codes(self, dataset: Dataset, patterns: Sequence[str]) -> None:
        """UnknownCodeError unless the dataset has every code or a match for every wildcard."""
        vocabulary = self.codes_of(dataset).vocabulary
        for pattern in patterns:
            vocabulary.read(pattern)

    def close(self) -> None:
        """Within CLOSE_SECONDS, whatever does not answer: a database, a broker or a collector may be silent for ever,
        and none of them is waited for because of another. What is left undone is done by other processes."""
        steps = [
            threading.Thread(target=step, name=f"closing {name}", daemon=True)
            for name, step in {
                "sweeper": self.sweeper.stop,
                "webhooks": self.webhooks.stop,
                "denials": self.denials.flush,
                "traces": self.tracer.close,
            }.items()
        ]
        deadline = time.monotonic() + CLOSE_SECONDS
        for step in steps:
            step.start()
        for step in steps:
            step.join(max(0.0, deadline - time.monotonic()))
        if silent := [step.name for step in steps if step.is_alive()]:
            log.warning("stopped without waiting any longer", extra={"waiting": ", ".join(silent)})
        self.broker.close()
        self.database.close()

    def _load_facts(self, prefix: str, manifest_hash: str, generator: str) -> ModelFacts:
        manifest = ModelManifest.read(self.store, prefix, manifest_hash)
        calls = spec_named(generator).most_calls(manifest.config.get("settings", {}))
        # the groups of a model of histories are of its own tokens, among them gaps
        known = [] if generator in history_generator_names() else manifest.config.get("groups", [])
        groups = Groups.from_json(known, range(len(manifest.vocabulary)))
        rules = Rules.from_json(manifest.config.get("rules", {}), groups)
        drawn, most_visits = ReferenceFacts.of({"reference": manifest.reference}), manifest.config.get("most_visits")
        return ModelFacts(vocabulary_in(manifest), calls, rules, drawn, most_visits)

    def _load_reference(
        self, prefix: str, manifest_hash: str, training_records: int
    ) -> ReferenceCohort | HistoryReference:
        drawn = load_reference(self.store, prefix, manifest_hash)
        if isinstance(drawn, Histories):
            return HistoryReference(drawn, training_records)
        return ReferenceCohort(drawn, training_records)

    def _load_code_counts(self, prefix: str, manifest_hash: str) -> CodeCounts:
        manifest = DatasetManifest.read(self.store, prefix, manifest_hash)
        return CodeCounts(vocabulary_in(manifest), manifest.shown_counts)
