"""Trials that run with fewer layers than their model has."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("trials", sa.Column("num_layers", sa.Integer(), nullable=True))


def downgrade() -> None:
    op.drop_column("trials", "num_layers")
