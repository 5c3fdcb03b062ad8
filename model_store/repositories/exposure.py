"""How much each key has had of each model, and how much it may have."""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from ehr.errors import ExposureError
from model_store.clock import now
from model_store.repositories.base import Repository
from model_store.tables import ExposedCondition, Exposure

COUNTED = ("records", "conditions", "small_conditions")


@dataclass(frozen=True)
class Asked:
    """How much of a model a submission exposes. `condition` is the hash of its canonical form, None without conditions;
    `is_small`: by the model's own records, hardly any patient satisfies it."""

    model_id: str
    records: int
    condition: str | None = None
    is_small: bool = False


class ExposureRepository(Repository):
    def count(self, owner: str, holder: str, asked: Asked, caps: Mapping[str, int | None] | None = None) -> Exposure:
        """Add a submission to what the holder of a key has had of a model; ExposureError, and nothing added, if that
        would be more than a cap. To be called in the transaction that submits: the row is locked until its end, so of
        two submissions that come together the second finds the first one counted."""
        row = self._locked(owner, asked.model_id, holder)
        is_new = asked.condition is not None and self._remember(asked.model_id, holder, asked.condition)
        added = (asked.records, int(is_new), int(is_new and asked.is_small))
        for name, more in zip(COUNTED, added, strict=True):
            used, cap = getattr(row, name), (caps or {}).get(name)
            if more > 0 and cap is not None and used + more > cap:
                raise ExposureError(name, cap, used, more)
            setattr(row, name, used + more)
        row.requests += 1
        row.last_at = now()
        self.session.flush()
        return row

    def of_model(self, owner: str, model_id: str, holder: str | None = None) -> list[Exposure]:
        """By key, the most exposed first; or of one of them."""
        query = select(Exposure).where(Exposure.owner == owner, Exposure.model_id == model_id)
        if holder is not None:
            query = query.where(Exposure.holder == holder)
        return list(self.session.scalars(query.order_by(Exposure.conditions.desc(), Exposure.holder)))

    def _locked(self, owner: str, model_id: str, holder: str) -> Exposure:
        values = {"model_id": model_id, "holder": holder, "owner": owner}
        zeros = dict.fromkeys(("requests", *COUNTED), 0)
        self._insert_once(Exposure, values | zeros | {"first_at": now(), "last_at": now()})
        query = select(Exposure).filter_by(model_id=model_id, holder=holder).with_for_update()
        return self.session.scalars(query.execution_options(populate_existing=True)).one()

    def _remember(self, model_id: str, holder: str, condition: str) -> bool:
        """Whether the holder of the key asks for this condition for the first time."""
        values = {"model_id": model_id, "holder": holder, "condition": condition, "created_at": now()}
        return self._insert_once(ExposedCondition, values)

    def _insert_once(self, table: type[Exposure] | type[ExposedCondition], values: Mapping[str, object]) -> bool:
        insert = postgresql_insert if self.session.get_bind().dialect.name == "postgresql" else sqlite_insert
        query = insert(table).values(**values).on_conflict_do_nothing()
        return self.session.scalar(query.returning(table.model_id)) is not None
