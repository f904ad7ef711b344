"""Run by Alembic; the connection and its transaction are the caller's (`server.store.Store`)."""

from __future__ import annotations

from alembic import context

from server.store.tables import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,
    compare_type=True,
    transactional_ddl=True,
)
context.run_migrations()
