"""Users of a service that a group shares, whose each campaign is, and what was done by whom."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from server.store.columns import UtcDateTime

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

identity = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("campaigns", sa.Column("owner", sa.String(length=64), nullable=True))
    op.add_column(
        "campaigns",
        sa.Column("private", sa.Boolean(), server_default=sa.false(), nullable=False),
    )
    op.create_index(op.f("ix_campaigns_owner"), "campaigns", ["owner"])
    op.create_table(
        "users",
        sa.Column("id", identity, nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("scope", sa.String(length=16), nullable=False),
        sa.Column("stored_key", sa.String(length=64), nullable=True),
        sa.Column("server_key", sa.String(length=64), nullable=True),
        sa.Column("most_campaigns", sa.Integer(), nullable=True),
        sa.Column("most_trials", sa.Integer(), nullable=True),
        sa.Column("node_hours_a_month", sa.Float(precision=53), nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("revoked_at", UtcDateTime(), nullable=True),
        sa.Column("last_used_at", UtcDateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users")),
        sa.UniqueConstraint("name", name=op.f("uq_users_name")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "node_hours_of_deleted",
        sa.Column("owner", sa.String(length=64), nullable=False),
        sa.Column("month", sa.String(length=7), nullable=False),
        sa.Column("node_hours", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("owner", "month", name=op.f("pk_node_hours_of_deleted")),
    )
    op.create_table(
        "audit",
        sa.Column("id", identity, nullable=False),
        sa.Column("at", UtcDateTime(), nullable=False),
        sa.Column("user", sa.String(length=64), nullable=True),
        sa.Column("address", sa.String(length=200), nullable=False),
        sa.Column("action", sa.String(length=200), nullable=False),
        sa.Column("campaign_id", identity, nullable=True),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_audit_at"), "audit", ["at"])
    op.create_index(op.f("ix_audit_campaign_id"), "audit", ["campaign_id"])


def downgrade() -> None:
    op.drop_table("audit")
    op.drop_table("node_hours_of_deleted")
    op.drop_table("users")
    op.drop_index(op.f("ix_campaigns_owner"), "campaigns")
    op.drop_column("campaigns", "private")
    op.drop_column("campaigns", "owner")
