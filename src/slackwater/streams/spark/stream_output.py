"""Panes in a stream: every batch of the query is a commit that notes the watermark of the query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql.streaming.readwriter import DataStreamWriter

from slackwater._suggestions import available
from slackwater.errors import InvalidArgument
from slackwater.spark.api.pane_output import PaneDataflow
from slackwater.spark.api.panes import Panes
from slackwater.spark.api.stream_inputs import quoted
from slackwater.spark.internals import is_remote, pins_threads
from slackwater.spark.versions import output_arrow_schema
from slackwater.spark.wire.wire_columns import REPORT
from slackwater.streams.log.catalog import Stream
from slackwater.streams.spark.data_source import format_options, register_noting, store_option
from slackwater.streams.spark.staged_output import StagedOutput, StreamCommits


def write_stream(
    panes: Panes,
    name: str,
    *,
    store: str,
    key: str | None = None,
    writer: str | None = None,
    takeover_from: str | None = None,
    flush: bool = False,
) -> DataStreamWriter:
    """Build a stream writer that appends panes to a stream and notes the watermark of the query.

    The events have the plain columns of `Panes.to_df` with ``flat=True``: the key, ``window_start``,
    ``window_end``, the values, and ``retraction`` if panes are retracted. Every batch is stored once, in one
    commit with the time up to which its results are complete. So a job that reads the stream with
    `read_stream` gets its watermark from there, and windows over a derived stream fire.

    The tasks that compute the panes write the files of the stream, one for each bucket with panes. On Spark
    Connect, and with ``PYSPARK_PIN_THREAD=false``, the panes pass through the JVM instead. Set the writer id
    and the key by the arguments: the returned writer ignores ``option("writer", …)`` and the like.

    If the query has ended its stream (``flush``), the time is the end of the year 9999.

    Args:
        panes: The panes of a streaming query.
        name: Scope and name of the stream, which exists and has these columns.
        store: Database URL of the metadata store, or ``env:NAME`` or ``file:PATH`` for where it is.
        key: The column with the routing key.
        writer: The writer id under which batches are stored; the id of the query if omitted.
        takeover_from: The id of the query whose writer id this one takes over.
        flush: End the stream of panes; see `Panes.to_df`.

    Returns:
        The writer: set ``checkpointLocation`` and call ``start()``.

    Raises:
        InvalidArgument: The panes are not streaming, the stream has other columns, or an argument is invalid.
        UnknownStream: The stream does not exist.

    >>> import slackwater as sw
    >>> sw.write_stream("bids", "shop/totals", store="sqlite:///store.db")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: panes = 'bids': is not the panes of a windowed stream; pass what \
agg(…) returns
    """
    if not isinstance(panes, Panes):
        raise InvalidArgument(
            "panes", panes, "is not the panes of a windowed stream", fix="pass what agg(…) returns"
        )
    dataflow = panes.dataflow
    if not dataflow.is_streaming:
        raise InvalidArgument(
            "panes", "a batch DataFrame", "is not streaming",
            fix='write to_df(flat=True) with write.format("slackwater")',
        )  # fmt: skip
    located = store_option(dataflow.spark, store)
    options = {"store": located, "stream": name, "key": key, "writer": writer, "takeover_from": takeover_from}
    given = {option: value for option, value in options.items() if value is not None}
    if is_remote(dataflow.spark):  # the server has to reach the store, not this process
        return _through_sink(dataflow, given, flush=flush)
    parsed, reader = format_options(given), dataflow.flat_reader
    _check_columns(name, parsed.open(), reader.schema.names, key)
    if not pins_threads(dataflow.spark):  # a job that a function starts does not know its query
        return _through_sink(dataflow, given, flush=flush)
    output = StagedOutput(parsed, reader, output_arrow_schema(reader.schema))
    commits = StreamCommits(parsed, dataflow.claim)
    return dataflow.last(output, flush=flush).writeStream.foreachBatch(commits).outputMode("append")


def _through_sink(dataflow: PaneDataflow, options: Mapping[str, str], *, flush: bool) -> DataStreamWriter:
    """The same through the data source, whose tasks get the panes as rows."""
    rows = dataflow.to_df(flush=flush, reports=True)
    flat = rows.select(*dataflow.flat_columns, quoted(REPORT))
    format_ = register_noting(rows.sparkSession, dataflow.claim)
    return flat.writeStream.format(format_).options(**options).outputMode("append")


def _check_columns(name: str, stream: Stream, columns: Sequence[str], key: str | None) -> None:
    wanted = stream.columns.names
    if sorted(wanted) != sorted(columns):
        raise InvalidArgument(
            "name", name, f"has the columns {', '.join(wanted)}, and the panes have {', '.join(columns)}",
            fix="create a stream with the columns of the panes",
        )  # fmt: skip
    if key is not None and key not in columns:
        raise InvalidArgument("key", key, "column not found", fix=available(key, columns))
