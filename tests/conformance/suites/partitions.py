"""Suite `partitions`: the partitions of an axis, through job keys and by the partitioner itself."""

from __future__ import annotations

from slackwater.ingest import parse_job
from slackwater.ingest.axis.partitions import partition
from slackwater.time import format_instant, instant
from tests.conformance.framework import BrokenCase, Case, Fields, equal, must_fail
from tests.support.ingest import moment

FIELDS = Fields({"type", "from", "to"}, {"partial", "timezone", "ranges", "count", "error"})
NOW = instant("9999-12-31T00:00:00Z")
"""Later than any case asks for: a sub-range without an end ends where the case does."""


def run(case: Case) -> None:
    if len(case.keys() & {"ranges", "count", "error"}) != 1:
        raise BrokenCase("a case has one of `ranges`, `count` and `error`")
    if "error" in case:
        must_fail(case["error"], lambda: _ranges(case))
    elif "count" in case:
        equal("count", case["count"], len(_ranges(case)))
    else:
        timezone = case.get("timezone", "UTC")
        expected = [tuple(moment(text, timezone) for text in pair) for pair in case["ranges"]]
        equal("ranges", _shown(expected), _shown(_ranges(case)))


def _ranges(case: Case) -> list[tuple[int, int]]:
    axis = {"name": "system", "type": "datetime", "range": {"from": case["from"], "to": case["to"]}}
    job = parse_job(
        {
            "ms.watermark": [axis],
            "ms.work.unit.partition": case["type"],
            "ms.work.unit.partial.partition": case.get("partial", True),
            "ms.timezone": case.get("timezone", "UTC"),
        },
        environment={},
    )
    keys = job.settings
    start, end = (bound.resolve(NOW, keys.timezone) for bound in (keys.axis.start, keys.axis.end))
    clock = keys.axis.start.clock(NOW, keys.timezone)
    return partition(
        keys.partition, start, end, keys.timezone, now=NOW, partial=keys.partial_partition, clock=clock
    ).ranges


def _shown(ranges: list[tuple[int, ...]] | list[tuple[int, int]]) -> list[tuple[str, ...]]:
    return [tuple(map(format_instant, pair)) for pair in ranges]
