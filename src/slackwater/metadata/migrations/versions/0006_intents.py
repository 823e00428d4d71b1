"""Ingestion: intents to append to targets that cannot replace rows, and schema drift of outcomes."""

from __future__ import annotations

import sqlalchemy as sql
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Create the table of intents of `slackwater.ingest`, and add schema drift to its outcomes."""
    op.add_column("slackwater_outcomes", sql.Column("drift", sql.Text))
    op.create_table(
        "slackwater_intents",
        sql.Column("job", sql.Text, primary_key=True),
        sql.Column("watermark", sql.Text, primary_key=True),
        sql.Column("start", sql.BigInteger, primary_key=True, autoincrement=False),
        sql.Column("unit", sql.Text, primary_key=True),
        sql.Column("number", sql.BigInteger, nullable=False),
        sql.Column("high", sql.BigInteger, nullable=False),
    )
