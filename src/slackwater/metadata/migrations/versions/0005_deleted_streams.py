"""Streams: deleted streams whose files are still to be deleted."""

from __future__ import annotations

import sqlalchemy as sql
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Create the table of deleted streams."""
    op.create_table(
        "slackwater_deleted_streams",
        sql.Column("id", sql.BigInteger, primary_key=True, autoincrement=False),
        sql.Column("name", sql.Text, nullable=False),
        sql.Column("data", sql.Text),
        sql.Column("bucket", sql.Integer, nullable=False),
        sql.Column("deleted_at", sql.BigInteger, nullable=False),
    )
