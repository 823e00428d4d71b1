"""What succeeded before: the last good high watermark of every unit of every partition.

The planner only reads it. A success moves a high watermark up and never down; a failure leaves it as it
was, whatever it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from slackwater.ingest.plan.units import Unit


class History:
    """High watermarks of one job and one watermark name, by the start of the partition and the unit.

    >>> from slackwater.ingest.plan.units import WHOLE
    >>> history = History([(0, WHOLE.key, 10)])
    >>> history.high(0, WHOLE), history.high(5, WHOLE), history.newest
    (10, None, 10)
    """

    __slots__ = ("_highs", "_newest")

    def __init__(self, rows: Iterable[tuple[int, str, int]] = ()) -> None:
        self._highs: dict[int, dict[str, int]] = {}
        self._newest: int | None = None
        for start, key, high in rows:
            self.succeeded(start, key, high)

    def succeeded(self, start: int, key: str, high: int) -> None:
        """Note that the unit with this key was read up to ``high``; an older one changes nothing.

        >>> history = History()
        >>> history.succeeded(0, "{}", 10)
        >>> history.succeeded(0, "{}", 5)
        >>> list(history.rows())
        [(0, '{}', 10)]
        """
        highs = self._highs.setdefault(start, {})
        if (known := highs.get(key)) is None or high > known:
            highs[key] = high
        if self._newest is None or high > self._newest:
            self._newest = high

    @property
    def newest(self) -> int | None:
        """The highest of all, also of units and partitions that the job no longer has."""
        return self._newest

    def high(self, start: int, unit: Unit) -> int | None:
        """How far the unit was read; None if it is new, or never succeeded."""
        return self._highs.get(start, {}).get(unit.key)

    def of_partition(self, start: int) -> Mapping[str, int]:
        """The high watermarks of the partition that begins at ``start``, by the keys of the units.

        >>> History([(0, "{}", 10)]).of_partition(0)
        {'{}': 10}
        """
        return self._highs.get(start, {})

    def rows(self) -> Iterable[tuple[int, str, int]]:
        """Everything, as (start, key of the unit, high)."""
        return ((start, key, high) for start, highs in self._highs.items() for key, high in highs.items())
