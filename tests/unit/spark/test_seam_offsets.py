"""The end of a history is part of the offsets, so that a restart cannot move it."""

from __future__ import annotations

import json

import pytest

from slackwater.errors import InvalidArgument
from slackwater.spark.versions import ReadAllAvailable
from slackwater.spark.wire.clock_source import TicksReader, is_tick


def reader(*seams: str) -> TicksReader:
    return TicksReader([0, 1], [10, 20, 30], None, seams=seams)


def test_every_offset_has_the_seams() -> None:
    first = reader("40", "70")
    start = first.initialOffset()
    later = first.latestOffset(start, ReadAllAvailable())
    assert start["seams"] == later["seams"] == ["40", "70"]
    assert is_tick(json.dumps(later))
    assert "seams" not in reader().initialOffset()


@pytest.mark.parametrize(
    ("before", "now", "message"),
    [
        (
            ["40"],
            ["41"],
            "until = '41': is not 40, the end of the history in the checkpoint: rows in between",
        ),
        (["40"], [], "until = None: is not 40, the end of the history"),
        ([], ["40"], "until = '40': is not None, the end of the history"),
    ],
)
def test_another_seam_is_refused(before: list[str], now: list[str], message: str) -> None:
    stored = reader(*before).latestOffset(reader(*before).initialOffset(), ReadAllAvailable())
    with pytest.raises(InvalidArgument, match=message):
        reader(*now).latestOffset(stored, ReadAllAvailable())
    assert reader(*before).latestOffset(stored, ReadAllAvailable())["tick"] == 2
