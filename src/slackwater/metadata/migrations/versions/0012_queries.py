"""Telemetry: the states of Spark queries and their history."""

from __future__ import annotations

import sqlalchemy as sql
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Create the tables of queries, holders, watermarks, windows, delays and late rows."""
    op.create_table(
        "slackwater_queries",
        sql.Column("id", sql.Text, primary_key=True),
        sql.Column("name", sql.Text),
        sql.Column("run", sql.Text, nullable=False),
        sql.Column("started_at", sql.BigInteger, nullable=False),
        sql.Column("updated_at", sql.BigInteger, nullable=False),
        sql.Column("running", sql.Boolean, nullable=False),
        sql.Column("ended_at", sql.BigInteger),
        sql.Column("error", sql.Text),
        sql.Column("lost", sql.BigInteger, nullable=False),
        sql.Column("batch", sql.BigInteger),
        sql.Column("batch_at", sql.BigInteger),
        sql.Column("duration", sql.BigInteger),
        sql.Column("rows", sql.BigInteger),
        sql.Column("state_bytes", sql.BigInteger),
        sql.Column("operators", sql.Text),
    )
    op.create_index("slackwater_queries_by_name", "slackwater_queries", ["name"])
    op.create_table(
        "slackwater_query_holders",
        _of_query(),
        sql.Column("operator", sql.Text, primary_key=True),
        sql.Column("key", sql.Text, primary_key=True),
        sql.Column("at", sql.BigInteger, primary_key=True, autoincrement=False),
        sql.Column("until", sql.BigInteger, nullable=False),
        sql.Column("held_by", sql.Text),
        sql.Column("reason", sql.Text, nullable=False),
        sql.Column("since", sql.BigInteger),
        sql.Column("watermark", sql.BigInteger),
        sql.Column("reached", sql.BigInteger),
    )
    op.create_index("slackwater_query_holders_by_time", "slackwater_query_holders", ["until"])
    op.create_table(
        "slackwater_query_watermarks",
        _of_query(),
        sql.Column("operator", sql.Text, primary_key=True),
        sql.Column("key", sql.Text, primary_key=True),
        sql.Column("at", sql.BigInteger, primary_key=True, autoincrement=False),
        sql.Column("until", sql.BigInteger, nullable=False),
        sql.Column("watermark", sql.BigInteger, nullable=False),
        sql.Column("reached", sql.BigInteger, nullable=False),
    )
    op.create_index("slackwater_query_watermarks_by_time", "slackwater_query_watermarks", ["until"])
    op.create_table(
        "slackwater_query_windows",
        _of_query(),
        sql.Column("operator", sql.Text, primary_key=True),
        sql.Column("end", sql.BigInteger, primary_key=True, autoincrement=False),
        sql.Column("start", sql.BigInteger, nullable=False),
        sql.Column("opened_at", sql.BigInteger, nullable=False),
        sql.Column("updated_at", sql.BigInteger, nullable=False),
        sql.Column("closed_at", sql.BigInteger),
        sql.Column("keys", sql.BigInteger),
        sql.Column("early", sql.BigInteger, nullable=False),
        sql.Column("on_time", sql.BigInteger, nullable=False),
        sql.Column("late", sql.BigInteger, nullable=False),
        sql.Column("retractions", sql.BigInteger, nullable=False),
    )
    op.create_index("slackwater_query_windows_by_time", "slackwater_query_windows", ["updated_at"])
    op.create_table(
        "slackwater_query_delays",
        _of_query(),
        sql.Column("operator", sql.Text, primary_key=True),
        sql.Column("origin", sql.Text, primary_key=True),
        sql.Column("hour", sql.BigInteger, primary_key=True, autoincrement=False),
        sql.Column("delays", sql.Text, nullable=False),
    )
    op.create_index("slackwater_query_delays_by_time", "slackwater_query_delays", ["hour"])
    op.create_table(
        "slackwater_query_late_rows",
        _of_query(),
        sql.Column("operator", sql.Text, primary_key=True),
        sql.Column("at", sql.BigInteger, primary_key=True, autoincrement=False),
        sql.Column("number", sql.Integer, primary_key=True, autoincrement=False),
        sql.Column("row", sql.Text, nullable=False),
    )
    op.create_index("slackwater_query_late_rows_by_time", "slackwater_query_late_rows", ["at"])


def _of_query() -> sql.Column[str]:
    reference = sql.ForeignKey("slackwater_queries.id", ondelete="CASCADE")
    return sql.Column("query", sql.Text, reference, primary_key=True)
