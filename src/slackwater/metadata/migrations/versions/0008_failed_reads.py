"""Ingestion: reads that failed since the last success of their unit, which later runs have to repeat."""

from __future__ import annotations

import sqlalchemy as sql
from alembic import op

revision = "0008"
down_revision = "0007"

_FAILED_SINCE_LAST_SUCCESS = """
    INSERT INTO slackwater_failed_reads (job, watermark, start, unit, low)
    SELECT run.job, run.watermark, failed.start, failed.unit, MIN(failed.low)
    FROM slackwater_outcomes failed
    JOIN slackwater_runs run ON run.id = failed.run
    WHERE failed.state <> 'succeeded' AND NOT EXISTS (
        SELECT 1
        FROM slackwater_outcomes good
        JOIN slackwater_runs later ON later.id = good.run
        WHERE later.job = run.job AND later.watermark = run.watermark
        AND good.start = failed.start AND good.unit = failed.unit
        AND good.state = 'succeeded' AND good.ended_at >= failed.ended_at
    )
    GROUP BY run.job, run.watermark, failed.start, failed.unit
"""


def upgrade() -> None:
    """Create the table of failed reads of `slackwater.ingest`, and fill it from the recorded outcomes."""
    op.create_table(
        "slackwater_failed_reads",
        sql.Column("job", sql.Text, primary_key=True),
        sql.Column("watermark", sql.Text, primary_key=True),
        sql.Column("start", sql.BigInteger, primary_key=True, autoincrement=False),
        sql.Column("unit", sql.Text, primary_key=True),
        sql.Column("low", sql.BigInteger, nullable=False),
    )
    op.execute(_FAILED_SINCE_LAST_SUCCESS)
