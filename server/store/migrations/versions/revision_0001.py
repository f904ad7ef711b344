"""Campaigns, trials and events."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from server.store.columns import UtcDateTime

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

identity = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "campaigns",
        sa.Column("id", identity, nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("evaluator", sa.String(length=32), nullable=False),
        sa.Column("objective", sa.String(length=32), nullable=False),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("model", sa.JSON(), nullable=False),
        sa.Column("machine", sa.JSON(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("started_at", UtcDateTime(), nullable=True),
        sa.Column("finished_at", UtcDateTime(), nullable=True),
        sa.Column("lease_owner", sa.String(length=200), nullable=True),
        sa.Column("lease_until", sa.Float(precision=53), nullable=True),
        sa.Column("lease_epoch", sa.Integer(), nullable=False),
        sa.Column("idempotency_key", sa.String(length=200), nullable=True),
        sa.Column("idempotency_hash", sa.String(length=64), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_campaigns")),
        sa.UniqueConstraint("idempotency_key", name=op.f("uq_campaigns_idempotency_key")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_campaigns_state"), "campaigns", ["state"])

    op.create_table(
        "events",
        sa.Column("id", identity, nullable=False),
        sa.Column("campaign_id", identity, nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("trial_number", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(
            ["campaign_id"],
            ["campaigns.id"],
            name=op.f("fk_events_campaign_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_events_campaign_id_events_id"), "events", ["campaign_id", "id"])

    op.create_table(
        "trials",
        sa.Column("id", identity, nullable=False),
        sa.Column("campaign_id", identity, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("token", sa.String(length=64), nullable=False),
        sa.Column("purpose", sa.String(length=16), nullable=False),
        sa.Column("strategy", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("started_at", UtcDateTime(), nullable=True),
        sa.Column("finished_at", UtcDateTime(), nullable=True),
        sa.Column("duration_s", sa.Float(precision=53), nullable=True),
        sa.Column("node_hours", sa.Float(precision=53), nullable=True),
        sa.Column("predicted_iteration_time_s", sa.Float(precision=53), nullable=True),
        sa.Column("predicted_memory_gib", sa.Float(precision=53), nullable=True),
        sa.Column("objective", sa.Float(precision=53), nullable=True),
        sa.Column("metrics", sa.JSON(), nullable=True),
        sa.Column("measurements", sa.JSON(), nullable=False),
        sa.Column("peak_memory_gib", sa.JSON(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("log_path", sa.Text(), nullable=True),
        sa.Column("host", sa.String(length=255), nullable=True),
        sa.Column("versions", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["campaign_id"],
            ["campaigns.id"],
            name=op.f("fk_trials_campaign_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_trials")),
        sa.UniqueConstraint("campaign_id", "number", name=op.f("uq_trials_campaign_id_number")),
        sa.UniqueConstraint("token", name=op.f("uq_trials_token")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_trials_campaign_id_trials_state"), "trials", ["campaign_id", "state"])


def downgrade() -> None:
    for table in ("events", "trials", "campaigns"):
        op.drop_table(table)
