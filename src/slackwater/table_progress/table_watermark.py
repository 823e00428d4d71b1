"""The completeness of a table as the watermark of a job that reads it."""

from __future__ import annotations

from functools import partial

from slackwater.progress.watermark_policies import TableWatermark, not_negative
from slackwater.table_progress.completeness_reader import complete_until, redacted_table
from slackwater.time import DurationLike, duration


def completeness(
    table: str,
    *,
    lag: DurationLike = "0 seconds",
    final: bool = False,
    identity: str | None = None,
    store: str | None = None,
) -> TableWatermark:
    """Use the completeness of a table as the watermark of a stream that reads the table.

    The watermark is what `complete_until` returns. It takes effect one batch later than it is read, so that
    the rows up to this time have been read as well; a run with ``availableNow`` uses what the table stated
    when the stream was built. The time is part of the offset of a batch, so a repeated batch has the same
    watermark.

    The event time of the rows has to be the last instant of their windows, ``window_end`` minus a
    microsecond: the table is complete for windows that end at or before the time. With another event time,
    ``lag`` must cover the difference, such as the length of the windows if it is their start.

    Args:
        table: The table, as in `complete_until`. A stream notes its own times: use `read_stream`.
        lag: How far the watermark is behind.
        final: Use the time before which late rows cannot change the results any more.
        identity: See `complete_until`.
        store: See `complete_until`.

    Returns:
        A value for the argument ``watermark`` of `stream`.

    Raises:
        InvalidArgument: The address has another form, or ``lag`` is negative.
        MissingExtra: The package that reads the table is not installed.
        TableUnreadable: The database, the catalog or the files cannot be reached.

    >>> import slackwater as sw
    >>> sw.completeness("delta:/data/totals", lag="1 minute").lag
    60000000
    """
    read = partial(complete_until, table, final=final, identity=identity, store=store)
    read()  # raises if the address is invalid
    return TableWatermark(redacted_table(table), read, not_negative(duration(lag, name="lag"), "lag"))
