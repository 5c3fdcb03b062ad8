"""how long a turn of an owner takes, for whose job is next"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0009"
down_revision: str | None = "0008"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def upgrade() -> None:
    op.add_column("owners", sa.Column("turn", sa.Double(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("owners") as batch:
        batch.drop_column("turn")
