"""Reports of a plan: as JSON, as warnings, and as time ranges by what happens to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from slackwater import _notebook_html as notebook
from slackwater.ingest.job_errors import OverlappingPartitions
from slackwater.ingest.plan.planner import RUN_REASONS, SKIP_REASONS, Plan, SkippedUnit, WorkUnit
from slackwater.time import Range, format_instant

Fate = Literal["new", "again", "read", "waits", "later", "left out"]
FATES: Final[dict[str, str]] = {
    "new": "read for the first time",
    "again": "read again",
    "read": "read before",
    "waits": "waits for its abstinent period",
    "later": "left to a later run",
    "left out": "left out",
}
"""What a plan does with a time range, in words."""
OMISSIONS: Final = {
    "gap": "in no sub-range of ms.work.unit.partition",
    "incomplete": "an incomplete partition, and ms.work.unit.partial.partition is false",
}
"""Why no partition covers a time range, in words."""
_LATER: Final = frozenset({"parallelism", "not-failed"})
"""Reasons for which a unit is left to a later run."""


def warnings_of(plan: Plan) -> list[str]:
    """Warnings about a plan that is valid but probably not intended.

    >>> from slackwater.ingest import WHOLE, WorkUnit
    >>> from slackwater.ingest.plan.planner import SkippedUnit
    >>> again, new = WorkUnit(0, 10, WHOLE, 5, 10, 5), SkippedUnit(10, 20, WHOLE, None, None, "parallelism")
    >>> print(*warnings_of(Plan("j", "system", 20, 0, 20, [again], [new], (), 5)))
    re-reads within the grace period use up the whole run, so units with unread data (1) never run; \
raise ms.work.unit.parallelism.max, or shorten the grace period
    """
    warnings = list(plan.doubts)
    if plan.never_read is not None:
        since = format_instant(plan.never_read)
        problem = f"a range from {since} on was not read, and is before the range of the job"
        fix = "run once with an earlier from"
        warnings.append(f"{problem}; the target does not state to be complete beyond it; {fix}")
    if plan.overlaps:
        warnings.append(str(OverlappingPartitions(plan.overlaps)))
    waiting = [unit for unit in plan.skipped if unit.reason == "parallelism" and unit.unread is not None]
    if waiting and all(work.reason == "grace" for work in plan.units):
        problem = f"units with unread data ({len(waiting)}) never run"
        fix = "raise ms.work.unit.parallelism.max, or shorten the grace period"
        warnings.append(f"re-reads within the grace period use up the whole run, so {problem}; {fix}")
    return warnings


def plan_as_json(plan: Plan) -> dict[str, Any]:
    """A plan as a JSON object, with times in ISO 8601.

    >>> from slackwater.ingest import History, parse_job, plan
    >>> shown = plan_as_json(plan(parse_job({}), History(), 1_577_836_800_000_000))
    >>> shown["units"][0]["high"], shown["units"][0]["reason"], shown["skipped"]
    ('2020-01-01T00:00:00Z', 'new', [])
    """
    return {
        "job": plan.job,
        "watermark": plan.watermark,
        "now": format_instant(plan.now),
        "from": format_instant(plan.start),
        "to": format_instant(plan.end),
        "overall_cut_off": _time(plan.overall),
        "units": [_unit(plan, index, work) for index, work in enumerate(plan.units)],
        "skipped": [_skipped(unit) for unit in plan.skipped],
        "left_out": [
            {
                "from": format_instant(each.start),
                "to": format_instant(each.end),
                "reason": each.reason,
                "why": OMISSIONS[each.reason],
            }
            for each in plan.omissions
        ],
        "warnings": warnings_of(plan),
    }


def _unit(plan: Plan, index: int, work: WorkUnit) -> dict[str, Any]:
    return {
        "unit": work.unit.as_dict(),
        "low": format_instant(work.low),
        "high": format_instant(work.high),
        "partition": [format_instant(work.start), format_instant(work.end)],
        "high_watermark": _time(work.previous),
        "own_cut_off": _time(work.own),
        "owed_from": _time(work.owed),
        "left_out": _range(work.left_out),
        "not_before": format_instant(plan.not_before(index)),
        "reason": work.reason,
        "why": RUN_REASONS[work.reason],
    }


def _skipped(unit: SkippedUnit) -> dict[str, Any]:
    return {
        "unit": unit.unit.as_dict(),
        "partition": [format_instant(unit.start), format_instant(unit.end)],
        "high_watermark": _time(unit.previous),
        "own_cut_off": _time(unit.own),
        "unread": _range(unit.unread),
        "left_out": _range(unit.left_out),
        "reason": unit.reason,
        "why": SKIP_REASONS[unit.reason],
    }


def _time(at: int | None) -> str | None:
    return None if at is None else format_instant(at)


def _range(stretch: Range | None) -> list[str] | None:
    return None if stretch is None else [format_instant(stretch.start), format_instant(stretch.end)]


def plan_html(plan: Plan) -> str:
    """A plan for notebooks: time ranges by what happens to them, and the units with their reasons.

    >>> from slackwater.ingest import WHOLE, WorkUnit
    >>> work = WorkUnit(0, 20, WHOLE, 5, 10, 5)
    >>> "1 unit to read" in plan_html(Plan("j", "system", 20, 0, 20, [work], [], (), 5))
    True
    """
    reads = f"{len(plan.units)} {'unit' if len(plan.units) == 1 else 'units'} to read"
    parts = [notebook.sentence(f"{plan.job}: {reads}, {len(plan.skipped)} skipped", strong=True)]
    parts += [notebook.sentence(warning) for warning in warnings_of(plan)]
    by_fate = sorted(stretches(plan).items(), key=lambda item: (list(FATES).index(item[0][2]), item[0]))
    spans = [
        notebook.TimeSpan(f"{fate}, {count} units" if count > 1 else fate, start, end, fate)
        for (start, end, fate), count in by_fate
    ]
    parts.append(notebook.timeline(spans, [("now", plan.now)]))
    parts.append(
        notebook.table(
            ["unit", "from", "to", "why"],
            [
                (_unit_text(work.unit.as_dict()), _time(work.low), _time(work.high), RUN_REASONS[work.reason])
                for work in plan.units
            ],
        )
    )
    if plan.skipped:
        parts.append(notebook.sentence("skipped"))
        rows = [
            (_unit_text(unit.unit.as_dict()), _time(unit.start), _time(unit.end), SKIP_REASONS[unit.reason])
            for unit in plan.skipped
        ]
        parts.append(notebook.table(["unit", "from", "to", "why"], rows))
    return notebook.fragment(*parts)


def _unit_text(unit: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in unit.items()) or "all"


def stretches(plan: Plan) -> Counter[tuple[int, int, str]]:
    """The number of units by time range and what the plan does with it, as ``(start, end, fate)``.

    >>> from slackwater.ingest import WHOLE, WorkUnit
    >>> work = WorkUnit(0, 20, WHOLE, 5, 10, 5)
    >>> sorted(stretches(Plan("j", "system", 20, 0, 20, [work], [], (), 5)).items())
    [((0, 5, 'read'), 1), ((5, 10, 'again'), 1), ((10, 20, 'new'), 1)]
    """
    return Counter(each for each in _stretches(plan) if each[0] < each[1])


def _stretches(plan: Plan) -> Iterator[tuple[int, int, Fate]]:
    for work in plan.units:
        reached = work.start if work.previous is None else min(max(work.start, work.previous), work.end)
        yield work.start, min(reached, work.low), "read"
        yield reached, work.low, "left out"
        yield work.low, reached, "again"
        yield max(work.low, reached), work.end, "new"
    for unit in plan.skipped:
        reached = unit.start if unit.previous is None else min(max(unit.start, unit.previous), unit.end)
        yield unit.start, reached, "read"
        yield reached, unit.end, _fate_of_unread(unit)
    for omission in plan.omissions:
        yield omission.start, omission.end, "left out"


def _fate_of_unread(unit: SkippedUnit) -> Fate:
    if unit.left_out is not None:
        return "left out"
    return "later" if unit.reason in _LATER else "waits"
