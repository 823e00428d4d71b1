"""A random id of the store, to notice that its file was replaced."""

from __future__ import annotations

import uuid

import sqlalchemy as sql
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Create the table with the id of the store."""
    table = op.create_table("slackwater_store", sql.Column("id", sql.Text, primary_key=True))
    op.bulk_insert(table, [{"id": uuid.uuid4().hex}])
