"""The runners that work; an index with all that is counted of trials."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from server.store.columns import UtcDateTime

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

SHORT = "ix_trials_campaign_id_trials_state"
COUNTED = "ix_trials_counted"


def upgrade() -> None:
    op.create_table(
        "runners",
        sa.Column("owner", sa.String(length=200), nullable=False),
        sa.Column("version", sa.String(length=32), nullable=False),
        sa.Column("started_at", UtcDateTime(), nullable=False),
        sa.Column("seen_at", sa.Float(precision=53), nullable=False),
        sa.Column("figures", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("owner", name=op.f("pk_runners")),
    )
    op.drop_index(op.f(SHORT), "trials")
    op.create_index(COUNTED, "trials", ["campaign_id", "state", "phase", "node_hours"])


def downgrade() -> None:
    op.drop_index(COUNTED, "trials")
    op.create_index(op.f(SHORT), "trials", ["campaign_id", "state"])
    op.drop_table("runners")
