"""Listings with the words that pages now show; the list writes missing ones again."""

from __future__ import annotations

from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("DELETE FROM listings")


def downgrade() -> None:
    op.execute("DELETE FROM listings")
