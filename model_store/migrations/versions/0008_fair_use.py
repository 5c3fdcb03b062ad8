"""owners with limits, priorities, and how long jobs have waited and run"""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

revision: str = "0008"
down_revision: str | None = "0007"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def added() -> dict[str, list[sa.Column[Any]]]:
    """Columns by table; made anew each time, because a column belongs to one table."""
    return {
        "datasets": [sa.Column("bytes", sa.BigInteger(), nullable=True)],
        "cohorts": [sa.Column("bytes", sa.BigInteger(), nullable=True)],
        "models": [sa.Column("bytes", sa.BigInteger(), nullable=True)],
        "jobs": [
            sa.Column("priority", sa.Integer(), server_default="0", nullable=False),
            sa.Column("ran_seconds", sa.Double(), server_default="0", nullable=False),
        ],
        "outbox": [
            sa.Column("queued_at", sa.Double(), nullable=True),
            sa.Column("room_until", sa.Double(), nullable=True),
        ],
    }


def upgrade() -> None:
    op.create_table(
        "owners",
        sa.Column("owner", sa.String(length=64), nullable=False),
        sa.Column("weight", sa.Double(), nullable=False),
        sa.Column("began", sa.Double(), nullable=False),
        sa.Column("used", sa.Double(), nullable=False),
        sa.Column("queued_jobs", sa.Integer(), nullable=True),
        sa.Column("running_jobs", sa.Integer(), nullable=True),
        sa.Column("queued_records", sa.BigInteger(), nullable=True),
        sa.Column("stored_bytes", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("owner", name=op.f("pk_owners")),
    )
    op.create_table(
        "job_counts",
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("what", sa.String(length=20), nullable=False),
        sa.Column("times", sa.BigInteger(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "what", name=op.f("pk_job_counts")),
    )
    for table, columns in added().items():
        for column in columns:
            op.add_column(table, column)


def downgrade() -> None:
    for table, columns in added().items():
        with op.batch_alter_table(table) as batch:
            for column in columns:
                batch.drop_column(column.name)
    op.drop_table("job_counts")
    op.drop_table("owners")
