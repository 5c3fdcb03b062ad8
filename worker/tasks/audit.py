"""The audit of a trained model: attacks on it, unless the terms of its data forbid them."""

import logging

import numpy as np

from ehr.audits import ModelAudit
from ehr.errors import JobInterruptedError
from ehr.histories import Histories
from ehr.records import Records
from model_store.datasets import StoredDataset
from runtime.logs import place_of
from worker.contract import TrainPayload
from worker.engine.audit import ATTACKS, HISTORY_ATTACKS, audit_histories, audit_model, not_audited
from worker.engine.audit.verdicts import CRASHED
from worker.engine.generators import Generator
from worker.engine.histories.protocol import HistoryGenerator
from worker.execution import JobRun

log = logging.getLogger(__name__)


def audit(
    run: JobRun, payload: TrainPayload, dataset: StoredDataset, generator: Generator | HistoryGenerator
) -> ModelAudit:
    """What the model remembers of its training patients. A training of hours is not lost because its audit crashed, but
    then nothing of the model may leave."""
    over_time = isinstance(generator, HistoryGenerator)
    run.progress.step("audit", len(HISTORY_ATTACKS if over_time else ATTACKS), unit="attacks")
    if not dataset.may_be_attacked:
        return not_audited()

    def watch(attack: str, done: int) -> None:
        run.check()
        run.progress.advance(done, attack=attack)

    # A copy of the splits that training had: what the model has not seen is the holdout and the test records.
    share, rng = payload.holdout_share, np.random.default_rng(payload.seed)
    try:
        if isinstance(generator, HistoryGenerator):
            patients = [dataset.split_histories(name, share) for name in ("holdout", "test")]
            unseen_patients = Histories.concatenate(patients)
            return audit_histories(generator, dataset.split_histories("train", share), unseen_patients, rng, watch)
        unseen = Records.concatenate([dataset.split(name, share) for name in ("holdout", "test")])
        return audit_model(generator, dataset.split("train", share), unseen, rng, watch)
    except JobInterruptedError:
        raise
    except Exception as error:  # whatever it is: without an audit no cohort may leave
        log.error("the audit crashed", extra={"type": type(error).__name__, "at": place_of(error)})
        return not_audited(CRASHED)
