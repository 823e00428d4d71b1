"""The history of a job as the planner reads it: high watermarks and reads that failed.

A success raises the high watermark of a unit, never lowers it, and clears the failures before it. A failure
leaves the high watermark as it was and records where the failed read began.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from slackwater.ingest.units import Unit


class History:
    """High watermarks and failed reads of one job and one watermark name, by partition start and unit key.

    Args:
        rows: ``(partition start, unit key, high watermark)`` of every unit that has succeeded.
        failed: ``(partition start, unit key, low)`` of every read that failed since the unit's last success.

    >>> from slackwater.ingest import History, WHOLE
    >>> history = History([(0, WHOLE.key, 10)], failed=[(0, WHOLE.key, 7)])
    >>> history.high(0, WHOLE), history.high(5, WHOLE), history.newest
    (10, None, 10)
    >>> list(history.failed_reads())
    [(0, '{}', 7)]
    """

    __slots__ = ("_failed", "_highs", "_newest")

    def __init__(
        self, rows: Iterable[tuple[int, str, int]] = (), failed: Iterable[tuple[int, str, int]] = ()
    ) -> None:
        self._highs: dict[int, dict[str, int]] = {}
        self._failed: dict[int, dict[str, int]] = {}
        self._newest: int | None = None
        for start, key, high in rows:
            self.succeeded(start, key, high)
        for start, key, low in failed:
            self.failed(start, key, low)

    def succeeded(self, start: int, key: str, high: int) -> None:
        """Record that a unit was read up to ``high``; a lower ``high`` than before is ignored.

        Args:
            start: Start of the partition.
            key: Key of the unit.
            high: End of the range that was read.

        >>> from slackwater.ingest import History
        >>> history = History(failed=[(0, "{}", 3)])
        >>> history.succeeded(0, "{}", 10)
        >>> history.succeeded(0, "{}", 5)
        >>> list(history.rows()), list(history.failed_reads())
        ([(0, '{}', 10)], [])
        """
        highs = self._highs.setdefault(start, {})
        if (known := highs.get(key)) is None or high > known:
            highs[key] = high
        if self._newest is None or high > self._newest:
            self._newest = high
        self._failed.get(start, {}).pop(key, None)

    def failed(self, start: int, key: str, low: int) -> None:
        """Record that a read of a unit from ``low`` failed; the lowest ``low`` since its last success counts.

        Args:
            start: Start of the partition.
            key: Key of the unit.
            low: Start of the range whose read failed.

        >>> from slackwater.ingest import History
        >>> history = History()
        >>> for low in (7, 5, 9):
        ...     history.failed(0, "{}", low)
        >>> list(history.failed_reads())
        [(0, '{}', 5)]
        """
        lows = self._failed.setdefault(start, {})
        lows[key] = min(low, lows.get(key, low))

    @property
    def newest(self) -> int | None:
        """The highest of all high watermarks, including units and partitions that the job no longer has."""
        return self._newest

    def high(self, start: int, unit: Unit) -> int | None:
        """The high watermark of a unit; None if it is new or has never succeeded.

        Args:
            start: The start of the partition, in microseconds since 1970.
            unit: The unit.
        """
        return self._highs.get(start, {}).get(unit.key)

    def of_partition(self, start: int) -> Mapping[str, int]:
        """The high watermarks of the partition that begins at ``start``, by unit key.

        Args:
            start: The start of the partition, in microseconds since 1970.

        >>> from slackwater.ingest import History
        >>> History([(0, "{}", 10)]).of_partition(0)
        {'{}': 10}
        """
        return self._highs.get(start, {})

    def failed_in_partition(self, start: int) -> Mapping[str, int]:
        """The lowest low of the failed reads of the partition that begins at ``start``, by unit key.

        Args:
            start: The start of the partition, in microseconds since 1970.

        >>> from slackwater.ingest import History
        >>> History(failed=[(0, "{}", 3)]).failed_in_partition(0)
        {'{}': 3}
        """
        return self._failed.get(start, {})

    def rows(self) -> Iterable[tuple[int, str, int]]:
        """All high watermarks, as (partition start, unit key, high)."""
        return ((start, key, high) for start, highs in self._highs.items() for key, high in highs.items())

    def failed_reads(self) -> Iterable[tuple[int, str, int]]:
        """All reads that failed since the last success of their unit, as (partition start, unit key, low)."""
        return ((start, key, low) for start, lows in self._failed.items() for key, low in lows.items())

    def unread_before(self, start: int, keys: Container[str], *, gaps: bool = True) -> int | None:
        """The earliest time before ``start`` from which a unit was not read; None if all were read.

        What was expected of a unit begins with the first range that it has read.

        Args:
            start: The time before which to look.
            keys: The keys of the units to look for.
            gaps: Whether a range between two ranges that were read counts; otherwise only one at the end.

        >>> from slackwater.ingest import History
        >>> history = History([(0, "a", 10), (20, "a", 30), (0, "b", 30)])
        >>> history.unread_before(30, {"a", "b"}), history.unread_before(40, {"b"})
        (10, 30)
        >>> history.unread_before(30, {"a"}, gaps=False) is None
        True
        """
        reached: dict[str, int] = {}
        stopped: list[int] = []
        for began in sorted(self._highs):
            if began >= start:
                break
            for key, high in self._highs[began].items():
                if key not in keys:
                    continue
                before = reached.setdefault(key, began)
                if gaps and began > before:
                    stopped.append(before)
                reached[key] = max(before, high)
        return min([*stopped, *(high for high in reached.values() if high < start)], default=None)
