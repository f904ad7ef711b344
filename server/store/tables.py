"""The tables, with column types that behave alike on SQLite and PostgreSQL."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    ColumnElement,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Text,
    UniqueConstraint,
    false,
    func,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator

from search_spaces.dimensions import BY_NAME

Identity = BigInteger().with_variant(Integer, "sqlite")
"""A 64-bit integer; on SQLite the type that row ids require."""

Folded = Text().with_variant(Text(collation="C"), "postgresql")
"""A lower-case text, sorted by code points as in Python."""


class UtcDateTime(TypeDecorator[datetime]):
    """An aware time in UTC; SQLite, which has no time zones, stores UTC without one."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a time without a time zone cannot be stored: {value}")
        utc = value.astimezone(UTC)
        return utc.replace(tzinfo=None) if dialect.name == "sqlite" else utc

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if dialect.name == "sqlite" else value.astimezone(UTC)


class database_seconds(FunctionElement[float]):  # noqa: N801  (named as the SQL functions are)
    """Seconds since 1970 by the database's clock, so that clocks of hosts need not agree."""

    type = Float(53)
    inherit_cache = True


@compiles(database_seconds, "sqlite")
def _sqlite_seconds(element: database_seconds, compiler: SQLCompiler, **options: Any) -> str:  # noqa: ARG001
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(database_seconds, "postgresql")
def _postgresql_seconds(element: database_seconds, compiler: SQLCompiler, **options: Any) -> str:  # noqa: ARG001
    return "extract(epoch from clock_timestamp())::double precision"


Json = dict[str, Any]
NAMES = {
    "ix": "ix_%(column_0_N_label)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    metadata = MetaData(naming_convention=NAMES)
    type_annotation_map = {  # noqa: RUF012  (SQLAlchemy's own declaration)
        datetime: UtcDateTime(),
        float: Float(53),
        Json: JSON(none_as_null=True),
        list[Json]: JSON(none_as_null=True),
        list[float]: JSON(none_as_null=True),
        list[str]: JSON(none_as_null=True),
        dict[str, str]: JSON(none_as_null=True),
    }


class CampaignRow(Base):
    """One campaign.

    `model`, `machine` and the cluster's `profile` are copies from its creation, which later changes
    of these do not affect. `lease_until` is by the database's clock; `lease_epoch` grows with every
    claim, so that writes of a previous runner are refused. Trials of campaigns with the same
    `machine_digest` and `program` (`server.campaign.start`) are comparable. `started_from` and
    `screening` are None until the search begins. `owner` is the name of a user, None if the service
    has no users; a `private` campaign is visible to its owner and admins only.
    """

    __tablename__ = "campaigns"
    __table_args__ = (
        Index(None, "state"),
        Index(None, "machine_digest", "program"),
        Index(None, "owner"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(Identity, primary_key=True)
    name: Mapped[str] = mapped_column(String(200))
    state: Mapped[str] = mapped_column(String(16))
    reason: Mapped[str] = mapped_column(Text, default="")
    evaluator: Mapped[str] = mapped_column(String(32))
    objective: Mapped[str] = mapped_column(String(32))
    simulated: Mapped[bool]
    request: Mapped[Json]
    model: Mapped[Json]
    machine: Mapped[Json]
    profile: Mapped[Json | None]
    machine_digest: Mapped[str] = mapped_column(String(64), server_default="")
    program: Mapped[str] = mapped_column(String(64), server_default="")
    started_from: Mapped[list[Json] | None]
    start_worth: Mapped[Json | None]
    screening: Mapped[Json | None]
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    lease_owner: Mapped[str | None] = mapped_column(String(200))
    lease_until: Mapped[float | None]
    lease_epoch: Mapped[int] = mapped_column(default=0)
    owner: Mapped[str | None] = mapped_column(String(64))
    private: Mapped[bool] = mapped_column(default=False, server_default=false())
    own_runner: Mapped[bool] = mapped_column(default=False, server_default=false())
    idempotency_key: Mapped[str | None] = mapped_column(String(200), unique=True)
    idempotency_hash: Mapped[str | None] = mapped_column(String(64))


class ListingRow(Base):
    """What lists of campaigns sort and search by (`text`), in lower case, as of the campaign's last
    `event`. See `server.store.campaign_list`."""

    __tablename__ = "listings"

    campaign_id: Mapped[int] = mapped_column(
        ForeignKey("campaigns.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    event: Mapped[int] = mapped_column(Identity)
    name: Mapped[str | None] = mapped_column(Folded)
    outcome: Mapped[str | None] = mapped_column(Folded)
    model: Mapped[str | None] = mapped_column(Folded)
    machine: Mapped[str | None] = mapped_column(Folded)
    evaluator: Mapped[str | None] = mapped_column(Folded)
    owner: Mapped[str | None] = mapped_column(Folded)
    nodes: Mapped[int | None]
    best_strategy: Mapped[str | None] = mapped_column(Folded)
    best_objective: Mapped[float | None]
    best_mfu: Mapped[float | None]
    trials: Mapped[int]
    failures: Mapped[int]
    node_hours: Mapped[float]
    text: Mapped[str] = mapped_column(Folded)


class OutcomeRow(Base):
    """One `part` of the outcome of a campaign's first `ended` trials to end, as this `version` of
    autotune computed it. See `server.store.outcomes`."""

    __tablename__ = "outcomes"

    campaign_id: Mapped[int] = mapped_column(
        ForeignKey("campaigns.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    part: Mapped[str] = mapped_column(String(16), primary_key=True)
    ended: Mapped[int]
    version: Mapped[str] = mapped_column(String(32))
    document: Mapped[Json | None]


class TrialRow(Base):
    """One trial. `num_layers` is None if it runs with all of the model's layers.

    `phase`, `phase_reason`, `job_id` and `host` are the progress of a pending one. The columns that
    are counted over all trials have an index, because rows are long.
    """

    __tablename__ = "trials"
    __table_args__ = (
        UniqueConstraint("campaign_id", "number"),
        Index("ix_trials_counted", "campaign_id", "state", "phase", "node_hours"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(Identity, primary_key=True)
    campaign_id: Mapped[int] = mapped_column(ForeignKey("campaigns.id", ondelete="CASCADE"))
    number: Mapped[int]
    token: Mapped[str] = mapped_column(String(64), unique=True)
    purpose: Mapped[str] = mapped_column(String(16))
    strategy: Mapped[Json]
    stands_for_nodes: Mapped[int | None]
    num_layers: Mapped[int | None]
    state: Mapped[str] = mapped_column(String(16))
    phase: Mapped[str | None] = mapped_column(String(16))
    phase_reason: Mapped[str] = mapped_column(Text, default="", server_default="")
    job_id: Mapped[str | None] = mapped_column(String(255))
    simulated: Mapped[bool]
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    duration_s: Mapped[float | None]
    node_hours: Mapped[float | None]
    predicted_iteration_time_s: Mapped[float | None]
    predicted_memory_gib: Mapped[float | None]
    expected: Mapped[Json | None]
    metrics: Mapped[Json | None]
    measurements: Mapped[list[Json]]
    peak_memory_gib: Mapped[list[float]]
    gpu_joules_per_token: Mapped[float | None]
    energy_note: Mapped[str] = mapped_column(Text, default="", server_default="")
    error: Mapped[str | None] = mapped_column(Text)
    log_path: Mapped[str | None] = mapped_column(Text)
    host: Mapped[str | None] = mapped_column(String(255))
    versions: Mapped[dict[str, str]]


def of_strategy(dimension: str) -> ColumnElement[Any]:
    """Return a counted dimension's value in each trial. A strategy of a model without experts has
    no dimensions of them."""
    return func.coalesce(TrialRow.strategy[dimension].as_integer(), BY_NAME[dimension].default)


class EventRow(Base):
    """One change, written in its own transaction and never altered."""

    __tablename__ = "events"
    __table_args__ = (
        Index(None, "campaign_id", "id"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(Identity, primary_key=True)
    campaign_id: Mapped[int] = mapped_column(ForeignKey("campaigns.id", ondelete="CASCADE"))
    kind: Mapped[str] = mapped_column(String(16))
    trial_number: Mapped[int | None]


class EarlierTrialsRow(Base):
    """Observations of earlier trials with which a campaign's search began, never altered. They
    outlast the campaigns that measured them."""

    __tablename__ = "earlier_trials"

    campaign_id: Mapped[int] = mapped_column(
        ForeignKey("campaigns.id", ondelete="CASCADE"), primary_key=True
    )
    observations: Mapped[list[Json]]


class UserRow(Base):
    """One user of a shared service. Names are never reused, and rows never deleted.

    `token_hash` (`server.store.users`) is None for a user without a token, who signs in through a
    proxy.
    """

    __tablename__ = "users"
    __table_args__ = ({"sqlite_autoincrement": True},)

    id: Mapped[int] = mapped_column(Identity, primary_key=True)
    name: Mapped[str] = mapped_column(String(64), unique=True)
    scope: Mapped[str] = mapped_column(String(16))
    token_hash: Mapped[str | None] = mapped_column(String(64))
    created_at: Mapped[datetime]
    revoked_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
