"""what cohorts were asked for, in one form for all wordings"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0003"
down_revision: str | None = "0002"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def upgrade() -> None:
    op.create_table(
        "cohort_requests",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=False),
        sa.Column("model_id", sa.String(length=40), nullable=False),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("withholds", sa.Text(), nullable=True),
        sa.Column("model_withholds", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_cohort_requests")),
    )
    with op.batch_alter_table("cohort_requests", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_cohort_requests_model_id"), ["model_id"], unique=False)


def downgrade() -> None:
    op.drop_table("cohort_requests")
