"""Frame boundaries, at and above a time, also for negative times and offsets."""

from __future__ import annotations

from slackwater.time import frame_floor, frame_higher
from tests.conformance.framework import Case, Fields, equal

FIELDS = Fields({"size", "at", "floor", "higher"}, {"offset"})


def run(case: Case) -> None:
    offset = case.get("offset", 0)
    equal("floor", case["floor"], frame_floor(case["at"], case["size"], offset))
    equal("higher", case["higher"], frame_higher(case["at"], case["size"], offset))
