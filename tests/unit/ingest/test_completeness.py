"""Completeness: no unread data before the complete time, in whatever order units succeed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.ingest import History, Job, Plan, parse_job, plan, unit_of
from slackwater.ingest.plan.plan_completeness import PlanCompleteness
from slackwater.ingest.plan.plan_report import warnings_of
from slackwater.time import DAY, instant

START = instant("2020-01-01T00:00:00Z")
UNITS = ["a", "b", "c"]
JOB = {
    "ms.watermark": [
        {"name": "system", "type": "datetime", "range": {"from": "2020-01-01", "to": "P0D"}},
        {"name": "site", "type": "unit", "units": UNITS},
    ],
    "ms.work.unit.partition": "daily",
}


@given(st.data())
def test_the_complete_time_is_the_lowest_from_which_a_unit_is_still_to_be_read(data: st.DataObject) -> None:
    places = [(START + day * DAY, unit_of({"site": name})) for day in range(4) for name in UNITS]
    read = [each for each in places if data.draw(st.booleans())]
    keys = {
        "ms.work.unit.parallelism.max": data.draw(st.sampled_from([-1, 2, 5])),
        "ms.grace.period.days": data.draw(st.integers(0, 2)),
    }
    history = History((start, unit.key, start + DAY) for start, unit in read)
    made = plan(parse_job({**JOB, **keys}), history, START + 4 * DAY)
    complete = PlanCompleteness(made)
    missing = {each: each[0] for each in places if each not in read}
    for work in data.draw(st.permutations(list(made.units))):
        identity = (work.start, work.unit)
        rest = [at for each, at in missing.items() if each != identity]
        assert complete.time_without(*identity) == min(rest, default=START + 4 * DAY)
        if data.draw(st.booleans()):
            complete.succeed(*identity)
            missing.pop(identity, None)


def test_an_incomplete_partition_that_is_left_to_a_later_run_is_not_complete() -> None:
    keys = {"ms.work.unit.partial.partition": False, "ms.work.unit.partition": "monthly"}
    made = plan(parse_job({**JOB, **keys}), History(), instant("2020-02-10T00:00:00Z"))
    complete = PlanCompleteness(made)
    for work in made.units[1:]:
        complete.succeed(work.start, work.unit)
    assert complete.time_without(START, made.units[0].unit) == instant("2020-02-01T00:00:00Z")


def days(*numbers: int) -> History:
    return History(
        (START + day * DAY, unit_of({"site": "a"}).key, START + (day + 1) * DAY) for day in numbers
    )


def recent(units: Sequence[str] = ("a",), abstinent: int = 0) -> Job:
    """A job that reads the last two days."""
    system = {"name": "system", "type": "datetime", "range": {"from": "P2D", "to": "P0D"}}
    axes = [system, {"name": "site", "type": "unit", "units": list(units)}]
    return parse_job({**JOB, "ms.watermark": axes, "ms.abstinent.period.days": abstinent})


def complete_after_all(made: Plan) -> int:
    complete = PlanCompleteness(made)
    for work in made.units:
        complete.succeed(work.start, work.unit)
    return complete.time_without(0, unit_of({"site": "none"}))


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        ((0, 1, 2, 3, 4), 7),
        ((0, 1, 2, 4), 3),  # day 3 failed, and is before the range now
        ((0, 1, 2), 3),  # no run since
        ((2, 4), 3),
        ((), 7),  # the first run
        ((3, 4), 7),  # what is before the first success was never expected
    ],
)
def test_days_that_left_the_range_unread_hold_the_time_back(read: tuple[int, ...], expected: int) -> None:
    made = plan(recent(), days(*read), START + 7 * DAY)
    assert made.start == START + 5 * DAY
    assert complete_after_all(made) == START + expected * DAY
    assert (made.never_read is not None) == (expected < 7)
    assert len(warnings_of(made)) == (expected < 7)


def test_a_unit_that_the_job_no_longer_has_holds_nothing_back() -> None:
    history = days(0, 1, 2)
    for day in range(7):
        history.succeeded(START + day * DAY, unit_of({"site": "b"}).key, START + (day + 1) * DAY)
    assert complete_after_all(plan(recent(["b"]), history, START + 7 * DAY)) == START + 7 * DAY
    assert complete_after_all(plan(recent(["a", "b"]), history, START + 7 * DAY)) == START + 3 * DAY


def test_an_earlier_start_reads_what_was_left_unread() -> None:
    made = plan(parse_job({**JOB, "ms.backfill": True}), days(0, 1, 2, 4), START + 7 * DAY)
    assert made.never_read is None
    assert complete_after_all(made) == START + 7 * DAY


def test_what_the_abstinent_period_leaves_out_holds_nothing_back() -> None:
    job = recent(abstinent=1)
    assert plan(job, days(0, 2, 4), START + 7 * DAY).never_read is None
    assert plan(job, days(0, 2, 3), START + 7 * DAY).never_read == START + 4 * DAY


def test_a_time_in_the_future_is_not_complete() -> None:
    axes = [{"name": "system", "type": "datetime", "range": {"from": "2020-01-01", "to": "2030-01-01"}}]
    made = plan(parse_job({**JOB, "ms.watermark": axes}), History(), START + 2 * DAY)
    assert complete_after_all(made) == START + 2 * DAY
