"""privacy level of reports; releases of withheld cohorts"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0002"
down_revision: str | None = "0001"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def upgrade() -> None:
    with op.batch_alter_table("reports", schema=None) as batch_op:
        batch_op.add_column(sa.Column("privacy", sa.String(length=20), nullable=True))
        batch_op.add_column(sa.Column("withholds", sa.Text(), nullable=True))
    op.create_table(
        "releases",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("cohort_job_id", sa.String(length=40), nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=False),
        sa.Column("key_prefix", sa.String(length=16), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_releases")),
    )
    with op.batch_alter_table("releases", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_releases_cohort_job_id_created_at"), ["cohort_job_id", "created_at"], unique=False
        )


def downgrade() -> None:
    op.drop_table("releases")
    with op.batch_alter_table("reports", schema=None) as batch_op:
        batch_op.drop_column("withholds")
        batch_op.drop_column("privacy")
