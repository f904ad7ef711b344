"""Of users' tokens a hash alone."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.alter_column("users", "stored_key", new_column_name="token_hash")
    op.drop_column("users", "server_key")


def downgrade() -> None:
    op.add_column("users", sa.Column("server_key", sa.String(length=64), nullable=True))
    op.alter_column("users", "token_hash", new_column_name="stored_key")
