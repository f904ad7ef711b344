"""What runners take, and campaigns that ask for a runner of their owner's."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "runners", sa.Column("evaluators", sa.JSON(), server_default="[]", nullable=False)
    )
    op.add_column("runners", sa.Column("only_for", sa.String(length=64), nullable=True))
    op.add_column(
        "runners", sa.Column("full", sa.Boolean(), server_default=sa.false(), nullable=False)
    )
    op.add_column(
        "campaigns",
        sa.Column("own_runner", sa.Boolean(), server_default=sa.false(), nullable=False),
    )


def downgrade() -> None:
    op.drop_column("campaigns", "own_runner")
    for name in ("full", "only_for", "evaluators"):
        op.drop_column("runners", name)
