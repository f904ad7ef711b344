"""Notices that are to be sent, and users' addresses."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from server.store.columns import UtcDateTime

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

identity = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("users", sa.Column("email", sa.String(length=254), nullable=True))
    op.create_table(
        "notices",
        sa.Column("id", identity, nullable=False),
        sa.Column("key", sa.String(length=32), nullable=False),
        sa.Column("campaign_id", identity, nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at", UtcDateTime(), nullable=False),
        sa.Column("left", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["campaign_id"],
            ["campaigns.id"],
            name=op.f("fk_notices_campaign_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_notices")),
        sa.UniqueConstraint("key", name=op.f("uq_notices_key")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_notices_next_at"), "notices", ["next_at"])


def downgrade() -> None:
    op.drop_table("notices")
    op.drop_column("users", "email")
