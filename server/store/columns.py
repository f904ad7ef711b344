"""Column types that behave alike on SQLite and PostgreSQL."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import BigInteger, DateTime, Dialect, Float, Integer, Text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator

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
