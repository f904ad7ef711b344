"""What campaigns start from: the machine and program of each, and the earlier trials it read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

identity = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
INDEX = "ix_campaigns_machine_digest_campaigns_program"
FIGURES = (
    "name",
    "gpu",
    "gpus_per_node",
    "memory_gib",
    "peak_tflops",
    "memory_bandwidth_gb_per_s",
    "intra_node_gb_per_s",
    "inter_node_gb_per_s",
)
WHOLE = frozenset({"gpus_per_node"})


def upgrade() -> None:
    with op.batch_alter_table("campaigns") as campaigns:
        for column in campaign_columns():
            campaigns.add_column(column)
    op.create_index(op.f(INDEX), "campaigns", ["machine_digest", "program"])
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
    fill_in()


def campaign_columns() -> list[sa.Column[Any]]:
    return [
        sa.Column("machine_digest", sa.String(length=64), nullable=False, server_default=""),
        sa.Column("program", sa.String(length=64), nullable=False, server_default=""),
        sa.Column("started_from", sa.JSON(), nullable=True),
        sa.Column("start_worth", sa.JSON(), nullable=True),
    ]


def fill_in() -> None:
    """Say of each campaign that there is on which machine and with which program it ran."""
    campaigns = sa.table(
        "campaigns",
        sa.column("id", identity),
        sa.column("request", sa.JSON()),
        sa.column("machine", sa.JSON()),
        sa.column("profile", sa.JSON()),
        sa.column("machine_digest", sa.String()),
        sa.column("program", sa.String()),
    )
    connection = op.get_bind()
    query = sa.select(campaigns.c.id, campaigns.c.request, campaigns.c.machine, campaigns.c.profile)
    for campaign_id, request, machine, profile in connection.execute(query).all():
        connection.execute(
            sa.update(campaigns)
            .where(campaigns.c.id == campaign_id)
            .values(machine_digest=digest(machine), program=program(request, profile or {}))
        )


def digest(machine: Mapping[str, Any]) -> str:
    """Return what `server.store.stack.machine_digest` returned when this was written."""
    figures = {name: machine.get(name) for name in FIGURES}
    numbers = {
        name: int(value) if name in WHOLE else float(value)
        for name, value in figures.items()
        if isinstance(value, int | float)
    }
    return hashlib.sha256(json.dumps(figures | numbers, sort_keys=True).encode()).hexdigest()


def program(request: Mapping[str, Any], profile: Mapping[str, Any]) -> str:
    """Return what `server.store.stack.program_of` returned when this was written."""
    if request["evaluator"] == "simulated":
        return f"simulated {request.get('seed', 0)}"
    variant = profile.get("megatron", {}).get("variant")
    name = str(profile.get("program", "trainer"))
    return f"{name} {variant}" if variant else name


def downgrade() -> None:
    op.drop_table("earlier_trials")
    op.drop_index(op.f(INDEX), "campaigns")
    # In place: a table made anew, as a batch does it, would take its trials with it.
    for column in campaign_columns():
        op.drop_column("campaigns", column.name)
