"""What trials are ranked by follows from their metrics; the best is stored for every campaign."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_column("trials", "objective")
    op.execute("DELETE FROM outcomes WHERE part = 'leader'")  # now `best`


def downgrade() -> None:
    op.add_column("trials", sa.Column("objective", sa.Float(precision=53), nullable=True))
