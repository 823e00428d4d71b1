"""Ingestion: high watermarks by partition and unit."""

from __future__ import annotations

import sqlalchemy as sql
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Create the table of high watermarks of `slackwater.ingest`."""
    op.create_table(
        "slackwater_high_watermarks",
        sql.Column("job", sql.Text, primary_key=True),
        sql.Column("watermark", sql.Text, primary_key=True),
        sql.Column("start", sql.BigInteger, primary_key=True, autoincrement=False),
        sql.Column("unit", sql.Text, primary_key=True),
        sql.Column("high", sql.BigInteger, nullable=False),
    )
