"""Tables of the metadata store, after the newest migration.

All table names start with ``slackwater_``, because the store may share a database with other programs. Times
are integers of microseconds; positions and cuts are binary. A row that several processes write has a version,
or is changed only under the lock of a row that has one.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

from slackwater.sql.stored_text import FreeText

NEWEST: Final = "0014"
"""The migration that creates these tables."""

VERSION_TABLE: Final = "slackwater_version"

TABLES: Final = MetaData()

store: Final = Table(
    "slackwater_store",
    TABLES,
    Column("id", Text, primary_key=True),  # random; the table has one row
)

leases: Final = Table(
    "slackwater_leases",
    TABLES,
    Column("name", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
)

streams: Final = Table(
    "slackwater_streams",
    TABLES,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("scope", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("columns", LargeBinary, nullable=False),  # Arrow schema of the events, serialized
    Column("data", Text),  # folder of its data files; null: next to the database file
    Column("settings", Text, nullable=False),
    Column("bucket", Integer, nullable=False),  # controllers divide the buckets among themselves
    Column("epoch", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("head", LargeBinary, nullable=False),  # the cut at which the kept events begin
    Column("first_noted_at", BigInteger),
    Column("first_mark", BigInteger, nullable=False),  # marks with a smaller number were truncated
    Column("collected_before", BigInteger, nullable=False),  # data files created earlier cannot be appended
    Column("version", BigInteger, nullable=False),
    UniqueConstraint("scope", "name", name="slackwater_streams_by_name"),
)

deleted_streams: Final = Table(
    "slackwater_deleted_streams",
    TABLES,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False),  # with its scope
    Column("data", Text),  # folder of its data files
    Column("bucket", Integer, nullable=False),
    Column("deleted_at", BigInteger, nullable=False),
)


def _of_stream() -> Column[int]:
    owner = ForeignKey("slackwater_streams.id", ondelete="CASCADE")
    return Column("stream", BigInteger, owner, primary_key=True)


segments: Final = Table(
    "slackwater_segments",
    TABLES,
    _of_stream(),
    Column("id", BigInteger, primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("low", BigInteger, nullable=False),
    Column("high", BigInteger, nullable=False),
    Column("sealed_epoch", BigInteger),  # the epoch in which it was sealed
    Column("start", BigInteger, nullable=False),
    Column("length", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("sealed_at", BigInteger),
)

appends: Final = Table(
    "slackwater_appends",
    TABLES,
    _of_stream(),
    Column("segment", BigInteger, primary_key=True),
    Column("first_offset", BigInteger, primary_key=True),
    Column("events", BigInteger, nullable=False),
    Column("file", Text, nullable=False),
    Column("byte_offset", BigInteger, nullable=False),  # of the batch in the file
    Column("size", BigInteger, nullable=False),
    Column("checksum", BigInteger, nullable=False),
    Column("at", BigInteger, nullable=False),
    Index("slackwater_appends_by_file", "stream", "file"),
)

writers: Final = Table(
    "slackwater_writers",
    TABLES,
    _of_stream(),
    Column("writer", Text, primary_key=True),
    Column("session", BigInteger, nullable=False),
    Column("last_event_number", BigInteger, nullable=False),
    Column("position", LargeBinary, nullable=False),
    Column("at", BigInteger, nullable=False),
)

writer_queries: Final = Table(
    "slackwater_writer_queries",
    TABLES,
    _of_stream(),
    Column("writer", Text, primary_key=True),
    Column("query", Text, nullable=False),  # the Spark query that commits as this writer
    Column("runs", Text, nullable=False),  # ids of its runs, the newest last
    Column("before", BigInteger, nullable=False),  # commits of the writer before those of the query
    Column("last", BigInteger, nullable=False),  # the last commit of the query
)

writer_marks: Final = Table(
    "slackwater_writer_marks",
    TABLES,
    _of_stream(),
    Column("writer", Text, primary_key=True),
    Column("time", BigInteger, nullable=False),
    Column("position", LargeBinary, nullable=False),
    Column("closed", Boolean, nullable=False),
    Column("behind_since", BigInteger),
    Column("version", BigInteger, nullable=False),
)

marks: Final = Table(
    "slackwater_marks",
    TABLES,
    _of_stream(),
    Column("number", BigInteger, primary_key=True),
    Column("lower", BigInteger, nullable=False),
    Column("upper", BigInteger, nullable=False),
    Column("cut", LargeBinary, nullable=False),
    Column("at", BigInteger, nullable=False),
)

groups: Final = Table(
    "slackwater_groups",
    TABLES,
    _of_stream(),
    Column("name", Text, primary_key=True),
    Column("lower", BigInteger),  # lower bound of the newest mark that the whole group has passed
    Column("created_at", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
)


def _of_group() -> ForeignKeyConstraint:
    return ForeignKeyConstraint(
        ["stream", "group"], ["slackwater_groups.stream", "slackwater_groups.name"], ondelete="CASCADE"
    )


group_readers: Final = Table(
    "slackwater_group_readers",
    TABLES,
    _of_stream(),
    Column("group", Text, primary_key=True),
    Column("reader", Text, primary_key=True),
    Column("session", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    _of_group(),
)

group_segments: Final = Table(
    "slackwater_group_segments",
    TABLES,
    _of_stream(),
    Column("group", Text, primary_key=True),
    Column("segment", BigInteger, primary_key=True),
    Column("offset", BigInteger, nullable=False),
    Column("finished", Boolean, nullable=False),
    Column("reader", Text),  # null: no reader is assigned
    _of_group(),
)

jobs: Final = Table(
    "slackwater_jobs",
    TABLES,
    Column("job", Text, primary_key=True),
    Column("token", BigInteger, nullable=False),  # fencing token of its newest run
    Column("identity", Text),  # what the job reads and writes, as JSON; null: not recorded yet
)

high_watermarks: Final = Table(
    "slackwater_high_watermarks",
    TABLES,
    Column("job", Text, primary_key=True),
    Column("watermark", Text, primary_key=True),
    Column("start", BigInteger, primary_key=True, autoincrement=False),  # of the partition
    Column("unit", Text, primary_key=True),  # its values as JSON with sorted names
    Column("high", BigInteger, nullable=False),
)

failed_reads: Final = Table(
    "slackwater_failed_reads",
    TABLES,
    Column("job", Text, primary_key=True),
    Column("watermark", Text, primary_key=True),
    Column("start", BigInteger, primary_key=True, autoincrement=False),  # of the partition
    Column("unit", Text, primary_key=True),
    Column("low", BigInteger, nullable=False),  # the lowest of the reads since the last success
)

runs: Final = Table(
    "slackwater_runs",
    TABLES,
    Column("id", Text, primary_key=True),
    Column("job", Text, nullable=False),
    Column("watermark", Text, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
    Column("state", Text, nullable=False),  # running, succeeded, failed or interrupted
    Index("slackwater_runs_by_job", "job", "started_at"),
)

outcomes: Final = Table(
    "slackwater_outcomes",
    TABLES,
    Column("run", Text, ForeignKey("slackwater_runs.id", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),  # index of the unit in the plan
    Column("start", BigInteger, nullable=False),
    Column("unit", Text, nullable=False),
    Column("low", BigInteger, nullable=False),
    Column("high", BigInteger, nullable=False),
    Column("state", Text, nullable=False),  # succeeded, failed or interrupted
    Column("rows", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger, nullable=False),
    Column("error", FreeText),
    Column("drift", FreeText),  # how the columns that were read differed from those of the target
    Column("without_time", BigInteger),  # rows without an event time that were skipped; null if not counted
    Column("rejected", BigInteger, nullable=False, server_default="0"),  # rows that the target cannot store
)

intents: Final = Table(
    "slackwater_intents",
    TABLES,
    Column("job", Text, primary_key=True),
    Column("watermark", Text, primary_key=True),
    Column("start", BigInteger, primary_key=True, autoincrement=False),  # of the partition
    Column("unit", Text, primary_key=True),
    Column("number", BigInteger, nullable=False),  # of the commit to the target
    Column("high", BigInteger, nullable=False),
)

queries: Final = Table(
    "slackwater_queries",
    TABLES,
    Column("id", Text, primary_key=True),  # the same over restarts from a checkpoint
    Column("name", FreeText),
    Column("run", Text, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("running", Boolean, nullable=False),
    Column("ended_at", BigInteger),
    Column("error", FreeText),
    Column("lost", BigInteger, nullable=False),  # reports that could not be written
    Column("batch", BigInteger),  # this and the next: of the newest batch with a report
    Column("batch_at", BigInteger),
    Column("duration", BigInteger),
    Column("rows", BigInteger),
    Column("state_bytes", BigInteger),
    Column("operators", FreeText),  # as JSON
    Index("slackwater_queries_by_name", "name"),
)

query_holders: Final = Table(
    "slackwater_query_holders",
    TABLES,
    Column("query", Text, ForeignKey("slackwater_queries.id", ondelete="CASCADE"), primary_key=True),
    Column("operator", Text, primary_key=True),
    Column("key", FreeText, primary_key=True),  # watermark key
    Column("at", BigInteger, primary_key=True, autoincrement=False),
    Column("until", BigInteger, nullable=False),
    Column("held_by", FreeText),
    Column("reason", FreeText, nullable=False),
    Column("since", BigInteger),
    Column("watermark", BigInteger),  # at the beginning
    Column("reached", BigInteger),  # at the end
    Index("slackwater_query_holders_by_time", "until"),
)

query_watermarks: Final = Table(
    "slackwater_query_watermarks",
    TABLES,
    Column("query", Text, ForeignKey("slackwater_queries.id", ondelete="CASCADE"), primary_key=True),
    Column("operator", Text, primary_key=True),
    Column("key", FreeText, primary_key=True),
    Column("at", BigInteger, primary_key=True, autoincrement=False),
    Column("until", BigInteger, nullable=False),
    Column("watermark", BigInteger, nullable=False),  # at the beginning
    Column("reached", BigInteger, nullable=False),  # at the end
    Index("slackwater_query_watermarks_by_time", "until"),
)

query_windows: Final = Table(
    "slackwater_query_windows",
    TABLES,
    Column("query", Text, ForeignKey("slackwater_queries.id", ondelete="CASCADE"), primary_key=True),
    Column("operator", Text, primary_key=True),
    Column("end", BigInteger, primary_key=True, autoincrement=False),
    Column("start", BigInteger, nullable=False),  # the earliest of windows with this end
    Column("opened_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("closed_at", BigInteger),
    Column("keys", BigInteger),
    Column("early", BigInteger, nullable=False),
    Column("on_time", BigInteger, nullable=False),
    Column("late", BigInteger, nullable=False),
    Column("retractions", BigInteger, nullable=False),
    Index("slackwater_query_windows_by_time", "updated_at"),
)

query_delays: Final = Table(
    "slackwater_query_delays",
    TABLES,
    Column("query", Text, ForeignKey("slackwater_queries.id", ondelete="CASCADE"), primary_key=True),
    Column("operator", Text, primary_key=True),
    Column("origin", FreeText, primary_key=True),
    Column("hour", BigInteger, primary_key=True, autoincrement=False),  # its beginning
    Column("delays", FreeText, nullable=False),  # histogram as JSON
    Index("slackwater_query_delays_by_time", "hour"),
)

query_late_rows: Final = Table(
    "slackwater_query_late_rows",
    TABLES,
    Column("query", Text, ForeignKey("slackwater_queries.id", ondelete="CASCADE"), primary_key=True),
    Column("operator", Text, primary_key=True),
    Column("at", BigInteger, primary_key=True, autoincrement=False),
    Column("number", Integer, primary_key=True, autoincrement=False),  # within the batch
    Column("row", FreeText, nullable=False),  # as JSON
    Index("slackwater_query_late_rows_by_time", "at"),
)
