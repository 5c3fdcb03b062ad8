"""From a cohort and real records to a report: measure every family, then tell what may be told."""

from worker.evaluation.labels import DEFAULT_LABELS, labels_in
from worker.evaluation.measure import report_on
from worker.evaluation.subject import Subject

__all__ = ["DEFAULT_LABELS", "Subject", "labels_in", "report_on"]
