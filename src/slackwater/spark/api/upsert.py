"""A table that always shows the current truth: panes folded into PostgreSQL or SQLite, exactly once.

A Python data sink of Spark, because a sink is told the number of the batch it commits, in every kind of
session, and a batch that is given again has the same number. Into PostgreSQL every task loads its rows by
itself, and the commit on the driver folds them all in one transaction, so readers see whole batches only;
into SQLite, which is a file beside the driver, the rows travel with the commit.
"""

from __future__ import annotations

import hashlib
import io
import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, Literal

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession, types
from pyspark.sql import functions as sql
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.streaming.readwriter import DataStreamWriter

from slackwater.errors import InvalidArgument
from slackwater.sql.database import database, shown
from slackwater.sql.pane_merge import PANE_INDEX, RETRACTION, Staged, apply_batch, discard, merge, stage
from slackwater.sql.pane_tables import WINDOW_COLUMNS, Column, Fold, Target, connected

_log = logging.getLogger(__name__)

Folding = Fold | Mapping[str, Fold]
"""How deltas are folded: one way for all values, or one for each of them by name."""

Mode = Literal["discarding", "accumulating", "accumulating_and_retracting"]

_RESULT: Final = "pane"
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
) -> DataStreamWriter:
    """A writer that folds a stream of panes into a table; give it a checkpoint and start it.

    The table has one row for each key and window (``window_start``, ``window_end``), or for each key with
    ``windows=False``, as fits a global window: the last result that was not retracted. A retraction without a
    replacement, as of a session that grew into a longer one, removes its row. Rows of kind ``late`` and
    ``invalid`` are not results and are left out. Nested values are kept as JSON.

    Discarding panes are deltas: they need ``fold``, which says how each value is folded into the one that
    stands, ``"sum"``, ``"min"`` or ``"max"``, for all or by name (``{"bids": "sum", "best": "max"}``; a count
    is folded by ``"sum"``). A mean or a list of deltas cannot be folded: use accumulating panes for those.
    Sessions that merge leave the deltas of their old windows behind; use retracting panes.

    A batch is folded once, however often Spark gives it again: its number is noted in the table
    ``slackwater_upserts``, in the same transaction, under the id of the query, or under ``identity`` if one
    is given. With ``create=True`` a missing table is created, with a unique index over key and window; a
    table that does not fit is refused here, with its wrong columns named. So the database must be
    reachable from this process, and not only from Spark.

    ``frame`` has the schema of panes, and the panes of one key and window come in order, as they do unless
    somebody shuffles them.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.progress.generator import lag
    >>> from slackwater.spark.session import session
    >>> from slackwater.spark.api.stream import stream
    >>> from slackwater.windows import count, fixed
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> ticks = spark.readStream.format("rate").load().selectExpr("timestamp as at", "value % 3 as auction")
    >>> bids = stream(ticks, event_time="at", watermark=lag("5 seconds")).key_by("auction")
    >>> panes = bids.window(fixed("10 seconds")).agg(bids=count()).to_df()
    >>> with TemporaryDirectory() as folder:
    ...     writer = upsert_to(panes, f"sqlite:///{folder}/bids.db", "totals", key=["auction"], create=True)
    ...     query = writer.option("checkpointLocation", f"{folder}/checkpoint").start()
    ...     query.stop()
    """
    if not frame.isStreaming:
        raise InvalidArgument("frame", "a batch DataFrame", "does not stream", fix="call upsert_once")
    target = _target(frame, url, table, key, windows=windows, mode=mode, fold=fold)
    target.prepare(create=create)
    name = _register(frame.sparkSession, target, identity)
    return _flat(frame, target).writeStream.format(name).outputMode("append")


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
) -> None:
    """Folds the panes of a batch DataFrame into a table, in one transaction; options as in `upsert_to`.

    Whole results may be folded again without harm. Deltas may not: they need an ``identity``, such as the
    date they are of, under which they are folded once however often the job is run.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.progress.generator import lag
    >>> from slackwater.spark.session import session
    >>> from slackwater.spark.api.stream import stream
    >>> from slackwater.sql.database import database
    >>> from slackwater.sql.pane_tables import connected
    >>> from slackwater.windows import fixed, sum
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> rows = spark.sql("select timestamp'2024-01-01 00:00:05Z' as at, 7 as auction, 30L as price")
    >>> bids = stream(rows, event_time="at", watermark=lag("5 seconds")).key_by("auction")
    >>> panes = bids.window(fixed("10 seconds")).agg(total=sum("price")).to_df()
    >>> with TemporaryDirectory() as folder:
    ...     url = f"sqlite:///{folder}/bids.db"
    ...     upsert_once(panes, url, "totals", key=["auction"], create=True)
    ...     with connected(database(url)) as engine, engine.connect() as connection:
    ...         connection.exec_driver_sql("SELECT auction, window_start, total FROM totals").all()
    [(7, '2024-01-01 00:00:00.000000', 30)]
    """
    if frame.isStreaming:
        raise InvalidArgument("frame", "a streaming DataFrame", "does not end", fix="call upsert_to")
    if fold and identity is None:
        raise InvalidArgument(
            "identity", None, "is missing: deltas folded twice are counted twice",
            fix='name what is folded, as identity="2024-01-01"',
        )  # fmt: skip
    target = _target(frame, url, table, key, windows=windows, mode=mode, fold=fold)
    target.prepare(create=create)
    name = _register(frame.sparkSession, target, identity)
    _flat(frame, target).write.format(name).mode("append").save()


# ---- what the frame says


def _target(
    frame: DataFrame,
    url: str,
    table: str,
    key: Sequence[str],
    *,
    windows: bool,
    mode: Mode | None,
    fold: Folding | None,
) -> Target:
    fields = {field.name: field.dataType for field in frame.schema.fields}
    for name in ("window", "pane") if windows else ("pane",):
        if not isinstance(fields.get(name), types.StructType):
            fix = "give the DataFrame that panes.to_df() returns"
            raise InvalidArgument("frame", list(fields), f"has no column {name!r} as panes have", fix=fix)
    if isinstance(key, str):
        raise InvalidArgument("key", key, "is one text", fix=f'write key=["{key}"]')
    for name in key:
        if name not in fields or name in ("window", "pane"):
            known = ", ".join(other for other in fields if other not in ("window", "pane"))
            raise InvalidArgument("key", name, "is not a column of the panes", fix=f"they have {known}")
    values = [name for name in fields if name not in (*key, "window", "pane")]
    return Target(
        database(url),
        table,
        tuple(_column(name, fields[name]) for name in key),
        tuple(_column(name, fields[name]) for name in values),
        windows=windows,
        fold=_folds(values, mode, fold),
    )


def _folds(values: Sequence[str], mode: Mode | None, fold: Folding | None) -> dict[str, Fold]:
    if mode == "discarding" and not fold:
        raise InvalidArgument(
            "fold", fold, "is missing: discarding panes are deltas, and the last one is not the truth",
            fix='write fold="sum", or one for each value, as {"bids": "sum", "best": "max"}; or use '
            ".accumulating()",
        )  # fmt: skip
    if mode not in ("discarding", None) and fold:
        raise InvalidArgument(
            "fold", fold, f"would count elements again: {mode} panes hold everything so far",
            fix="leave fold out, or use .discarding()",
        )  # fmt: skip
    if fold is None:
        return {}
    return dict.fromkeys(values, fold) if isinstance(fold, str) else dict(fold)


def _column(name: str, type_: types.DataType) -> Column:
    if isinstance(type_, types.DecimalType):
        return Column(name, f"decimal({type_.precision},{type_.scale})")
    kind = next((kind for known, kind in _KINDS.items() if isinstance(type_, known)), None)
    if kind is None:
        raise InvalidArgument(
            "column",
            name,
            f"is of type {type_.simpleString()}, which no table keeps",
            fix="cast it before the upsert",
        )
    return Column(name, kind)


def _flat(frame: DataFrame, target: Target) -> DataFrame:
    """The results as the rows that are staged."""

    def plain(one: Column) -> Expression:
        name = f"`{one.name}`"
        return (sql.to_json(name) if one.family == "json" else sql.col(name)).alias(one.name)

    windows = [
        sql.col(f"window.{bound}").alias(name)
        for bound, name in zip(("start", "end"), WINDOW_COLUMNS, strict=True)
        if target.windows
    ]
    return frame.where(sql.col("pane.kind") == _RESULT).select(
        *(plain(one) for one in target.key),
        *windows,
        *(plain(one) for one in target.values),
        sql.col("pane.index").cast("long").alias(PANE_INDEX),
        sql.col("pane.retraction").alias(RETRACTION),
    )


# ---- the sink


@dataclass
class _Written(WriterCommitMessage):
    """What a task tells the commit: under which identity it wrote, and where its rows are."""

    identity: str
    staged: Staged | None
    payload: bytes | None


def _write(target: Target, batches: Iterator[pa.RecordBatch], identity: str) -> _Written:
    if target.url.get_backend_name() == "sqlite":
        return _Written(identity, None, _packed(batches))
    with connected(target.url) as engine, engine.begin() as connection:
        return _Written(identity, stage(connection, target, batches, identity), None)


def _commit(target: Target, messages: Sequence[WriterCommitMessage | None], batch: int | None) -> None:
    written = [message for message in messages if isinstance(message, _Written)]
    if not written:
        return
    identity = written[0].identity
    with connected(target.url) as engine, engine.begin() as connection:
        if target.url.get_backend_name() == "sqlite":
            rows = (rows for message in written if message.payload for rows in _unpacked(message.payload))
            fresh = apply_batch(connection, target, rows, identity, batch)
        else:
            staged = [message.staged for message in written if message.staged]
            fresh = merge(connection, target, staged, identity, batch)
    if not fresh:
        _log.info("batch %s of %s was folded into %s before", batch, identity, target.table)


def _packed(batches: Iterator[pa.RecordBatch]) -> bytes | None:
    first = next(batches, None)
    if first is None:
        return None
    output = io.BytesIO()
    with pa.ipc.new_stream(output, first.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
        for batch in chain([first], batches):
            stream.write_batch(batch)
    return output.getvalue()


def _unpacked(payload: bytes) -> Iterator[pa.RecordBatch]:
    with pa.ipc.open_stream(payload) as stream:
        yield from stream


class _StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, target: Target, identity: str | None) -> None:
        self._target = target
        self._identity = identity

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _write(self._target, iterator, self._identity or f"query {_query()}")

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        _commit(self._target, messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """What was staged changes nothing, and goes with the next batch."""


class _BatchWriter(DataSourceArrowWriter):
    def __init__(self, target: Target, identity: str | None) -> None:
        self._target = target
        self._number = None if identity is None else 0
        self._identity = identity or f"batch {uuid.uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _write(self._target, iterator, self._identity)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _commit(self._target, messages, self._number)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """No later batch has this identity, so what was staged is removed at once."""
        if self._target.url.get_backend_name() != "sqlite":
            with connected(self._target.url) as engine, engine.begin() as connection:
                discard(connection, self._target, self._identity)


def _query() -> str:
    task = TaskContext.get()
    query = task.getLocalProperty("sql.streaming.queryId") if task else None
    if query is None:
        raise InvalidArgument(
            "identity", None, "cannot be found: Spark does not say which query this task belongs to",
            fix="pass identity= with a name that no other query has",
        )  # fmt: skip
    return query


def _register(spark: SparkSession, target: Target, identity: str | None) -> str:
    """Makes the sink known to the session; the address travels inside the class, where no plan shows it."""
    told = repr((shown(target.url), target, identity)).encode()
    registered = f"slackwater_upsert_{hashlib.sha256(told).hexdigest()[:16]}"

    class Upsert(DataSource):
        @classmethod
        def name(cls) -> str:
            return registered

        def streamWriter(self, schema: types.StructType, overwrite: bool) -> _StreamWriter:  # noqa: N802 - Spark's name
            return _StreamWriter(target, identity)

        def writer(self, schema: types.StructType, overwrite: bool) -> _BatchWriter:
            return _BatchWriter(target, identity)

    spark.dataSource.register(Upsert)
    return registered
