"""Ingestion: runs of jobs, and the outcome of each unit."""

from __future__ import annotations

import sqlalchemy as sql
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Create the tables of runs and outcomes of `slackwater.ingest`."""
    op.create_table(
        "slackwater_runs",
        sql.Column("id", sql.Text, primary_key=True),
        sql.Column("job", sql.Text, nullable=False),
        sql.Column("watermark", sql.Text, nullable=False),
        sql.Column("started_at", sql.BigInteger, nullable=False),
        sql.Column("ended_at", sql.BigInteger),
        sql.Column("state", sql.Text, nullable=False),
    )
    op.create_index("slackwater_runs_by_job", "slackwater_runs", ["job", "started_at"])
    op.create_table(
        "slackwater_outcomes",
        sql.Column(
            "run", sql.Text, sql.ForeignKey("slackwater_runs.id", ondelete="CASCADE"), primary_key=True
        ),
        sql.Column("number", sql.Integer, primary_key=True, autoincrement=False),
        sql.Column("start", sql.BigInteger, nullable=False),
        sql.Column("unit", sql.Text, nullable=False),
        sql.Column("low", sql.BigInteger, nullable=False),
        sql.Column("high", sql.BigInteger, nullable=False),
        sql.Column("state", sql.Text, nullable=False),
        sql.Column("rows", sql.BigInteger, nullable=False),
        sql.Column("bytes", sql.BigInteger, nullable=False),
        sql.Column("started_at", sql.BigInteger, nullable=False),
        sql.Column("ended_at", sql.BigInteger, nullable=False),
        sql.Column("error", sql.Text),
    )
