"""Recommends lag and allowed lateness for a query, from its reports or from a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slackwater._extras import naming_extras
from slackwater.errors import InvalidArgument
from slackwater.monitoring.advice import Advice, advised
from slackwater.spark.monitor.reports import reported

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


def advise(
    query: StreamingQuery | str,
    *,
    store: str | None = None,
    origin: str | None = None,
    on_time: float = 0.99,
    kept: float = 0.999,
) -> Advice:
    """Recommend the lag of the watermark and the allowed lateness of a query.

    The delays are measured from the event time that the source had reached before the batch. They do not
    depend on the current lag, so that a shorter one can be recommended as well.

    Args:
        query: The query that ``start()`` returned, whose last batches are used; or its name or id, with a
            store.
        store: The URL of the store in which the query is recorded; its whole history there is used.
        origin: Only the rows of this origin; all by default.
        on_time: The share of rows that should not be behind the watermark.
        kept: The share of rows that should not be dropped.

    Returns:
        The recommendation. ``print(advise(query))`` shows it as text.

    Raises:
        InvalidArgument: A share is invalid, the store has no such query, or no delay was measured.
        UnknownStore: There is no store at this address.

    >>> import slackwater as sw
    >>> sw.advise("orders")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: query = 'orders': is a name, which needs a store; add store="sqlite:///…"
    """
    if store is not None:
        with naming_extras():
            from slackwater.monitoring.monitor import open_monitor
        wanted = query if isinstance(query, str) else str(query.id)
        with open_monitor(store) as monitor:
            delays = list(monitor.delays(wanted).items())
    elif isinstance(query, str):
        raise InvalidArgument("query", query, "is a name, which needs a store", fix='add store="sqlite:///…"')
    else:
        reports = (report for one in query.recentProgress if (report := reported(one)) is not None)
        buckets = (bucket for one in reports for operator in one.operators for bucket in operator.buckets)
        delays = [found for bucket in buckets for found in bucket.delays.items()]
    chosen = [histogram for name, histogram in delays if origin in (None, name)]
    return advised(chosen, on_time=on_time, kept=kept)
