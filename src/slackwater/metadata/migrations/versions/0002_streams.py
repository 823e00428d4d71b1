"""Streams: segments, appends, writers, marks and reader groups."""

from __future__ import annotations

import sqlalchemy as sql
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the tables of `slackwater.streams`."""
    op.create_table(
        "slackwater_streams",
        sql.Column("id", sql.BigInteger().with_variant(sql.Integer, "sqlite"), primary_key=True),
        sql.Column("scope", sql.Text, nullable=False),
        sql.Column("name", sql.Text, nullable=False),
        sql.Column("columns", sql.LargeBinary, nullable=False),
        sql.Column("data", sql.Text),
        sql.Column("settings", sql.Text, nullable=False),
        sql.Column("bucket", sql.Integer, nullable=False),
        sql.Column("epoch", sql.BigInteger, nullable=False),
        sql.Column("created_at", sql.BigInteger, nullable=False),
        sql.Column("head", sql.LargeBinary, nullable=False),
        sql.Column("first_noted_at", sql.BigInteger),
        sql.Column("first_mark", sql.BigInteger, nullable=False),
        sql.Column("collected_before", sql.BigInteger, nullable=False),
        sql.Column("version", sql.BigInteger, nullable=False),
        sql.UniqueConstraint("scope", "name", name="slackwater_streams_by_name"),
    )
    op.create_table(
        "slackwater_appends",
        sql.Column(
            "stream",
            sql.BigInteger,
            sql.ForeignKey("slackwater_streams.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sql.Column("segment", sql.BigInteger, primary_key=True),
        sql.Column("first_offset", sql.BigInteger, primary_key=True),
        sql.Column("events", sql.BigInteger, nullable=False),
        sql.Column("file", sql.Text, nullable=False),
        sql.Column("place", sql.BigInteger, nullable=False),
        sql.Column("size", sql.BigInteger, nullable=False),
        sql.Column("checksum", sql.BigInteger, nullable=False),
        sql.Column("at", sql.BigInteger, nullable=False),
    )
    op.create_index("slackwater_appends_by_file", "slackwater_appends", ["stream", "file"])
    op.create_table(
        "slackwater_groups",
        sql.Column(
            "stream",
            sql.BigInteger,
            sql.ForeignKey("slackwater_streams.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sql.Column("name", sql.Text, primary_key=True),
        sql.Column("lower", sql.BigInteger),
        sql.Column("created_at", sql.BigInteger, nullable=False),
        sql.Column("version", sql.BigInteger, nullable=False),
    )
    op.create_table(
        "slackwater_marks",
        sql.Column(
            "stream",
            sql.BigInteger,
            sql.ForeignKey("slackwater_streams.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sql.Column("number", sql.BigInteger, primary_key=True),
        sql.Column("lower", sql.BigInteger, nullable=False),
        sql.Column("upper", sql.BigInteger, nullable=False),
        sql.Column("cut", sql.LargeBinary, nullable=False),
        sql.Column("at", sql.BigInteger, nullable=False),
    )
    op.create_table(
        "slackwater_segments",
        sql.Column(
            "stream",
            sql.BigInteger,
            sql.ForeignKey("slackwater_streams.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sql.Column("id", sql.BigInteger, primary_key=True),
        sql.Column("number", sql.BigInteger, nullable=False),
        sql.Column("epoch", sql.BigInteger, nullable=False),
        sql.Column("low", sql.BigInteger, nullable=False),
        sql.Column("high", sql.BigInteger, nullable=False),
        sql.Column("sealed_epoch", sql.BigInteger),
        sql.Column("start", sql.BigInteger, nullable=False),
        sql.Column("length", sql.BigInteger, nullable=False),
        sql.Column("bytes", sql.BigInteger, nullable=False),
        sql.Column("created_at", sql.BigInteger, nullable=False),
        sql.Column("sealed_at", sql.BigInteger),
    )
    op.create_table(
        "slackwater_writer_marks",
        sql.Column(
            "stream",
            sql.BigInteger,
            sql.ForeignKey("slackwater_streams.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sql.Column("writer", sql.Text, primary_key=True),
        sql.Column("time", sql.BigInteger, nullable=False),
        sql.Column("position", sql.LargeBinary, nullable=False),
        sql.Column("closed", sql.Boolean, nullable=False),
        sql.Column("behind_since", sql.BigInteger),
        sql.Column("version", sql.BigInteger, nullable=False),
    )
    op.create_table(
        "slackwater_writers",
        sql.Column(
            "stream",
            sql.BigInteger,
            sql.ForeignKey("slackwater_streams.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sql.Column("writer", sql.Text, primary_key=True),
        sql.Column("session", sql.BigInteger, nullable=False),
        sql.Column("last_event_number", sql.BigInteger, nullable=False),
        sql.Column("position", sql.LargeBinary, nullable=False),
        sql.Column("at", sql.BigInteger, nullable=False),
    )
    op.create_table(
        "slackwater_group_readers",
        sql.Column(
            "stream",
            sql.BigInteger,
            sql.ForeignKey("slackwater_streams.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sql.Column("group", sql.Text, primary_key=True),
        sql.Column("reader", sql.Text, primary_key=True),
        sql.Column("session", sql.BigInteger, nullable=False),
        sql.Column("expires_at", sql.BigInteger, nullable=False),
        sql.ForeignKeyConstraint(
            ["stream", "group"], ["slackwater_groups.stream", "slackwater_groups.name"], ondelete="CASCADE"
        ),
    )
    op.create_table(
        "slackwater_group_segments",
        sql.Column(
            "stream",
            sql.BigInteger,
            sql.ForeignKey("slackwater_streams.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sql.Column("group", sql.Text, primary_key=True),
        sql.Column("segment", sql.BigInteger, primary_key=True),
        sql.Column("offset", sql.BigInteger, nullable=False),
        sql.Column("finished", sql.Boolean, nullable=False),
        sql.Column("reader", sql.Text),
        sql.ForeignKeyConstraint(
            ["stream", "group"], ["slackwater_groups.stream", "slackwater_groups.name"], ondelete="CASCADE"
        ),
    )
