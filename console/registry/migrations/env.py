"""Alembic's entry point: run the migrations on the connection that `database` hands over."""

from __future__ import annotations

from alembic import context

from console.registry.models import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,
    transactional_ddl=True,
)
context.run_migrations()
