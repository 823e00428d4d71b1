"""Alembic environment: runs the migrations in the transaction of the store."""

from __future__ import annotations

from alembic import context

from slackwater.metadata import store_schema as schema

# without a configuration the module is only being imported, for example to collect doctests
if hasattr(context, "config"):
    context.configure(
        connection=context.config.attributes["connection"],
        target_metadata=schema.TABLES,
        version_table=schema.VERSION_TABLE,
        transactional_ddl=True,  # SQLite too: the store begins its transactions itself
    )
    context.run_migrations()
