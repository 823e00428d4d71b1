"""Upserts: panes merged into a table of PostgreSQL or SQLite that shows the current results, exactly once.

The upsert is a Python data sink, because Spark passes a sink the number of the batch it commits, in every
kind of session, and a replayed batch has the same number. Into PostgreSQL every task loads its rows itself,
and the commit on the driver merges them in one transaction, so readers see whole batches only. A SQLite file
is local to the driver, so the rows travel there with the commit messages.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import pyarrow as pa
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, types
from pyspark.sql import functions as sql
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.streaming.readwriter import DataStreamWriter

from slackwater._suggestions import available
from slackwater.errors import InvalidArgument
from slackwater.spark.api.pane_sink import SinkIdentity, register_sink
from slackwater.spark.api.stream_inputs import quoted
from slackwater.spark.monitor.dead_letter_counts import DeadLetterCounts, dead_letter_counts
from slackwater.spark.runtime.sink_progress import (
    BucketProgress,
    CompletenessClaim,
    stated_completeness,
    without_reports,
)
from slackwater.spark.versions import DataSourceStreamArrowWriter
from slackwater.spark.wire.pane_schema import FAILED_KIND, FAILURE_FIELDS, PANE_KIND, RECORD_FIELDS
from slackwater.spark.wire.wire_columns import REPORT
from slackwater.sql.commit_owner import BATCH_JOB, Committer
from slackwater.sql.database import database_url, redacted_url, temporary_engine
from slackwater.sql.dead_letters import DEAD_LETTERS, OnError
from slackwater.sql.pane_merge import (
    FAILURE_COLUMNS,
    PANE_INDEX,
    RETRACTION,
    StagedPanes,
    discard_staged,
    merge_panes,
    stage_panes,
)
from slackwater.sql.pane_table import WINDOW_COLUMNS, PaneColumn, PaneTable
from slackwater.sql.pane_targets import Fold
from slackwater.sql.staging_table import deserialize_batches, is_embedded, serialize_batches

_log = logging.getLogger(__name__)

Folding = Fold | Mapping[str, Fold]
"""How deltas are folded: one fold for all values, or one for each value by name."""

Mode = Literal["discarding", "accumulating", "accumulating_and_retracting"]

_KINDS: Final[dict[type[types.DataType], str]] = {
    types.BooleanType: "boolean",
    types.ByteType: "integer",
    types.ShortType: "integer",
    types.IntegerType: "integer",
    types.LongType: "long",
    types.FloatType: "float",
    types.DoubleType: "double",
    types.StringType: "text",
    types.BinaryType: "binary",
    types.DateType: "date",
    types.TimestampType: "timestamp",
    types.TimestampNTZType: "local timestamp",
    types.ArrayType: "json",
    types.MapType: "json",
    types.StructType: "json",
}


def upsert_to(
    frame: DataFrame,
    url: str,
    table: str,
    *,
    key: Sequence[str],
    windows: bool = True,
    mode: Mode | None = None,
    fold: Folding | None = None,
    create: bool = False,
    identity: str | None = None,
    takeover_from: str | None = None,
    on_error: OnError = "fail",
    claim: CompletenessClaim | None = None,
) -> DataStreamWriter:
    """Build a stream writer that merges panes into a table; set a checkpoint location and start it.

    The table has one row for each key and window (``window_start``, ``window_end``), or for each key with
    ``windows=False``, as fits a global window: the last result that was not retracted. A retraction without a
    replacement, as when a session grows into a longer one, deletes its row. Rows of kind ``late`` and
    ``invalid`` are not results and are skipped; those of kind ``failed`` become dead letters.
    Nested values are stored as JSON.

    Every batch is merged once, however often Spark replays it: its number is recorded in the table
    ``slackwater_upserts`` in the same transaction. The target table is checked, or created, by this call, so
    the database must be reachable from this process as well as from Spark.

    Args:
        frame: a streaming DataFrame with the schema of panes, in which the panes of one key and window are in
            order, as they are unless the DataFrame was shuffled.
        url: the database, as ``postgresql://user:password@host/database`` or ``sqlite:////folder/file.db``.
        table: the table, as ``table`` or ``schema.table``.
        key: the key columns of the panes.
        windows: keep one row for each key and window instead of one for each key.
        mode: the accumulation mode of the panes, if it is known, to check ``fold`` against it.
        fold: how deltas are combined with the current value: ``"sum"``, ``"min"`` or ``"max"``, for all
            values or by name (``{"bids": "sum", "best": "max"}``; a count is folded by ``"sum"``). Required
            for discarding panes, which are deltas, and not allowed for others. A mean or a list of deltas
            cannot be folded: use accumulating panes for those. Sessions that merge leave the rows of their
            old windows behind, in every mode but ``accumulating_and_retracting``: use that mode for sessions
            that fire before their end or accept late elements. `Panes.upsert_to` checks this.
        create: create the table if it does not exist, with a unique index over key and window.
        identity: the name under which applied batches are recorded; by default the id of the query. It
            belongs to the first query that commits under it: a query with a new checkpoint is another query,
            with other batches under the same numbers, and fails with `IdentityInUse`.
        takeover_from: the id of the query whose ``identity`` this query takes over, for good. The error
            message names it. Batches of this query are then merged from its first one.
        on_error: ``"fail"`` to fail the batch if the table cannot store a pane, because of a zero character
            in text, a value out of range or a violated constraint; ``"emit"`` to store such panes in the
            table ``slackwater_dead_letters`` with the reason, and go on. The table then keeps the last result
            that it could store. Read them with `dead_letters`. It is required if ``map_async`` emits failed
            rows, which are stored there as well.
        claim: How the completeness of the table follows from the reports of buckets, which are rows of
            ``frame``. `Panes.upsert_to` passes it; other DataFrames have no reports, and then nothing is
            stated about the table.

    Returns:
        A writer with the sink and the output mode set.

    Raises:
        InvalidArgument: an argument is invalid, or the columns of the panes cannot be stored.
        TableDoesNotFit: the table does not exist, or has missing or wrong columns, which are all named.

    >>> import slackwater as sw
    >>> from tempfile import TemporaryDirectory
    >>> spark = sw.session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> ticks = spark.readStream.format("rate").load().selectExpr("timestamp as at", "value % 3 as auction")
    >>> bids = sw.stream(ticks, event_time="at", watermark=sw.lag("5 seconds")).key_by("auction")
    >>> panes = bids.window(sw.fixed("10 seconds")).agg(bids=sw.count()).to_df()
    >>> with TemporaryDirectory() as folder:
    ...     writer = sw.upsert_to(
    ...         panes, f"sqlite:///{folder}/bids.db", "totals", key=["auction"], create=True
    ...     )
    ...     query = writer.option("checkpointLocation", f"{folder}/checkpoint").start()
    ...     query.stop()
    """
    if not frame.isStreaming:
        raise InvalidArgument("frame", "a batch DataFrame", "is not streaming", fix="call upsert_once")
    commits = SinkIdentity(identity, takeover_from, claim)
    target = _target(frame, url, table, key, windows=windows, mode=mode, fold=fold, on_error=on_error)
    prepared, counts = target.prepare(create=create), dead_letter_counts()
    name = register_sink(
        frame.sparkSession,
        "upsert",
        (redacted_url(prepared.url), prepared, commits),
        stream_writer=lambda: _StreamWriter(prepared, commits, counts),
    )
    return _staging_rows(frame, target).writeStream.format(name).outputMode("append")


def upsert_once(
    frame: DataFrame,
    url: str,
    table: str,
    *,
    key: Sequence[str],
    windows: bool = True,
    mode: Mode | None = None,
    fold: Folding | None = None,
    create: bool = False,
    identity: str | None = None,
    on_error: OnError = "fail",
) -> None:
    """Merge the panes of a batch DataFrame into a table, in one transaction.

    Full results can be merged again without harm. Deltas cannot: they need an ``identity``, such as the date
    that they cover, under which they are merged once, however often the job runs.

    Args:
        frame: a batch DataFrame with the schema of panes.
        url: the database, as in `upsert_to`.
        table: the table, as in `upsert_to`.
        key: the key columns of the panes.
        windows: keep one row for each key and window instead of one for each key.
        mode: the accumulation mode of the panes, if it is known.
        fold: how deltas are combined with the current value, as in `upsert_to`.
        create: create the table if it does not exist.
        identity: the name under which the batch is recorded; required with ``fold``.
        on_error: ``"fail"`` or ``"emit"``, as in `upsert_to`.

    Raises:
        InvalidArgument: an argument is invalid, or the columns of the panes cannot be stored.
        TableDoesNotFit: the table does not exist, or has missing or wrong columns, which are all named.

    >>> import slackwater as sw
    >>> import sqlite3
    >>> from contextlib import closing
    >>> from tempfile import TemporaryDirectory
    >>> spark = sw.session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> rows = spark.sql("select timestamp'2024-01-01 00:00:05Z' as at, 7 as auction, 30L as price")
    >>> bids = sw.stream(rows, event_time="at", watermark=sw.lag("5 seconds")).key_by("auction")
    >>> panes = bids.window(sw.fixed("10 seconds")).agg(total=sw.sum("price")).to_df()
    >>> with TemporaryDirectory() as folder:
    ...     url = f"sqlite:///{folder}/bids.db"
    ...     sw.upsert_once(panes, url, "totals", key=["auction"], create=True)
    ...     with closing(sqlite3.connect(f"{folder}/bids.db")) as database:
    ...         database.execute("SELECT auction, window_start, total FROM totals").fetchall()
    [(7, '2024-01-01 00:00:00.000000', 30)]
    """
    if frame.isStreaming:
        raise InvalidArgument("frame", "a streaming DataFrame", "has no end", fix="call upsert_to")
    if fold and identity is None:
        raise InvalidArgument(
            "identity", None, "is required with fold: deltas that are merged twice are counted twice",
            fix='name the batch, as identity="2024-01-01"',
        )  # fmt: skip
    target = _target(frame, url, table, key, windows=windows, mode=mode, fold=fold, on_error=on_error)
    prepared = target.prepare(create=create)
    name = register_sink(
        frame.sparkSession,
        "upsert_once",
        (redacted_url(prepared.url), prepared, identity),
        batch_writer=lambda: _BatchWriter(prepared, identity),
    )
    _staging_rows(frame, target).write.format(name).mode("append").save()


# ---- the target table of a frame


def _target(
    frame: DataFrame,
    url: str,
    table: str,
    key: Sequence[str],
    *,
    windows: bool,
    mode: Mode | None,
    fold: Folding | None,
    on_error: OnError,
) -> PaneTable:
    columns = pane_columns(frame, key, windows=windows, mode=mode, fold=fold)
    if _failure_fields(frame) and on_error == "fail":
        raise InvalidArgument(
            "on_error", on_error, "would lose the rows for which map_async failed, which are not panes",
            fix='write on_error="emit", and they become dead letters as well',
        )  # fmt: skip
    return PaneTable(
        database_url(url),
        table,
        columns.key,
        columns.values,
        windows=windows,
        fold=columns.fold,
        on_error=on_error,
    )


@dataclass(frozen=True)
class PaneColumns:
    """The columns of panes by their role in a table, and how values are folded."""

    key: tuple[PaneColumn, ...]
    values: tuple[PaneColumn, ...]
    windows: bool
    fold: Mapping[str, Fold]

    @property
    def identity(self) -> tuple[PaneColumn, ...]:
        """The columns that identify a row of the table."""
        bounds = tuple(PaneColumn(name, "timestamp") for name in WINDOW_COLUMNS) if self.windows else ()
        return self.key + bounds


def pane_columns(
    frame: DataFrame, key: Sequence[str], *, windows: bool, mode: Mode | None, fold: Folding | None
) -> PaneColumns:
    """The columns of a table for panes; raises if the DataFrame does not have the schema of panes."""
    fields = {field.name: field.dataType for field in frame.schema.fields}
    for name in ("window", "pane") if windows else ("pane",):
        if not isinstance(fields.get(name), types.StructType):
            fix = "pass the DataFrame that panes.to_df() returns"
            raise InvalidArgument("frame", list(fields), f"has no struct column {name!r}", fix=fix)
    if isinstance(key, str):
        raise InvalidArgument("key", key, "is a string, not a list", fix=f'write key=["{key}"]')
    for name in key:
        if name not in fields or name in ("window", "pane"):
            fix = available(name, (other for other in fields if other not in ("window", "pane")))
            raise InvalidArgument("key", name, "column not found in the panes", fix=fix)
    failures = [field.name for field in _failure_fields(frame)]
    records = [field.name for field in RECORD_FIELDS if field in frame.schema.fields]
    others = ("window", "pane", REPORT, *records, *failures)
    values = [name for name in fields if name not in (*key, *others)]
    return PaneColumns(
        tuple(_column(name, fields[name]) for name in key),
        tuple(_column(name, fields[name]) for name in values),
        windows,
        _folds(values, mode, fold),
    )


def _folds(values: Sequence[str], mode: Mode | None, fold: Folding | None) -> dict[str, Fold]:
    if mode == "discarding" and not fold:
        raise InvalidArgument(
            "fold", fold, "is required: discarding panes are deltas, so the last one is not the result",
            fix='write fold="sum", or one fold for each value, as {"bids": "sum", "best": "max"}; or use '
            ".accumulating()",
        )  # fmt: skip
    if mode not in ("discarding", None) and fold:
        raise InvalidArgument(
            "fold", fold, f"would count elements twice: {mode} panes contain the full result",
            fix="leave fold out, or use .discarding()",
        )  # fmt: skip
    if fold is None:
        return {}
    return dict.fromkeys(values, fold) if isinstance(fold, str) else dict(fold)


def _column(name: str, type_: types.DataType) -> PaneColumn:
    if isinstance(type_, types.DecimalType):
        return PaneColumn(name, f"decimal({type_.precision},{type_.scale})")
    kind = next((kind for known, kind in _KINDS.items() if isinstance(type_, known)), None)
    if kind is None:
        raise InvalidArgument(
            "column",
            name,
            f"has type {type_.simpleString()}, which cannot be stored in a table",
            fix="cast it before the upsert",
        )
    return PaneColumn(name, kind)


def _staging_rows(frame: DataFrame, target: PaneTable) -> DataFrame:
    """Select the results and the failed rows, shaped as the rows that are staged."""
    columns = PaneColumns(target.key, target.values, target.windows, target.fold)
    failures = _failure_fields(frame)
    kinds = [PANE_KIND, FAILED_KIND] if failures else [PANE_KIND]
    named = [sql.col(field.name).alias(name) for field, name in zip(failures, FAILURE_COLUMNS, strict=False)]
    return result_rows(frame, columns, kinds=kinds, further=named, nested_as_json=True)


def result_rows(
    frame: DataFrame,
    columns: PaneColumns,
    *,
    kinds: Sequence[str] = (PANE_KIND,),
    further: Sequence[Expression] = (),
    nested_as_json: bool = False,
) -> DataFrame:
    """Select the results as flat rows, with the index of the pane, whether it retracts, and the reports."""

    def scalar(column: PaneColumn) -> Expression:
        name = f"`{column.name}`"
        as_json = nested_as_json and column.family == "json"
        return (sql.to_json(name) if as_json else sql.col(name)).alias(column.name)

    windows = [
        sql.col(f"window.{bound}").alias(name)
        for bound, name in zip(("start", "end"), WINDOW_COLUMNS, strict=True)
        if columns.windows
    ]
    reports = [quoted(REPORT)] if REPORT in frame.columns else []
    chosen = sql.col("pane.kind").isin(list(kinds))
    for report in reports:
        chosen = chosen | report.isNotNull()
    return frame.where(chosen).select(
        *(scalar(column) for column in columns.key),
        *windows,
        *(scalar(column) for column in columns.values),
        sql.col("pane.index").cast("long").alias(PANE_INDEX),
        sql.col("pane.retraction").alias(RETRACTION),
        *further,
        *reports,
    )


def _failure_fields(frame: DataFrame) -> tuple[types.StructField, ...]:
    """The columns that describe failed rows; empty if there are none."""
    fields = [field for field in frame.schema.fields if field.name != REPORT]
    last = tuple(fields[-len(FAILURE_FIELDS) :])
    return last if last == FAILURE_FIELDS else ()


# ---- the sink


@dataclass
class _TaskMessage(WriterCommitMessage):
    """What a task sends to the commit: what it staged, or in SQLite the rows themselves."""

    identity: str
    committer: Committer
    staged: StagedPanes | None
    payload: bytes | None
    progress: list[BucketProgress]
    """The progress of the buckets whose rows the task wrote."""


def _write(
    target: PaneTable, batches: Iterator[pa.RecordBatch], identity: str, committer: Committer
) -> _TaskMessage:
    progress: list[BucketProgress] = []
    rows = without_reports(batches, progress)
    if is_embedded(target.url):
        return _TaskMessage(identity, committer, None, serialize_batches(rows), progress)
    with temporary_engine(target.url) as engine, engine.begin() as connection:
        staged = stage_panes(connection, target, rows, identity)
        return _TaskMessage(identity, committer, staged, None, progress)


def _commit(
    target: PaneTable,
    messages: Sequence[WriterCommitMessage | None],
    batch: int | None,
    counts: DeadLetterCounts | None = None,
    claim: CompletenessClaim | None = None,
) -> None:
    written = [message for message in messages if isinstance(message, _TaskMessage)]
    if not written:
        return
    identity, committer = written[0].identity, written[0].committer
    with temporary_engine(target.url) as engine, engine.begin() as connection:
        staged = [message.staged for message in written if message.staged]
        if is_embedded(target.url):
            rows = (batch for message in written for batch in deserialize_batches(message.payload))
            staged = [stage_panes(connection, target, rows, identity)]
        stated = stated_completeness(claim, written)
        merged = merge_panes(connection, target, staged, identity, batch, committer, stated)
    if not merged.fresh:
        _log.warning("batch %s of %s was already merged into %s; skipped", batch, identity, target.name)
    if merged.total_rejected and counts is not None:
        counts.record(committer.query, merged.total_rejected)
    if merged.rejected:
        _log.warning(
            "%s rows of batch %s of %s could not be stored in %s; they are in %s",
            merged.rejected, batch, identity, target.name, DEAD_LETTERS,
        )  # fmt: skip


class _StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, target: PaneTable, commits: SinkIdentity, counts: DeadLetterCounts) -> None:
        self._target = target
        self._commits = commits
        self._counts = counts

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        committer = self._commits.committer()
        return _write(self._target, iterator, self._commits.of(committer), committer)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        _commit(self._target, messages, batchId, self._counts, self._commits.claim)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Do nothing: the next merge of this query deletes the staged rows."""


class _BatchWriter(DataSourceArrowWriter):
    def __init__(self, target: PaneTable, identity: str | None) -> None:
        self._target = target
        self._number = None if identity is None else 0
        self._identity = identity or f"batch {uuid.uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _write(self._target, iterator, self._identity, Committer(BATCH_JOB))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _commit(self._target, messages, self._number)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete the staged rows: no later batch has this identity."""
        if not is_embedded(self._target.url):
            with temporary_engine(self._target.url) as engine, engine.begin() as connection:
                discard_staged(connection, self._target, self._identity)
