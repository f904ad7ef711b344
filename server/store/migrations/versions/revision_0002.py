"""The cluster's profile of a campaign; how an unfinished trial stands; energy."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("campaigns") as campaigns:
        campaigns.add_column(sa.Column("profile", sa.JSON(), nullable=True))
    with op.batch_alter_table("trials") as trials:
        for column in trial_columns():
            trials.add_column(column)


def trial_columns() -> list[sa.Column[object]]:
    return [
        sa.Column("phase", sa.String(length=16), nullable=True),
        sa.Column("phase_reason", sa.Text(), nullable=False, server_default=""),
        sa.Column("job_id", sa.String(length=255), nullable=True),
        sa.Column("joules_per_token", sa.Float(precision=53), nullable=True),
        sa.Column("energy_note", sa.Text(), nullable=False, server_default=""),
    ]


def downgrade() -> None:
    with op.batch_alter_table("trials") as trials:
        for column in trial_columns():
            trials.drop_column(column.name)
    # In place: a table made anew, as a batch does it, would take its trials with it.
    op.drop_column("campaigns", "profile")
