"""Power of a trial's nodes over time."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("trials", sa.Column("power", sa.JSON(), nullable=True))


def downgrade() -> None:
    op.drop_column("trials", "power")
