"""Ingestion: what a job reads and writes, and the fencing token of its newest run."""

from __future__ import annotations

import sqlalchemy as sql
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Create the table of jobs of `slackwater.ingest`."""
    op.create_table(
        "slackwater_jobs",
        sql.Column("job", sql.Text, primary_key=True),
        sql.Column("token", sql.BigInteger, nullable=False),
        sql.Column("identity", sql.Text),
    )
