"""What a trial's GPUs alone drew is called so."""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _rename("joules_per_token", "gpu_joules_per_token")


def downgrade() -> None:
    _rename("gpu_joules_per_token", "joules_per_token")


def _rename(name: str, other: str) -> None:
    # SQLite and PostgreSQL both have it in place; Alembic would make the table anew in SQLite.
    op.execute(f"ALTER TABLE trials RENAME COLUMN {name} TO {other}")
