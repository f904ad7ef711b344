"""What was expected of each trial before it ran."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("trials") as trials:
        trials.add_column(sa.Column("expected", sa.JSON(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("trials") as trials:
        trials.drop_column("expected")
