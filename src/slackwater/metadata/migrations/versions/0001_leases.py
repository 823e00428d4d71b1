"""The first version: leases."""

from __future__ import annotations

import sqlalchemy as sql
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the table of leases."""
    op.create_table(
        "slackwater_leases",
        sql.Column("name", sql.Text, primary_key=True),
        sql.Column("owner", sql.Text, nullable=False),
        sql.Column("expires_at", sql.BigInteger, nullable=False),
        sql.Column("version", sql.BigInteger, nullable=False),
    )
