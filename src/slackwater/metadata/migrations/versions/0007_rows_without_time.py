"""Ingestion: number of rows that were skipped because they have no event time."""

from __future__ import annotations

import sqlalchemy as sql
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add the number of rows without an event time to outcomes."""
    op.add_column("slackwater_outcomes", sql.Column("without_time", sql.BigInteger))
