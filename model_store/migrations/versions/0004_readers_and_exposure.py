"""two readers of reports; exposure of models, and caps of keys"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0004"
down_revision: str | None = "0003"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def upgrade() -> None:
    with op.batch_alter_table("reports", schema=None) as batch_op:
        # the default is the database's: workers of the version before write reports that name no reader
        batch_op.add_column(sa.Column("reader", sa.String(length=20), server_default="custodian", nullable=False))
    with op.batch_alter_table("api_keys", schema=None) as batch_op:
        batch_op.add_column(sa.Column("caps", sa.JSON(), nullable=True))
    op.create_table(
        "exposures",
        sa.Column("model_id", sa.String(length=40), nullable=False),
        sa.Column("holder", sa.String(length=16), nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=False),
        sa.Column("requests", sa.Integer(), nullable=False),
        sa.Column("records", sa.BigInteger(), nullable=False),
        sa.Column("conditions", sa.Integer(), nullable=False),
        sa.Column("small_conditions", sa.Integer(), nullable=False),
        sa.Column("first_at", sa.Double(), nullable=False),
        sa.Column("last_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("model_id", "holder", name=op.f("pk_exposures")),
    )
    with op.batch_alter_table("exposures", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_exposures_owner_model_id"), ["owner", "model_id"], unique=False)
    op.create_table(
        "exposed_conditions",
        sa.Column("model_id", sa.String(length=40), nullable=False),
        sa.Column("holder", sa.String(length=16), nullable=False),
        sa.Column("condition", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("model_id", "holder", "condition", name=op.f("pk_exposed_conditions")),
    )


def downgrade() -> None:
    op.drop_table("exposed_conditions")
    with op.batch_alter_table("exposures", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_exposures_owner_model_id"))
    op.drop_table("exposures")
    with op.batch_alter_table("api_keys", schema=None) as batch_op:
        batch_op.drop_column("caps")
    op.execute("DELETE FROM reports WHERE reader = 'shareable'")  # the version before knows one kind of report
    with op.batch_alter_table("reports", schema=None) as batch_op:
        batch_op.drop_column("reader")
