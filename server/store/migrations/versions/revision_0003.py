"""Calibrations."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from server.store.columns import UtcDateTime

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

identity = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "calibrations",
        sa.Column("id", identity, nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("machine", sa.Text(), nullable=False),
        sa.Column("figures", sa.JSON(), nullable=False),
        sa.Column("software", sa.Text(), nullable=False),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("observations", sa.Integer(), nullable=False),
        sa.Column("timed", sa.Integer(), nullable=False),
        sa.Column("out_of_memory", sa.Integer(), nullable=False),
        sa.Column("models", sa.JSON(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_calibrations")),
        sa.UniqueConstraint("name", name=op.f("uq_calibrations_name")),
        sqlite_autoincrement=True,
    )


def downgrade() -> None:
    op.drop_table("calibrations")
