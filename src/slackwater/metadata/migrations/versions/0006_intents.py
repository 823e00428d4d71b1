"""Ingestion: what is about to be appended to a target that cannot replace, and how columns differed."""

from __future__ import annotations

import sqlalchemy as sql
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """The intents of `slackwater.ingest`, and what its outcomes tell about columns."""
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
