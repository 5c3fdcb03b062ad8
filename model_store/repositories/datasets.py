"""Datasets: what ingest jobs have given."""

from model_store.ids import DATASET
from model_store.layout import dataset_folder
from model_store.repositories.base import OwnedRepository
from model_store.repositories.discards import DiscardRepository
from model_store.tables import Dataset


class DatasetRepository(OwnedRepository[Dataset]):
    table, id_column, id_kind = Dataset, "id", DATASET

    def delete(self, owner: str, dataset_id: str) -> None:
        """Remove it; its files go when a sweeper comes by. Models made from it stay."""
        self.session.delete(self.get(owner, dataset_id))
        DiscardRepository(self.session).add(dataset_folder(dataset_id))
