"""Models: what train jobs have given."""

from model_store.ids import MODEL
from model_store.layout import model_folder
from model_store.repositories.base import OwnedRepository
from model_store.repositories.discards import DiscardRepository
from model_store.tables import Model


class ModelRepository(OwnedRepository[Model]):
    table, id_column, id_kind = Model, "id", MODEL

    def delete(self, owner: str, model_id: str) -> None:
        """Remove it; its files go when a sweeper comes by. Cohorts made from it stay."""
        self.session.delete(self.get(owner, model_id))
        DiscardRepository(self.session).add(model_folder(model_id))
