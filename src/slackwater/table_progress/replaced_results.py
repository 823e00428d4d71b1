"""Replaces the results of a time range in a table with those of a batch, as after a day was read again."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import polars as pl
import polars.selectors as cs
import sqlalchemy as sql
from pyspark.sql import DataFrame
from pyspark.sql import functions as spark_sql

from slackwater.errors import InvalidArgument
from slackwater.progress.completeness import Completeness
from slackwater.spark.api.lake_merge import lake_columns
from slackwater.spark.api.panes import Panes
from slackwater.spark.api.upsert import PaneColumns, pane_columns, result_rows
from slackwater.sql.commit_owner import BATCH_JOB, Committer
from slackwater.sql.database import database_url, temporary_engine
from slackwater.sql.merge import lock_table
from slackwater.sql.pane_merge import PANE_INDEX, RETRACTION, merge_panes, stage_panes
from slackwater.sql.pane_table import WINDOW_COLUMNS, PaneColumn, PaneTable
from slackwater.table_progress.completeness_reader import is_database, is_job, read_all_completeness
from slackwater.tables.lake_ledger import BatchCommit
from slackwater.tables.pane_fold import DELETED, folded_panes
from slackwater.tables.table_address import lake_table
from slackwater.time import InstantLike, format_instant, instant, now, to_datetime

_IDENTITY: Final = "replaced results"
"""The identity under which replacements are recorded in tables of files."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """What a replacement did.

    >>> Replacement(results=24, deleted=1).deleted
    1
    """

    results: int
    """The rows that were written: the results of the batch whose windows overlap the range."""
    deleted: int
    """The rows that were deleted, because the batch has no result for their key and window."""


def replace_results(panes: Panes, table: str, *, since: InstantLike, until: InstantLike) -> Replacement:
    """Replace the results of a time range in a table with those of a batch, in one commit.

    A window is replaced if it overlaps the range. The row of a key and window that the batch does not have is
    deleted, such as a session that no longer exists once its rows were corrected. All other windows keep
    their rows. A session that was joined to one in the range, or separated from it, is replaced as well.
    Running it again changes nothing.

    The batch must contain all rows of the windows that overlap the range: for sessions and sliding windows
    also rows before and after it.

    The table usually belongs to a streaming query. It keeps writing, but must not change the results of the
    range any more: the range must be final, see `complete_until`.

    Args:
        panes: The panes of a batch DataFrame, of the same pipeline that writes the table.
        table: ``DATABASE_URL#TABLE``, ``delta:LOCATION``, ``iceberg:CATALOG/NAMESPACE.TABLE`` or
            ``parquet:FOLDER``.
        since: The beginning of the range, such as ``"2024-01-12T00:00:00Z"``.
        until: The end of the range, which is not part of it.

    Returns:
        The number of rows that were written and deleted.

    Raises:
        InvalidArgument: An argument is invalid, the panes are streaming or have no windows, or a query may
            still change the results of the range.
        TableDoesNotFit: The table does not exist, or its columns do not fit the panes.

    >>> import slackwater as sw
    >>> from tempfile import TemporaryDirectory
    >>> spark = sw.session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> def totals(seconds):
    ...     times = spark.sql(f"select explode(array({seconds})) as s")
    ...     df = times.selectExpr("'north' as site", "timestamp_seconds(s) as at")
    ...     bids = sw.stream(df, event_time="at", watermark=sw.lag("5 seconds")).key_by("site")
    ...     return bids.window(sw.sessions("10 seconds")).agg(bids=sw.count())
    >>> with TemporaryDirectory() as folder:
    ...     totals("5, 30, 90").upsert_once(f"sqlite:///{folder}/bids.db", "totals", create=True)
    ...     sw.replace_results(
    ...         totals("5, 12, 21, 30, 90"),
    ...         f"sqlite:///{folder}/bids.db#totals",
    ...         since="1970-01-01T00:00:00Z",
    ...         until="1970-01-01T00:01:00Z",
    ...     )
    Replacement(results=1, deleted=2)
    """
    if not isinstance(panes, Panes):
        raise InvalidArgument(
            "panes", panes, "is not the panes of a windowed stream", fix="pass what agg(…) returns"
        )
    if panes.dataflow.is_streaming:
        raise InvalidArgument(
            "panes", "a streaming DataFrame", "has no end", fix="read the rows of the range with spark.read"
        )
    options = panes.dataflow.upsert_options()
    if not options["windows"]:
        raise InvalidArgument(
            "panes", "a global window", "has no time range", fix="use upsert_once, which replaces by key"
        )
    merging = panes.dataflow.merges_windows
    range_ = ReplacedRange(instant(since, name="since"), instant(until, name="until"), merging)
    if range_.until <= range_.since:
        raise InvalidArgument("until", until, f"is not after since = {since!r}", fix="pass a later time")
    _check_final(table, range_)
    frame = panes.to_df()
    columns = pane_columns(frame, options["key"], windows=True, mode=None, fold=None)
    if is_database(table):
        return _in_database(frame, columns, table, range_)
    return _in_lake(frame, columns, table, range_)


@dataclass(frozen=True, slots=True)
class ReplacedRange:
    """A time range in microseconds; ``merging`` if windows of a key can merge, as sessions do."""

    since: int
    until: int
    merging: bool

    def results(self, rows: DataFrame, columns: PaneColumns) -> pl.DataFrame:
        """The results among rows of panes, the identity and the values: those that may be in the range."""
        if not self.merging:
            start, end = (spark_sql.unix_micros(spark_sql.col(name)) for name in WINDOW_COLUMNS)
            rows = rows.where((start < self.until) & (end > self.since))
        # Spark returns timestamps in the timezone of the session
        panes = pl.DataFrame(pl.from_arrow(rows.toArrow())).with_columns(
            cs.datetime(time_zone="*").dt.convert_time_zone("UTC")
        )
        identity = [column.name for column in columns.identity]
        folded = folded_panes(panes, identity, {}, index=PANE_INDEX, retraction=RETRACTION)
        return folded.filter(~pl.col(DELETED)).drop(DELETED)

    def around(self, results: pl.DataFrame) -> tuple[datetime, datetime]:
        """The range together with the windows of results."""
        start, end = (results[name].dt.epoch("us") for name in WINDOW_COLUMNS)
        first, last = min([self.since, *start]), max([self.until, *end])
        return to_datetime(first), to_datetime(last)

    def changes(self, results: pl.DataFrame, before: pl.DataFrame) -> pl.DataFrame:
        """The results in the range, and the rows before that are deleted because there is no result for them.

        A session in the range may have absorbed one after it, or lost its end to one, so for each key the
        range grows over the sessions, old and new, that overlap it.
        """
        keys = [name for name in before.columns if name not in WINDOW_COLUMNS]
        known = pl.concat([before, results.select(before.columns)]).unique()
        hull = (
            known.select(keys, **{_ALL: 0})
            .unique()
            .with_columns(
                pl.lit(to_datetime(self.since)).alias(_SINCE).cast(pl.Datetime("us", "UTC")),
                pl.lit(to_datetime(self.until)).alias(_UNTIL).cast(pl.Datetime("us", "UTC")),
            )
        )
        while self.merging:
            grown = (
                _within(known, hull, keys)
                .group_by(*keys, _ALL)
                .agg(
                    pl.min_horizontal(pl.col(_SINCE).min(), pl.col(WINDOW_COLUMNS[0]).min()).alias(_SINCE),
                    pl.max_horizontal(pl.col(_UNTIL).max(), pl.col(WINDOW_COLUMNS[1]).max()).alias(_UNTIL),
                )
            )
            rest = hull.join(grown, on=[*keys, _ALL], how="anti", nulls_equal=True)
            if grown.join(hull, on=hull.columns, how="anti", nulls_equal=True).is_empty():
                break
            hull = pl.concat([grown.select(hull.columns), rest])
        written = _within(results, hull, keys).drop(_ALL, _SINCE, _UNTIL)
        touched = _within(before, hull, keys).drop(_ALL, _SINCE, _UNTIL)
        gone = touched.join(written, on=before.columns, how="anti", nulls_equal=True)
        marked = (
            frame.with_columns(pl.lit(value=deleted).alias(DELETED))
            for frame, deleted in ((written, False), (gone, True))
        )
        return pl.concat(marked, how="diagonal")


_ALL, _SINCE, _UNTIL = "range:all", "range:since", "range:until"


def _within(rows: pl.DataFrame, hull: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """The rows whose windows overlap the range of their key."""
    start, end = (pl.col(name) for name in WINDOW_COLUMNS)
    numbered = rows.with_columns(pl.lit(0, hull.schema[_ALL]).alias(_ALL))
    joined = numbered.join(hull, on=[*keys, _ALL], nulls_equal=True)
    return joined.filter((start < pl.col(_UNTIL)) & (end > pl.col(_SINCE)))


def _check_final(table: str, range_: ReplacedRange) -> None:
    for identity, stated in read_all_completeness(table).items():
        if is_job(identity):  # the results of queries are replaced, not its rows
            continue
        if stated.final_until is None or stated.final_until < range_.until:
            known = format_instant(stated.final_until)
            raise InvalidArgument(
                "until", format_instant(range_.until),
                f"is later than the time before which the results of {identity} are final: {known}",
                fix="wait for it: slackwater wait TABLE --final --until …",
            )  # fmt: skip


def _in_database(frame: DataFrame, columns: PaneColumns, table: str, range_: ReplacedRange) -> Replacement:
    address, _, name = table.rpartition("#")
    target = PaneTable(database_url(address), name, columns.key, columns.values).prepare()
    results = range_.results(result_rows(frame, columns, nested_as_json=True), columns)
    identity = f"batch {uuid.uuid4().hex}"
    first, last = range_.around(results)
    start, end = (target.table.c[bound] for bound in WINDOW_COLUMNS)
    with temporary_engine(target.url) as engine, engine.begin() as connection:
        lock_table(connection, target.name)
        found = connection.execute(
            sql.select(*(target.table.c[column.name] for column in target.identity)).where(
                start < last, end > first
            )
        )
        rows = [
            [_in_utc(value, column) for value, column in zip(row, target.identity, strict=True)]
            for row in found
        ]
        kinds = {column.name: results.schema[column.name] for column in target.identity}
        before = pl.DataFrame(rows, schema=kinds, orient="row")
        changes = range_.changes(results, before)
        batches = changes.rename({DELETED: RETRACTION}).with_columns(pl.lit(0, pl.Int64).alias(PANE_INDEX))
        arrow = batches.to_arrow(compat_level=pl.CompatLevel.oldest()).to_batches()
        staged = stage_panes(connection, target, arrow, identity)
        merge_panes(connection, target, [staged], identity, None)
    return _counted(changes)


def _in_utc(value: Any, column: PaneColumn) -> Any:
    """A value of a table; SQLite returns UTC without a timezone."""
    is_local = isinstance(value, datetime) and value.tzinfo is None and column.kind == "timestamp"
    return value.replace(tzinfo=UTC) if is_local else value


def _in_lake(frame: DataFrame, columns: PaneColumns, table: str, range_: ReplacedRange) -> Replacement:
    target = lake_table(table)
    rows = result_rows(frame, columns)
    lake = lake_columns(rows, columns)
    target.prepare(lake, create=False)
    results = range_.results(rows, columns)
    names = lake.identity.names
    first, last = range_.around(results)
    start, end = WINDOW_COLUMNS
    before = target.rows(names, ((start, "<", last), (end, ">", first)))
    changes = range_.changes(results, before.cast({name: results.schema[name] for name in names}))
    # the clock numbers replacements, so that a later one is another batch
    known = target.ledger().get(_IDENTITY)
    number = max(now(), 0 if known is None else known.batch + 1)
    target.merge(lake, changes, BatchCommit(_IDENTITY, number, Committer(BATCH_JOB), Completeness()))
    return _counted(changes)


def _counted(changes: pl.DataFrame) -> Replacement:
    deleted = int(changes[DELETED].sum())
    return Replacement(len(changes) - deleted, deleted)
