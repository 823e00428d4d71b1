"""Mistakes that users of other APIs make are reported on their line, with the call that was meant."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import slackwater as sw
from slackwater.errors import InvalidArgument
from slackwater.spark.api.stream_options import StreamOptions
from slackwater.spark.api.windowed import Windowed
from slackwater.windows import WindowSpec
from slackwater.windows.spec.windowing_strategy import WindowingStrategy

WINDOWED: Any = Windowed(stream=None, strategy=WindowingStrategy(window=sw.fixed("1 hour"), key=()))  # type: ignore[arg-type]


def options(**given: Any) -> StreamOptions:
    names = ("event_time", "event_times", "watermark", "headers", "origin", "origins")
    values: dict[str, Any] = {**dict.fromkeys(("df", *names, "idle_after", "max_ahead")), **given}
    return StreamOptions(**values)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: WINDOWED.trigger("1 minute"),
            "give a trigger, as in after_watermark(early=every(duration='1 minute'), late=every(count=1))",
        ),
        (
            lambda: WINDOWED.trigger(100),
            "give a trigger, as in after_watermark(early=every(count=100), late=every(count=1))",
        ),
        (
            lambda: options(event_time="at", watermark="10 seconds").source(sw.Ticks(())),
            "watermark = '10 seconds': is not a watermark policy; write watermark=lag('10 seconds')",
        ),
        (
            lambda: options(event_times={"at": 5}).source(sw.Ticks(())),
            "event_times['at'] = 5: is not a watermark policy; write {'at': lag(\"5 seconds\")}",
        ),
        (
            lambda: sw.session("30 minutes"),
            "is not the name of a Spark application; for session windows write sw.sessions(gap='30 minutes')",
        ),
        (lambda: sw.session(timedelta(hours=1)), "write sw.sessions(gap=datetime.timedelta(seconds=3600))"),  # type: ignore[arg-type]
    ],
)
def test_a_value_of_another_type_is_rejected_with_the_call_that_was_meant(
    call: Callable[[], object], message: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        call()
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("spelled", "kind"),
    [
        ("leftOuter", "left"),
        ("left_outer", "left"),
        ("RIGHT", "right"),
        ("rightouter", "right"),
        ("outer", "full"),
        ("fullouter", "full"),
        ("FULL_OUTER", "full"),
        ("leftsemi", "semi"),
        ("left_anti", "anti"),
        ("INNER", "inner"),
    ],
)
def test_a_join_accepts_the_spellings_of_spark(spelled: str, kind: str) -> None:
    assert sw.time_bounded_join("k", before="1 second", after="0 seconds", how=spelled).how == kind


def test_an_unknown_kind_of_join_is_rejected() -> None:
    with pytest.raises(InvalidArgument, match=r"how = 'cross': .* use one of inner, left, right, full, semi"):
        sw.time_bounded_join("k", before="1 second", after="0 seconds", how="cross")
    with pytest.raises(InvalidArgument, match=r"how = 'right_outer': .* use one of left, inner"):
        sw.asof_join("k", how="right_outer")


def test_a_similar_value_is_suggested() -> None:
    with pytest.raises(InvalidArgument, match=r"accumulating_and_retracting\. Did you mean 'discarding'\?"):
        WindowSpec(
            window=sw.fixed("1 hour"),
            key=(),
            accumulations={"n": sw.count()},
            event_time="ts",
            mode="discard",  # type: ignore[arg-type]
        )


def test_the_trigger_that_the_error_names_is_accepted() -> None:
    named = sw.after_watermark(early=sw.every(duration="1 minute"), late=sw.every(count=1))
    assert WINDOWED.trigger(named).strategy.trigger == named
