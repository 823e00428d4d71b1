"""Parsers for the times and units in cases of the suites `partitions` and `plans`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slackwater.ingest.axis.bounds import read_fixed
from slackwater.ingest.axis.timezones import zone
from slackwater.ingest.units import unit_of
from slackwater.time import instant


def moment(text: object, timezone: str) -> int:
    """An ISO instant, or a date, which is midnight in ``timezone``.

    >>> moment("1970-01-01", "+01:00"), moment("1970-01-01T00:00:01Z", "UTC")
    (-3600000000, 1000000)
    """
    written = str(text)
    return read_fixed(written).resolve(0, zone(timezone)) if len(written) == 10 else instant(written)


def row(entry: Mapping[str, Any], names: tuple[str, str], timezone: str) -> tuple[int, int, str]:
    """Two times and the unit of an entry, all of the unit if it names none.

    >>> row({"low": "1970-01-01", "high": "1970-01-02"}, ("low", "high"), "UTC")
    (0, 86400000000, '{}')
    """
    first, second = (moment(entry[name], timezone) for name in names)
    return first, second, unit_of(entry.get("unit", {})).key
