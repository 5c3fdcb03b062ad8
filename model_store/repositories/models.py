"""Models: what train jobs have given."""

from sqlalchemy import select

from model_store.ids import MODEL, checked_id
from model_store.layout import model_folder
from model_store.repositories.base import Page, Repository
from model_store.repositories.discards import DiscardRepository
from model_store.tables import Model


class ModelRepository(Repository):
    def add(self, model: Model) -> None:
        self._insert(model)

    def get(self, owner: str, model_id: str) -> Model:
        """The owner's model, or NotFoundError."""
        query = select(Model).where(Model.id == checked_id(model_id, MODEL), Model.owner == owner)
        model: Model = self._one(query, "model")
        return model

    def page(self, owner: str, cursor: str | None = None, limit: int = 50) -> Page[Model]:
        query = select(Model).where(Model.owner == owner)
        return self._page(query, Model.created_at, Model.id, cursor, limit)

    def delete(self, owner: str, model_id: str) -> None:
        """Remove it; its files go when a sweeper comes by. Cohorts made from it stay."""
        self.session.delete(self.get(owner, model_id))
        DiscardRepository(self.session).add(model_folder(model_id))
