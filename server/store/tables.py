"""The tables: campaigns, their trials, the events that announce each change; what campaigns start
from; calibrations; users, and what was done by whom; the runners that work; notices that are to be
sent."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    JSON,
    ColumnElement,
    Float,
    ForeignKey,
    Index,
    MetaData,
    String,
    Text,
    UniqueConstraint,
    false,
    func,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from search_spaces.dimensions import BY_NAME
from server.store.columns import Folded, Identity, UtcDateTime

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

    `model`, `machine` and `profile` (of the cluster, with the slurm evaluator) are what its request
    named when it was created: a later change of these does not change a campaign. `lease_until` is
    in the database's seconds; `lease_epoch` grows with every claim and fences off a runner that was
    taken over. `machine_digest` and `program` are those of `server.store.stack`: where both are the
    same, trials of one campaign tell of another. `started_from` and
    `screening` are None until the search begins. `owner` is the name of the user whose it is, None
    where the service has no users; its owner alone and admins see one that is `private`.
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
    """What lists of campaigns sort and search by, as it followed from a campaign after its last
    `event`; texts in one case. `text` is all that is searched. See `server.store.listings`.
    """

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
    """What follows from the first `ended` trials of a campaign to end, a `part` of it in each row,
    as this `version` of the program worked it out. See `server.store.outcomes`."""

    __tablename__ = "outcomes"

    campaign_id: Mapped[int] = mapped_column(
        ForeignKey("campaigns.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    part: Mapped[str] = mapped_column(String(16), primary_key=True)
    ended: Mapped[int]
    version: Mapped[str] = mapped_column(String(32))
    document: Mapped[Json | None]


class TrialRow(Base):
    """One trial. `num_layers` is None where it runs with all of the model's layers.

    `phase`, `phase_reason`, `job_id` and `host` say how an unfinished one stands. What is counted
    of all trials stands in an index, for rows are long. `power` over time, which may be
    longer than all the rest, is read by itself.
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
    power: Mapped[Json | None] = mapped_column(deferred=True)


def of_strategy(dimension: str) -> ColumnElement[Any]:
    """Return a counted dimension's value in each trial. Rows from before every trainer had it may
    have it among the dimensions of their trainer's own, or lack it."""
    strategy = TrialRow.strategy
    return func.coalesce(
        strategy[dimension].as_integer(),
        strategy["settings"][dimension].as_integer(),
        BY_NAME[dimension].default,
    )


class EventRow(Base):
    """One change. Written in the transaction of the change itself, never altered."""

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
    """What earlier trials had shown when a campaign began its search, never altered.

    It is kept with the campaign, whatever becomes of those that measured it.
    """

    __tablename__ = "earlier_trials"

    campaign_id: Mapped[int] = mapped_column(
        ForeignKey("campaigns.id", ondelete="CASCADE"), primary_key=True
    )
    observations: Mapped[list[Json]]


class CalibrationRow(Base):
    """One calibration, never altered. `document` is all of it; the rest repeats what lists show.

    `figures` are those of its machine that it depends on: it holds where they are the same.
    """

    __tablename__ = "calibrations"
    __table_args__ = ({"sqlite_autoincrement": True},)

    id: Mapped[int] = mapped_column(Identity, primary_key=True)
    name: Mapped[str] = mapped_column(String(100), unique=True)
    machine: Mapped[str] = mapped_column(Text)
    figures: Mapped[Json]
    software: Mapped[str] = mapped_column(Text)
    simulated: Mapped[bool]
    created_at: Mapped[datetime]
    observations: Mapped[int]
    timed: Mapped[int]
    out_of_memory: Mapped[int]
    models: Mapped[list[str]]
    document: Mapped[Json] = mapped_column(deferred=True)


class UserRow(Base):
    """One user of a service that a group shares; a name is given once, and its row stays.

    Of the token a hash is kept (`server.store.users`), which is None of a user who has no token and
    comes through a proxy. A limit that is None is none.
    """

    __tablename__ = "users"
    __table_args__ = ({"sqlite_autoincrement": True},)

    id: Mapped[int] = mapped_column(Identity, primary_key=True)
    name: Mapped[str] = mapped_column(String(64), unique=True)
    scope: Mapped[str] = mapped_column(String(16))
    token_hash: Mapped[str | None] = mapped_column(String(64))
    most_campaigns: Mapped[int | None]
    most_trials: Mapped[int | None]
    node_hours_a_month: Mapped[float | None]
    email: Mapped[str | None] = mapped_column(String(254))
    created_at: Mapped[datetime]
    revoked_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]


class NodeHoursOfDeletedRow(Base):
    """What an owner's campaigns that have been deleted had taken in a month, such as `2026-03`."""

    __tablename__ = "node_hours_of_deleted"

    owner: Mapped[str] = mapped_column(String(64), primary_key=True)
    month: Mapped[str] = mapped_column(String(7), primary_key=True)
    node_hours: Mapped[float]


class AuditRow(Base):
    """One change that was asked for, and how it was answered; never altered.

    `user` is None where none was known, `address` where the request came from, `action` a method
    with the path's template, or a command. The campaign may be gone.
    """

    __tablename__ = "audit"
    __table_args__ = (
        Index(None, "at"),
        Index(None, "campaign_id"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(Identity, primary_key=True)
    at: Mapped[datetime]
    user: Mapped[str | None] = mapped_column(String(64))
    address: Mapped[str] = mapped_column(String(200))
    action: Mapped[str] = mapped_column(String(200))
    campaign_id: Mapped[int | None] = mapped_column(Identity)
    status: Mapped[int]


class RunnerRow(Base):
    """One runner that works, or did until lately. `owner` is what its leases name it, `seen_at` in
    the database's seconds; `figures` are those of `server.runner.figures` as they stood then. It
    takes campaigns of these `evaluators`, where `only_for` names a user of that one alone, and
    while it is `full` no more."""

    __tablename__ = "runners"

    owner: Mapped[str] = mapped_column(String(200), primary_key=True)
    version: Mapped[str] = mapped_column(String(32))
    started_at: Mapped[datetime]
    seen_at: Mapped[float]
    figures: Mapped[list[Json]]
    evaluators: Mapped[list[str]] = mapped_column(server_default="[]")
    only_for: Mapped[str | None] = mapped_column(String(64))
    full: Mapped[bool] = mapped_column(server_default=false())


class NoticeRow(Base):
    """A campaign's end or pause that somebody is still to be told of. Written in the transaction of
    the change itself; it goes when all have been told, or when that is given up.

    `key` is what receivers know it by when it comes a second time. `left` names who is still to be
    told, of `server.store.campaigns.TOLD`; before `next_at` nothing more is tried.
    """

    __tablename__ = "notices"
    __table_args__ = (
        Index(None, "next_at"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(Identity, primary_key=True)
    key: Mapped[str] = mapped_column(String(32), unique=True)
    campaign_id: Mapped[int] = mapped_column(ForeignKey("campaigns.id", ondelete="CASCADE"))
    state: Mapped[str] = mapped_column(String(16))
    reason: Mapped[str] = mapped_column(Text)
    at: Mapped[datetime]
    left: Mapped[list[str]]
    attempts: Mapped[int] = mapped_column(default=0)
    next_at: Mapped[datetime]
