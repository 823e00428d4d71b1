"""The inputs of an operator with two sides, and the watermark keys of an upstream join."""

from __future__ import annotations

import pytest

from slackwater.progress.watermark_policies import Lag
from slackwater.spark.runtime.operator_inputs import (
    EITHER,
    Inputs,
    ProgressHeaders,
    UpstreamProgress,
    UpstreamRules,
)
from slackwater.spark.runtime.source_progress import SourceRules
from slackwater.spark.wire.buffers import Observation, Peak, Result

ORDERS, MORE_ORDERS, DELIVERIES = (
    SourceRules(Lag(0), key=key, idle_after=10) for key in ("ordered", "ordered", "delivered")
)
RULES = (ORDERS, MORE_ORDERS, DELIVERIES)
SIDES = (0, 0, 1)


def seen(key: str, at: int | None) -> ProgressHeaders:
    return ProgressHeaders([] if at is None else [Observation("input", [Peak(at, 1)], key)])


def advance(inputs: Inputs, now: int, *times: int | None) -> None:
    headers = [seen(rules.key, at) for rules, at in zip(RULES, times, strict=True)]
    inputs.advance(headers, now)


def test_the_watermark_of_a_side_is_that_of_its_slowest_input() -> None:
    inputs = Inputs(RULES, 0, sides=SIDES)
    advance(inputs, 1, 20, None, 50)
    assert inputs.side_watermarks == [None, 50], "one of the left inputs has sent nothing"
    advance(inputs, 2, None, 12, 60)
    assert inputs.side_watermarks == [12, 60]
    assert inputs.watermark == 12


@pytest.mark.parametrize("restarts", [False, True])
def test_an_idle_input_does_not_hold_its_side_back(restarts: bool) -> None:
    inputs = Inputs(RULES, 0, sides=SIDES)
    advance(inputs, 1, 20, 12, 50)
    for now in (5, 9, 13):
        if restarts:
            inputs = Inputs(RULES, now - 4, inputs.save(), sides=SIDES)
        advance(inputs, now, 20 + now, None, None)
    assert inputs.side_watermarks == [33, 50]
    assert inputs.idle_sides == [False, True]
    assert not inputs.idle


def test_keys_of_one_side_do_not_wait_for_the_other() -> None:
    inputs = Inputs(RULES, 0, sides=SIDES)
    advance(inputs, 1, 20, 12, 50)
    assert inputs.watermarks == {"ordered": 12, "delivered": 50}
    assert inputs.why("delivered").watermark == 50
    assert inputs.why("ordered").watermark == 12


def test_progress_saved_without_sides_can_be_loaded() -> None:
    """Before sides could have several inputs, only the coalescer of all inputs was saved."""
    rules = (ORDERS, DELIVERIES)
    inputs = Inputs(rules, 0, sides=(0, 1))
    inputs.advance([seen("ordered", 20), seen("delivered", 50)], 1)
    saved = inputs.save()
    saved.sides = ()
    again = Inputs(rules, 1, saved, sides=(0, 1))
    assert again.side_watermarks == [20, 50]


def result(bucket: int, **watermarks: int) -> Result:
    return Result(bucket, 1, 1, False, False, watermarks)


@pytest.mark.parametrize(
    ("key", "watermark"), [("ordered", 15), ("delivered", 7), (EITHER, 7)], ids=["left", "right", "either"]
)
def test_an_upstream_join_sends_several_keys(key: str, watermark: int) -> None:
    rules = UpstreamRules((0, 1), key, ("ordered", "delivered"))
    progress = UpstreamProgress(rules)
    progress.advance([result(0, ordered=15, delivered=7), result(1, ordered=18)])
    assert progress.watermark == (15 if key == "ordered" else None)
    progress.advance([result(1, delivered=9)])
    assert progress.watermark == watermark
    assert progress.watermarks == {"ordered": 15, "delivered": 7, key: watermark}
    assert (progress.why().watermark, progress.why().key) == (watermark, key)
    assert UpstreamProgress(rules, progress.save()).watermark == watermark
