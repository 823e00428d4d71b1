"""Invalid arguments of the progress classes are rejected by name, and no state changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from slackwater.errors import (
    AfterDone,
    InvalidArgument,
    ProgressError,
    SequenceConflict,
    SlackwaterError,
    UnknownSource,
    WatermarkRegression,
)
from slackwater.progress.coalescer import Coalescer, OperatorCoalescer
from slackwater.progress.generator import WatermarkGenerator
from slackwater.progress.numbering import OutputNumbering, Rechunker
from slackwater.progress.ordering import OrderedResults, Ticket, UnorderedResults
from slackwater.progress.pipeline_plan import Kind, PipelinePlan, PlanNode
from slackwater.progress.tracker import ProgressTracker
from slackwater.progress.values import BufferHeader, Watermark
from slackwater.progress.watermark_policies import Constant, Lag, lag
from slackwater.time import END_OF_TIME

anything: Callable[..., Watermark] = Watermark
any_header: Callable[..., BufferHeader] = BufferHeader


def _coalescer() -> Coalescer:
    coalescer = Coalescer(["orders", "clicks"])
    coalescer.watermark(0, Watermark(10, "order_time"))
    coalescer.done(1)
    return coalescer


@pytest.mark.parametrize(
    ("step", "error", "named"),
    [
        (lambda c: c.watermark(0, Watermark(9, "order_time")), WatermarkRegression, ["'orders'", "9", "10"]),
        (
            lambda c: c.watermark(0, Watermark(9, "order_time")),
            WatermarkRegression,
            ["'order_time'", "is lower than the previous watermark 10"],
        ),
        (lambda c: c.watermark(0, Watermark(10, "order_time")), WatermarkRegression, ["'orders'", "equals"]),
        (lambda c: c.watermark(1, Watermark(99)), AfterDone, ["'clicks'", "99 of key 'default'"]),
        (lambda c: c.idle(1), AfterDone, ["'clicks'", "IDLE"]),
        (lambda c: c.done(1), AfterDone, ["'clicks'", "DONE"]),
        (lambda c: c.event(1), AfterDone, ["'clicks'", "an event"]),
        (lambda c: c.watermark(2, Watermark(1)), UnknownSource, ["input 2", "orders, clicks"]),
        (lambda c: c.watermark(-1, Watermark(1)), UnknownSource, ["input -1"]),
        (lambda c: c.watermark(0, anything(1.5)), InvalidArgument, ["watermark = 1.5", "float"]),
        (lambda c: c.watermark(0, Watermark(True)), InvalidArgument, ["watermark = True"]),
        (lambda c: c.watermark(0, Watermark(2**63)), InvalidArgument, ["64 bits"]),
        (lambda c: c.watermark(0, Watermark(11, "")), InvalidArgument, ["key = ''"]),
        (lambda c: c.watermark(0, Watermark(11, "k" * 201)), InvalidArgument, ["1 to 200 characters"]),
    ],
)  # fmt: skip
def test_coalescer(step: Callable[[Coalescer], Any], error: type[SlackwaterError], named: list[str]) -> None:
    coalescer = _coalescer()
    before = coalescer.save()
    with pytest.raises(error) as caught:
        step(coalescer)
    for part in named:
        assert part in str(caught.value)
    assert coalescer.save() == before


@pytest.mark.parametrize("inputs", [0, -1, [], "orders", ["a", "a"], ["a", ""], [1, 2]])
def test_coalescer_inputs(inputs: Any) -> None:
    with pytest.raises(InvalidArgument, match="inputs = "):
        Coalescer(inputs)


def test_operator_coalescer() -> None:
    with pytest.raises(InvalidArgument, match="at least one edge"):
        OperatorCoalescer([])
    with pytest.raises(UnknownSource, match="edge 3"):
        OperatorCoalescer([1]).watermark(3, 0, Watermark(1))


@pytest.mark.parametrize(
    ("header", "error", "named"),
    [
        (BufferHeader("x", 1), UnknownSource, ["origin 'x'", "a, b"]),
        (BufferHeader("a", 0), SequenceConflict, ["origin 'a'", "sequence 0", "must be at least 1"]),
        (BufferHeader("a", 1, 0), SequenceConflict, ["chunk 0"]),
        (BufferHeader("a", -1), SequenceConflict, ["sequence -1"]),
        (BufferHeader("a", 5, 4), SequenceConflict, ["sequence 5, chunk 4", "chunk 3 was flagged before"]),
        (BufferHeader("a", 5, 4, False), SequenceConflict, ["is greater than the last chunk, 3"]),
        (BufferHeader("a", 5, 3, False), SequenceConflict, ["not the last chunk"]),
        (BufferHeader("a", 5, 1, True), SequenceConflict, ["arrived before", "flagged as the last chunk"]),
        (
            BufferHeader("a", 6, 1, True),
            SequenceConflict,
            ["is flagged as the last chunk, but chunk 2 has arrived"],
        ),
        (BufferHeader("b", 2), AfterDone, ["origin 'b'", "sequence 2"]),
        (any_header("a", "1"), InvalidArgument, ["sequence = '1'"]),
        (any_header("a", 1, 1.0), InvalidArgument, ["chunk = 1.0"]),
        (any_header("a", 1, watermarks={"k": "soon"}), InvalidArgument, ["watermark of key 'k' = 'soon'"]),
        (BufferHeader("a", 1, watermarks={"k": 1, "l": 2**64}), InvalidArgument, ["key 'l'", "64 bits"]),
        (BufferHeader("a", 1, watermarks={"": 1}), InvalidArgument, ["key = ''"]),
    ],
)
def test_tracker(header: Any, error: type[SlackwaterError], named: list[str]) -> None:
    tracker = ProgressTracker(["a", "b"])
    tracker.observe(BufferHeader("b", 1, watermarks={"default": 5}))
    tracker.done("b")
    tracker.observe(BufferHeader("a", 5, 1, False))
    tracker.observe(BufferHeader("a", 5, 3, True))
    tracker.observe(BufferHeader("a", 6, 2, False))
    before = tracker.save()
    with pytest.raises(error) as caught:
        tracker.observe(header)
    for part in named:
        assert part in str(caught.value)
    assert tracker.save() == before


@pytest.mark.parametrize("origins", ["abc", ["a", "a"], [None], [1.5], [True]])
def test_tracker_origins(origins: Any) -> None:
    with pytest.raises(InvalidArgument):
        ProgressTracker(origins)


def test_tracker_does_not_add_the_origin_of_a_rejected_buffer() -> None:
    tracker = ProgressTracker()
    for header in (BufferHeader("a", 0), BufferHeader("a", 1, watermarks={"k": 2**64})):
        with pytest.raises(SlackwaterError):
            tracker.observe(header)
    assert tracker.origins == ()


def test_tracker_rejects_unknown_origins() -> None:
    with pytest.raises(UnknownSource, match="origin 'x'"):
        ProgressTracker(["a"]).local("x")


def test_changing_the_dictionary_of_a_header_later_has_no_effect() -> None:
    watermarks = {"default": 20}
    tracker = ProgressTracker()
    tracker.observe(BufferHeader("a", 2, watermarks=watermarks))
    watermarks["default"] = 999
    tracker.observe(BufferHeader("a", 1))
    assert tracker.current() == 20


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"policy": "5 seconds"}, "policy = "),
        ({"idle_after": 0}, "idle_after = 0"),
        ({"idle_after": -5}, "idle_after = -5"),
        ({"frame": -1}, "frame = -1"),
        ({"max_ahead": -1}, "max_ahead = -1"),
        ({"key": ""}, "key = ''"),
        ({"partitions": ["a", "a"]}, "partition = 'a'"),
    ],
)
def test_generator_settings(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidArgument, match=named):
        WatermarkGenerator(**{"policy": Lag(0), "now": 0, **arguments})


def test_generator_partitions_and_timestamps() -> None:
    generator = WatermarkGenerator(Lag(0), partitions=["a"], now=0)
    before = generator.save()
    with pytest.raises(UnknownSource, match="partition 'x'"):
        generator.observe("x", 1, now=1)
    with pytest.raises(UnknownSource, match="partition 'x'"):
        generator.remove("x", now=1)
    with pytest.raises(InvalidArgument, match="timestamp = 'soon'"):
        generator.observe("a", "soon", now=1)  # type: ignore[arg-type]  # must be rejected
    with pytest.raises(InvalidArgument, match=r"watermark = 0\.5"):
        generator.restore({"a": 0.5}, now=1)  # type: ignore[dict-item]  # likewise
    assert generator.save() == before


@pytest.mark.parametrize("make", [lambda: Lag(-1), lambda: lag("-1 second"), lambda: Constant(2**63)])
def test_policies(make: Callable[[], object]) -> None:
    with pytest.raises(InvalidArgument):
        make()


@pytest.mark.parametrize("stage", [OrderedResults[str](), UnorderedResults[str]()])
def test_tickets_are_completed_once(stage: OrderedResults[str] | UnorderedResults[str]) -> None:
    ticket = stage.submit()
    assert ticket is not None
    stage.complete(ticket, "a")
    with pytest.raises(ProgressError, match="completed before"):
        stage.complete(ticket, "a")
    with pytest.raises(ProgressError, match="never issued"):
        stage.complete(Ticket(99), "a")


def test_numbering() -> None:
    with pytest.raises(InvalidArgument, match="buffers = 0"):
        OutputNumbering("w").number(0)
    with pytest.raises(InvalidArgument, match="buffers = 0"):
        Rechunker("a").rechunk(BufferHeader("a", 1), 0)
    with pytest.raises(InvalidArgument, match="one rechunker for each origin"):
        Rechunker("a").rechunk(BufferHeader("b", 1))


def test_plans() -> None:
    source = PlanNode("bids", Kind.SOURCE)
    with pytest.raises(InvalidArgument, match="is a source and has inputs"):
        PlanNode("x", Kind.SOURCE, (source,))
    with pytest.raises(InvalidArgument, match="has no input"):
        PlanNode("x", Kind.STATEFUL)
    filtered = PlanNode("filter", Kind.STATELESS, (source,))
    with pytest.raises(InvalidArgument, match="is not an origin of this pipeline"):
        PipelinePlan(filtered).number(filtered)


def test_times_at_the_edge_of_64_bits_do_not_overflow() -> None:
    generator = WatermarkGenerator(Lag(100), partitions=["a"], now=0, frame=10**9)
    assert generator.observe("a", -(2**63), now=0) == (Watermark(-(2**63)),)
    assert generator.observe("a", END_OF_TIME, now=0)
    assert generator.load(generator.save()).current == generator.current
