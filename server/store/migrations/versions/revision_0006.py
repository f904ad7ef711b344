"""Trials on few nodes that stand for more: which they are, and why a campaign has them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("campaigns", sa.Column("screening", sa.JSON(), nullable=True))
    op.add_column("trials", sa.Column("stands_for_nodes", sa.Integer(), nullable=True))


def downgrade() -> None:
    op.drop_column("trials", "stands_for_nodes")
    op.drop_column("campaigns", "screening")
