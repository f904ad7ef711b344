"""What lists of campaigns sort and search by.

The rows follow from campaigns and trials by the program's own rules, as those are now. So they are
not written here, where later rules would be taken for those of this version, but by
`server.store.listings`: for all campaigns when a service starts, before it answers.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

identity = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
folded = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "listings",
        sa.Column("campaign_id", identity, autoincrement=False, nullable=False),
        sa.Column("event", identity, nullable=False),
        sa.Column("name", folded, nullable=True),
        sa.Column("outcome", folded, nullable=True),
        sa.Column("model", folded, nullable=True),
        sa.Column("machine", folded, nullable=True),
        sa.Column("evaluator", folded, nullable=True),
        sa.Column("owner", folded, nullable=True),
        sa.Column("nodes", sa.Integer(), nullable=True),
        sa.Column("best_strategy", folded, nullable=True),
        sa.Column("best_objective", sa.Float(53), nullable=True),
        sa.Column("best_mfu", sa.Float(53), nullable=True),
        sa.Column("trials", sa.Integer(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("node_hours", sa.Float(53), nullable=False),
        sa.Column("text", folded, nullable=False),
        sa.ForeignKeyConstraint(
            ["campaign_id"],
            ["campaigns.id"],
            name=op.f("fk_listings_campaign_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("campaign_id", name=op.f("pk_listings")),
    )


def downgrade() -> None:
    op.drop_table("listings")
