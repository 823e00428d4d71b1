"""Settings of streams and writers: durations with units, and what an earlier release has saved."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from slackwater.errors import CorruptState, InvalidArgument, InvalidDuration
from slackwater.streams.log.writer import Batching
from slackwater.streams.settings import MarkSettings, Retention, ScalingPolicy, StreamSettings
from slackwater.time import DAY, SECOND

DURATIONS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda given: MarkSettings(period=given), "period"),
    (lambda given: MarkSettings(timeout=given), "timeout"),
    (lambda given: MarkSettings(max_ahead=given), "max_ahead"),
    (lambda given: Retention(age=given), "age"),
    (lambda given: ScalingPolicy(rate=1, window=given), "window"),
    (lambda given: Batching(interval=given), "interval"),
]


@pytest.mark.parametrize(("make", "name"), DURATIONS)
def test_durations_have_a_unit(make: Callable[[Any], Any], name: str) -> None:
    for given in ("7 days", "P7D", timedelta(days=7)):
        assert getattr(make(given), name) == 7 * DAY
    for bare in (7, 7.0):
        with pytest.raises(InvalidDuration, match=f"{name} = .*: a bare number has no unit"):
            make(bare)
    for given in ("0 seconds", "-1 day"):
        with pytest.raises(InvalidArgument, match="must be greater than zero"):
            make(given)


def test_settings_of_the_previous_release_are_loaded() -> None:
    saved = {
        "marks": {"period": 2_000_000, "timeout": 60_000_000},
        "retention": {"age": 604_800_000_000, "size": 1_000},
        "scaling": {"rate": 5, "minimum": 2, "maximum": 8, "window": 120_000_000},
    }
    wanted = StreamSettings(
        MarkSettings(period="2 seconds"), Retention("7 days", 1_000), ScalingPolicy(5, 2, 8, "2 minutes")
    )
    assert StreamSettings.load(saved) == wanted
    nothing = {"marks": {}, "retention": {"age": None, "size": None}, "scaling": None}
    assert StreamSettings.load(nothing) == StreamSettings()
    assert StreamSettings.load(wanted.save()) == wanted
    assert wanted.save()["marks"] == {"period": 2 * SECOND, "timeout": 60 * SECOND, "max_ahead": None}


@pytest.mark.parametrize("saved", [{"marks": {"period": "?"}}, {"marks": 5}, {"else": {}}, {"scaling": {}}])
def test_damaged_settings_are_reported(saved: dict[str, Any]) -> None:
    with pytest.raises(CorruptState, match="settings of the stream"):
        StreamSettings.load(saved)
