"""Ingestion: how many rows were read that no range has, because they have no time."""

from __future__ import annotations

import sqlalchemy as sql
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """One more thing that outcomes tell."""
    op.add_column("slackwater_outcomes", sql.Column("without_time", sql.BigInteger))
