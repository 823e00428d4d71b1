"""Completeness: no unread data before the complete time, in whatever order units succeed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slackwater.ingest import History, parse_job, plan, unit_of
from slackwater.ingest.plan.plan_completeness import PlanCompleteness
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
