"""All tables. No earlier revision was released."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from server.store.tables import UtcDateTime

revision = "0018"
down_revision = None
branch_labels = None
depends_on = None

identity = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
ordered = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
"""Sorted by code points on both databases."""


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
        sa.Column("profile", sa.JSON(), nullable=True),
        sa.Column("machine_digest", sa.String(length=64), server_default="", nullable=False),
        sa.Column("program", sa.String(length=64), server_default="", nullable=False),
        sa.Column("started_from", sa.JSON(), nullable=True),
        sa.Column("start_worth", sa.JSON(), nullable=True),
        sa.Column("screening", sa.JSON(), nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("started_at", UtcDateTime(), nullable=True),
        sa.Column("finished_at", UtcDateTime(), nullable=True),
        sa.Column("lease_owner", sa.String(length=200), nullable=True),
        sa.Column("lease_until", sa.Float(precision=53), nullable=True),
        sa.Column("lease_epoch", sa.Integer(), nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=True),
        sa.Column("private", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("own_runner", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("idempotency_key", sa.String(length=200), nullable=True),
        sa.Column("idempotency_hash", sa.String(length=64), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_campaigns")),
        sa.UniqueConstraint("idempotency_key", name=op.f("uq_campaigns_idempotency_key")),
        sqlite_autoincrement=True,
    )
    op.create_index(
        op.f("ix_campaigns_machine_digest_campaigns_program"),
        "campaigns",
        ["machine_digest", "program"],
    )
    op.create_index(op.f("ix_campaigns_owner"), "campaigns", ["owner"])
    op.create_index(op.f("ix_campaigns_state"), "campaigns", ["state"])
    op.create_table(
        "users",
        sa.Column("id", identity, nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("scope", sa.String(length=16), nullable=False),
        sa.Column("token_hash", sa.String(length=64), nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("revoked_at", UtcDateTime(), nullable=True),
        sa.Column("last_used_at", UtcDateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users")),
        sa.UniqueConstraint("name", name=op.f("uq_users_name")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "earlier_trials",
        sa.Column("campaign_id", identity, nullable=False),
        sa.Column("observations", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["campaign_id"],
            ["campaigns.id"],
            name=op.f("fk_earlier_trials_campaign_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("campaign_id", name=op.f("pk_earlier_trials")),
    )
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
        "listings",
        sa.Column("campaign_id", identity, autoincrement=False, nullable=False),
        sa.Column("event", identity, nullable=False),
        sa.Column("name", ordered, nullable=True),
        sa.Column("outcome", ordered, nullable=True),
        sa.Column("model", ordered, nullable=True),
        sa.Column("machine", ordered, nullable=True),
        sa.Column("evaluator", ordered, nullable=True),
        sa.Column("owner", ordered, nullable=True),
        sa.Column("nodes", sa.Integer(), nullable=True),
        sa.Column("best_strategy", ordered, nullable=True),
        sa.Column("best_objective", sa.Float(precision=53), nullable=True),
        sa.Column("best_mfu", sa.Float(precision=53), nullable=True),
        sa.Column("trials", sa.Integer(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("node_hours", sa.Float(precision=53), nullable=False),
        sa.Column("text", ordered, nullable=False),
        sa.ForeignKeyConstraint(
            ["campaign_id"],
            ["campaigns.id"],
            name=op.f("fk_listings_campaign_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("campaign_id", name=op.f("pk_listings")),
    )
    op.create_table(
        "outcomes",
        sa.Column("campaign_id", identity, nullable=False),
        sa.Column("part", sa.String(length=16), nullable=False),
        sa.Column("ended", sa.Integer(), nullable=False),
        sa.Column("version", sa.String(length=32), nullable=False),
        sa.Column("document", sa.JSON(), nullable=True),
        sa.ForeignKeyConstraint(
            ["campaign_id"],
            ["campaigns.id"],
            name=op.f("fk_outcomes_campaign_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("campaign_id", "part", name=op.f("pk_outcomes")),
    )
    op.create_table(
        "trials",
        sa.Column("id", identity, nullable=False),
        sa.Column("campaign_id", identity, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("token", sa.String(length=64), nullable=False),
        sa.Column("purpose", sa.String(length=16), nullable=False),
        sa.Column("strategy", sa.JSON(), nullable=False),
        sa.Column("stands_for_nodes", sa.Integer(), nullable=True),
        sa.Column("num_layers", sa.Integer(), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("phase", sa.String(length=16), nullable=True),
        sa.Column("phase_reason", sa.Text(), server_default="", nullable=False),
        sa.Column("job_id", sa.String(length=255), nullable=True),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("started_at", UtcDateTime(), nullable=True),
        sa.Column("finished_at", UtcDateTime(), nullable=True),
        sa.Column("duration_s", sa.Float(precision=53), nullable=True),
        sa.Column("node_hours", sa.Float(precision=53), nullable=True),
        sa.Column("predicted_iteration_time_s", sa.Float(precision=53), nullable=True),
        sa.Column("predicted_memory_gib", sa.Float(precision=53), nullable=True),
        sa.Column("expected", sa.JSON(), nullable=True),
        sa.Column("metrics", sa.JSON(), nullable=True),
        sa.Column("measurements", sa.JSON(), nullable=False),
        sa.Column("peak_memory_gib", sa.JSON(), nullable=False),
        sa.Column("gpu_joules_per_token", sa.Float(precision=53), nullable=True),
        sa.Column("energy_note", sa.Text(), server_default="", nullable=False),
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
    op.create_index("ix_trials_counted", "trials", ["campaign_id", "state", "phase", "node_hours"])


def downgrade() -> None:
    for table in (
        "trials",
        "outcomes",
        "listings",
        "events",
        "earlier_trials",
        "users",
        "campaigns",
    ):
        op.drop_table(table)
