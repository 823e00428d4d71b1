"""Streams: the Spark query that owns a writer id."""

from __future__ import annotations

import sqlalchemy as sql
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Create the table of queries that commit under a writer id."""
    op.create_table(
        "slackwater_writer_queries",
        sql.Column(
            "stream",
            sql.BigInteger,
            sql.ForeignKey("slackwater_streams.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sql.Column("writer", sql.Text, primary_key=True),
        sql.Column("query", sql.Text, nullable=False),
        sql.Column("runs", sql.Text, nullable=False),
        sql.Column("before", sql.BigInteger, nullable=False),
        sql.Column("last", sql.BigInteger, nullable=False),
    )
