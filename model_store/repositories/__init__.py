"""Reads and writes of the tables. A repository takes a session and never commits; the unit of work does.

Whatever belongs to someone is asked for with its owner: another owner's row is as absent as one that never was.
"""

from model_store.repositories.access import KeyRepository
from model_store.repositories.audit import AuditRepository
from model_store.repositories.base import Page
from model_store.repositories.cohorts import CohortRepository, PartClaim
from model_store.repositories.counts import CountRepository
from model_store.repositories.datasets import DatasetRepository
from model_store.repositories.discards import DiscardRepository
from model_store.repositories.erasure import ErasureRepository
from model_store.repositories.exposure import ExposureRepository
from model_store.repositories.idempotency import IdempotencyRepository
from model_store.repositories.jobs import TERMINAL_STATES, JobRepository
from model_store.repositories.leases import Claim, LeaseRepository
from model_store.repositories.models import ModelRepository
from model_store.repositories.outbox import OutboxRepository
from model_store.repositories.owners import OwnerRepository
from model_store.repositories.reports import ReportRepository
from model_store.repositories.retention import RetentionRepository
from model_store.repositories.sessions import SessionRepository
from model_store.repositories.turns import TurnRepository
from model_store.repositories.webhooks import DeliveryRepository, WebhookRepository
from model_store.repositories.withholding import WithholdingRepository

__all__ = [
    "TERMINAL_STATES",
    "AuditRepository",
    "Claim",
    "CohortRepository",
    "CountRepository",
    "DatasetRepository",
    "DeliveryRepository",
    "DiscardRepository",
    "ErasureRepository",
    "ExposureRepository",
    "IdempotencyRepository",
    "JobRepository",
    "KeyRepository",
    "LeaseRepository",
    "ModelRepository",
    "OutboxRepository",
    "OwnerRepository",
    "Page",
    "PartClaim",
    "ReportRepository",
    "RetentionRepository",
    "SessionRepository",
    "TurnRepository",
    "WebhookRepository",
    "WithholdingRepository",
]
