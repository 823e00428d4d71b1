"""Panes in a stream: every batch of the query is a commit that notes the watermark of the query."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.streaming.readwriter import DataStreamWriter

from slackwater._suggestions import available
from slackwater.errors import InvalidArgument
from slackwater.spark.api.panes import Panes
from slackwater.spark.api.stream_inputs import quoted
from slackwater.spark.internals import is_remote
from slackwater.spark.wire.wire_columns import REPORT
from slackwater.streams.log.catalog import Stream
from slackwater.streams.spark.data_source import open_stream, register_noting, store_option


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
    rows = dataflow.to_df(flush=flush, reports=True)
    located = store_option(rows.sparkSession, store)
    options = {"store": located, "stream": name, "key": key, "writer": writer, "takeover_from": takeover_from}
    given = {option: value for option, value in options.items() if value is not None}
    flat = rows.select(*dataflow.flat_columns, quoted(REPORT))
    if not is_remote(rows.sparkSession):  # otherwise the server has to reach the store, not this process
        _check_columns(name, open_stream(given), [column for column in flat.columns if column != REPORT], key)
    format_ = register_noting(rows.sparkSession, dataflow.claim)
    return flat.writeStream.format(format_).options(**given).outputMode("append")


def _check_columns(name: str, stream: Stream, columns: Sequence[str], key: str | None) -> None:
    wanted = stream.columns.names
    if sorted(wanted) != sorted(columns):
        raise InvalidArgument(
            "name", name, f"has the columns {', '.join(wanted)}, and the panes have {', '.join(columns)}",
            fix="create a stream with the columns of the panes",
        )  # fmt: skip
    if key is not None and key not in columns:
        raise InvalidArgument("key", key, "column not found", fix=available(key, columns))
