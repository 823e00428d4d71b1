"""Streams: the byte offset of a batch in its file was in a column named ``place``."""

from __future__ import annotations

from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Rename the column; SQLite and PostgreSQL write this statement alike."""
    op.execute("ALTER TABLE slackwater_appends RENAME COLUMN place TO byte_offset")
