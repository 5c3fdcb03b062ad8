"""Models: what train jobs have given."""

from typing import Any

from sqlalchemy import select

from ehr.shareable import ModelReport
from model_store.ids import MODEL
from model_store.layout import model_folder
from model_store.repositories.base import OwnedRepository
from model_store.repositories.discards import DiscardRepository
from model_store.repositories.withholding import WithholdingRepository
from model_store.tables import Model


class ModelRepository(OwnedRepository[Model]):
    table, id_column, id_kind = Model, "id", MODEL

    def remember_report(self, owner: str, model_id: str, said: ModelReport) -> None:
        """What a report on an unconditional cohort said is what the model is known for, unless that of a cohort at
        least as large is. A model that is gone is known for nothing."""
        mine = (Model.owner == owner, Model.id == model_id)
        model = self.session.scalar(select(Model).where(*mine).with_for_update())
        if model is None:
            return
        known = ModelReport.of(model.details)
        if known is None or known.records < said.records:
            model.details = model.details | {"report": said.model_dump(mode="json")}
            self.session.flush()

    def describe(self, owner: str, model_id: str, name: str | None, **words: Any) -> Model:
        """Change what people call it and say about it; None: as it is."""
        self.get(owner, model_id)
        model = self.session.scalars(select(Model).where(Model.id == model_id).with_for_update()).one()
        model.name = model.name if name is None else name
        model.details = model.details | {key: value for key, value in words.items() if value is not None}
        self.session.flush()
        return model

    def delete(self, owner: str, model_id: str) -> None:
        """Remove it; its files go when a sweeper comes by. Cohorts made from it stay, as withheld as they were."""
        model = self.get(owner, model_id)
        WithholdingRepository(self.session).note_end_of(model)
        self.session.delete(model)
        DiscardRepository(self.session).add(model_folder(model_id))
