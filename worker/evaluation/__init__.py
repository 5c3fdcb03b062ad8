"""From a cohort and real records to a report: measure every family, then show what may be shown."""

from worker.evaluation.labels import DEFAULT_LABELS, labels_in
from worker.evaluation.report import ReportPlan
from worker.evaluation.subject import Subject

__all__ = ["DEFAULT_LABELS", "ReportPlan", "Subject", "labels_in"]
