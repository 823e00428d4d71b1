"""Time windows of readers: each case advances a `TimeWindow`, or compares positions with one mark."""

from __future__ import annotations

from slackwater.streams.segments.cuts import compare
from slackwater.streams.time.marks import Mark
from slackwater.streams.time.time_windows import TimeWindow
from tests.conformance.framework import BrokenCase, Case, Fields, Step, equal, flag, run_steps
from tests.conformance.streams import Named

FIELDS = Fields({"segments", "marks", "steps"}, {"compare"})
STEPS = (Fields({"position", "window"}), Fields({"position", "result"}))
_MARK = Fields({"lower", "upper", "cut"})


def run(case: Case) -> None:
    named = Named(case)
    for mark in case["marks"]:
        _MARK.check(mark, "mark")
    marks = [Mark(mark["lower"], mark["upper"], named.position(mark["cut"])) for mark in case["marks"]]
    comparing = flag(case, "compare")
    if comparing and len(marks) != 1:
        raise BrokenCase("compare: needs exactly one mark")
    window = TimeWindow()

    def perform(step: Step) -> None:
        nonlocal window
        position = named.position(step["position"])
        if comparing:
            equal("result", step["result"], compare(position, marks[0].cut, named.by_id).value)
        else:
            window = window.advance(position, marks, named.by_id)
            equal("window", step["window"], [window.lower, window.upper])

    run_steps(case["steps"], perform)
