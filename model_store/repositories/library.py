"""Datasets, models and reports: what finished jobs have given."""

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from ehr.errors import NotFoundError
from model_store.ids import DATASET, JOB, MODEL, checked_id
from model_store.layout import dataset_folder, model_folder
from model_store.repositories.discards import DiscardRepository
from model_store.repositories.paging import Page, read_page
from model_store.tables import Dataset, Model, Report


class DatasetRepository:
    def __init__(self, session: Session) -> None:
        self.session = session

    def add(self, dataset: Dataset) -> None:
        self.session.add(dataset)
        self.session.flush()

    def get(self, owner: str, dataset_id: str) -> Dataset:
        """The owner's dataset, or NotFoundError."""
        query = select(Dataset).where(Dataset.id == checked_id(dataset_id, DATASET), Dataset.owner == owner)
        dataset = self.session.scalar(query)
        if dataset is None:
            raise NotFoundError("there is no dataset with this id")
        return dataset

    def page(self, owner: str, cursor: str | None = None, limit: int = 50) -> Page[Dataset]:
        query = select(Dataset).where(Dataset.owner == owner)
        return read_page(self.session, query, Dataset.created_at, Dataset.id, cursor, limit)

    def delete(self, owner: str, dataset_id: str) -> None:
        """Remove it; its files go when a sweeper comes by. Models made from it stay."""
        self.session.delete(self.get(owner, dataset_id))
        DiscardRepository(self.session).add(dataset_folder(dataset_id))


class ModelRepository:
    def __init__(self, session: Session) -> None:
        self.session = session

    def add(self, model: Model) -> None:
        self.session.add(model)
        self.session.flush()

    def get(self, owner: str, model_id: str) -> Model:
        """The owner's model, or NotFoundError."""
        query = select(Model).where(Model.id == checked_id(model_id, MODEL), Model.owner == owner)
        model = self.session.scalar(query)
        if model is None:
            raise NotFoundError("there is no model with this id")
        return model

    def page(self, owner: str, cursor: str | None = None, limit: int = 50) -> Page[Model]:
        query = select(Model).where(Model.owner == owner)
        return read_page(self.session, query, Model.created_at, Model.id, cursor, limit)

    def delete(self, owner: str, model_id: str) -> None:
        """Remove it; its files go when a sweeper comes by. Cohorts made from it stay."""
        self.session.delete(self.get(owner, model_id))
        DiscardRepository(self.session).add(model_folder(model_id))


class ReportRepository:
    def __init__(self, session: Session) -> None:
        self.session = session

    def add(self, report: Report) -> None:
        self.session.add(report)
        self.session.flush()

    def newest(self, owner: str, job_id: str) -> Report:
        """The report of the evaluate job with this id; or on the cohort of the generate job, the newest that judges its
        privacy, so that a report on other data hides nothing, or else the newest."""
        checked_id(job_id, JOB)
        mine = (Report.owner == owner, or_(Report.job_id == job_id, Report.cohort_job_id == job_id))
        order = (Report.privacy.is_(None), Report.created_at.desc())
        report = self.session.scalar(select(Report).where(*mine).order_by(*order).limit(1))
        if report is None:
            raise NotFoundError("there is no report for this job")
        return report
