"""Ingestion: the number of rows that a target cannot store."""

from __future__ import annotations

import sqlalchemy as sql
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Add the number of rejected rows to the outcomes of units."""
    op.add_column(
        "slackwater_outcomes", sql.Column("rejected", sql.BigInteger, nullable=False, server_default="0")
    )
