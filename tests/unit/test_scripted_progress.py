"""Scripts of watermarks: each subject gives what its own tests give, also over restarts."""

from __future__ import annotations

import pytest

from slackwater.errors import InvalidArgument, UnknownSource
from slackwater.progress.coalescer import Coalescer
from slackwater.progress.generator import WatermarkGenerator
from slackwater.progress.ordering import OrderedResults, UnorderedResults
from slackwater.progress.tracker import ProgressTracker
from slackwater.progress.values import IDLE, BufferHeader, Watermark
from slackwater.progress.watermark_policies import Lag, LagThenClock
from slackwater.testing import TestProgress

RESTARTS = pytest.mark.parametrize("restart", [False, True])


@RESTARTS
def test_a_coalescer_by_names_or_numbers(restart: bool) -> None:
    def emitted(left: str | int, right: str | int, subject: Coalescer) -> list[object]:
        script = TestProgress().watermark(left, 10).watermark(right, 7, key="order").idle(right)
        return script.event(right).watermark(right, 12).done(left).run(subject, restart=restart).emitted

    wanted = [Watermark(10), Watermark(12), Watermark(7, "order")]
    assert emitted("left", "right", Coalescer(["left", "right"])) == wanted
    assert emitted(0, 1, Coalescer(2)) == wanted


@RESTARTS
def test_a_generator_on_its_clock(restart: bool) -> None:
    script = TestProgress().observe("a", 20, at=1).tick(at=4).add("b").remove("b").tick(at="1 second")
    generator = WatermarkGenerator(LagThenClock(5), partitions=["a"], now=0, idle_after=1_000)
    run = script.run(generator, restart=restart)
    assert [step.emitted for step in run.steps] == [(Watermark(15),), (Watermark(18),), (), (), (IDLE,)]
    assert [step.now for step in run.steps] == [1, 4, 4, 4, 1_000_000]


@RESTARTS
def test_a_tracker_with_a_gap(restart: bool) -> None:
    def header(sequence: int) -> BufferHeader:
        return BufferHeader("a", sequence, watermarks={"default": 10 * sequence})

    script = TestProgress().buffer(header(2)).buffer(header(1)).buffer(header(1)).idle("a")
    assert script.run(ProgressTracker(), restart=restart).emitted == [Watermark(20), IDLE]


def test_the_order_of_async_results() -> None:
    script = (
        TestProgress().item("a").watermark(5).item("b").result("b", 2).item("c").result("a").result("c", None)
    )
    assert script.run(OrderedResults(3)).emitted == ["a", Watermark(5), 2]
    assert script.run(UnorderedResults(3)).emitted == [2, "a", Watermark(5)]


def test_mistakes_in_a_script_raise() -> None:
    with pytest.raises(InvalidArgument, match="action = 'buffer': is not an action of a WatermarkGenerator"):
        TestProgress().buffer(BufferHeader("a", 1)).run(WatermarkGenerator(Lag(0), now=0))
    with pytest.raises(UnknownSource, match="unknown input 'c'"):
        TestProgress().idle("c").run(Coalescer(["a", "b"]))
    with pytest.raises(InvalidArgument, match=r"result = 'a': is not a submitted item; call item\(\) first"):
        TestProgress().result("a").run(OrderedResults(1))
    with pytest.raises(InvalidArgument, match="item = 'b': exceeds the capacity"):
        TestProgress().item("a").item("b").run(OrderedResults(1))
    with pytest.raises(InvalidArgument, match="is before the current time"):
        TestProgress().tick(at=5).tick(at=4).run(WatermarkGenerator(Lag(0), now=0))


def test_the_story_of_a_run_has_a_line_for_each_action() -> None:
    script = (
        TestProgress().buffer(BufferHeader("a", 1, watermarks={"order": 5_000_000})).idle("a", at="2 seconds")
    )
    assert script.run(ProgressTracker()).story("s").splitlines() == [
        "clock | action   | value               | emitted",
        "0     | buffer a | sequence 1, chunk 1 | watermark order 5",
        "2     | idle a   |                     | idle",
    ]
