"""Datasets: what ingest jobs have given."""

from sqlalchemy import select

from model_store.ids import DATASET, checked_id
from model_store.layout import dataset_folder
from model_store.repositories.base import Page, Repository
from model_store.repositories.discards import DiscardRepository
from model_store.tables import Dataset


class DatasetRepository(Repository):
    def add(self, dataset: Dataset) -> None:
        self._insert(dataset)

    def get(self, owner: str, dataset_id: str) -> Dataset:
        """The owner's dataset, or NotFoundError."""
        query = select(Dataset).where(Dataset.id == checked_id(dataset_id, DATASET), Dataset.owner == owner)
        dataset: Dataset = self._one(query, "dataset")
        return dataset

    def page(self, owner: str, cursor: str | None = None, limit: int = 50) -> Page[Dataset]:
        query = select(Dataset).where(Dataset.owner == owner)
        return self._page(query, Dataset.created_at, Dataset.id, cursor, limit)

    def delete(self, owner: str, dataset_id: str) -> None:
        """Remove it; its files go when a sweeper comes by. Models made from it stay."""
        self.session.delete(self.get(owner, dataset_id))
        DiscardRepository(self.session).add(dataset_folder(dataset_id))
