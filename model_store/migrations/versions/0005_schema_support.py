"""which versions of the code a schema still serves"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0005"
down_revision: str | None = "0004"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def upgrade() -> None:
    # A migration that only adds leaves the row as it is. One that takes away what earlier code uses names the earliest
    # revision whose code does without: op.execute("UPDATE schema_support SET oldest_code = '00nn'").
    table = op.create_table(
        "schema_support",
        sa.Column("oldest_code", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("oldest_code", name=op.f("pk_schema_support")),
    )
    op.bulk_insert(table, [{"oldest_code": "0004"}])


def downgrade() -> None:
    op.drop_table("schema_support")
