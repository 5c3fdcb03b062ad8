"""What the tables are made of: names of constraints that Alembic can drop, and the types of columns that many have."""

from typing import Any

from sqlalchemy import JSON, BigInteger, Double, Integer, MetaData, String
from sqlalchemy.orm import DeclarativeBase

# Alembic needs names it can drop; these are the ones every database gets.
NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}

ID = String(40)
OWNER = String(64)
HASH = String(64)  # sha256, hexadecimal
# SQLite only counts up by itself in a column declared INTEGER
SERIAL = BigInteger().with_variant(Integer, "sqlite")


class Base(DeclarativeBase):
    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = {dict[str, Any]: JSON, list[str]: JSON, float: Double}  # noqa: RUF012 - SQLAlchemy's way
