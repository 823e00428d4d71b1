"""Waits until a table is complete."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from slackwater.errors import InvalidArgument
from slackwater.progress.watermark_policies import not_negative
from slackwater.table_progress.completeness_reader import TableUnreadable, complete_until
from slackwater.time import SECOND, DurationLike, InstantLike, duration, instant

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WaitResult:
    """The result of a wait: whether the time was reached, and up to which time the table is complete.

    >>> import slackwater as sw
    >>> sw.WaitResult(reached=False, until=20, complete_until=10).reached
    False
    """

    reached: bool
    until: int
    complete_until: int | None


def wait_until(
    table: str,
    until: int | InstantLike,
    *,
    timeout: DurationLike | None = None,
    every: DurationLike = "5 seconds",
    final: bool = False,
    identity: str | None = None,
    store: str | None = None,
    observe: Callable[[int | None], None] | None = None,
) -> WaitResult:
    """Wait until a table is complete up to a time.

    If the table could be read once and cannot be read later, as while a database restarts, the wait goes on.

    Args:
        table: The table, as in `complete_until`.
        until: The time, such as ``"2024-01-02T00:00:00Z"``, or microseconds since 1970.
        timeout: How long to wait; without it, for as long as it takes. ``"0 seconds"`` looks once.
        every: How often to look.
        final: Wait until late rows cannot change the results any more.
        identity: See `complete_until`.
        store: See `complete_until`.
        observe: Called with each time that was read.

    Returns:
        A `WaitResult`: whether the time was reached, and up to which time the table is complete.

    Raises:
        InvalidArgument: An argument is invalid.
        TableUnreadable: The table cannot be read at the beginning of the wait.

    >>> import slackwater as sw
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     sw.wait_until(f"delta:{folder}/totals", "2024-01-02T00:00:00Z", timeout="0 seconds").reached
    False
    """
    wanted = until if isinstance(until, int) else instant(until, name="until")
    pause = duration(every, name="every")
    if pause <= 0:
        raise InvalidArgument("every", every, "must be greater than zero", fix='write "5 seconds"')
    limit = None if timeout is None else not_negative(duration(timeout, name="timeout"), "timeout") / SECOND
    begun = time.monotonic()
    found: int | None = None
    is_readable = False
    while True:
        try:
            found = complete_until(table, final=final, identity=identity, store=store)
        except TableUnreadable as error:
            if not is_readable:
                raise
            _log.warning("%s", error)
        else:
            is_readable = True
            if observe is not None:
                observe(found)
        if found is not None and found >= wanted:
            return WaitResult(reached=True, until=wanted, complete_until=found)
        left = None if limit is None else limit - (time.monotonic() - begun)
        if left is not None and left <= 0:
            return WaitResult(reached=False, until=wanted, complete_until=found)
        time.sleep(pause / SECOND if left is None else min(pause / SECOND, left))
