"""why(): what holds the watermark back, since when, and for which of the five reasons."""

from __future__ import annotations

import pytest

from slackwater.progress.coalescer import Coalescer, OperatorCoalescer
from slackwater.progress.explanation import Explanation, Gap, Reason
from slackwater.progress.generator import WatermarkGenerator
from slackwater.progress.tracker import ProgressTracker
from slackwater.progress.values import IDLE, BufferHeader, Watermark
from slackwater.progress.watermark_policies import Lag


def _buffer(origin: str, sequence: int, watermark: int, chunk: int = 1, *, last: bool = True) -> BufferHeader:
    return BufferHeader(origin, sequence, chunk, last, {"default": watermark})


class TestCoalescer:
    def test_never_spoke(self) -> None:
        coalescer = Coalescer(["orders", "clicks", "returns"], now=100)
        coalescer.watermark(0, Watermark(10), now=101)
        why = coalescer.why()
        assert (why.reason, why.held_by, why.since, why.others) == (
            Reason.NEVER_SPOKE,
            "input 'clicks'",
            100,
            1,
        )
        assert why.watermark is None

    def test_slowest_since_its_last_advance(self) -> None:
        coalescer = Coalescer(2, now=100)
        coalescer.watermark(0, Watermark(10), now=101)
        coalescer.watermark(1, Watermark(20), now=102)
        coalescer.watermark(1, Watermark(30), now=103)
        why = coalescer.why()
        assert (why.reason, why.held_by, why.since) == (Reason.SLOWEST, "input 0", 101)
        assert (why.watermark, why.holder_watermark) == (10, 10)

    def test_recovered_input_behind_the_emitted_watermark(self) -> None:
        coalescer = Coalescer(2)
        coalescer.watermark(0, Watermark(1))
        coalescer.idle(0)
        coalescer.watermark(1, Watermark(100))
        coalescer.event(0)
        why = coalescer.why()
        assert (why.watermark, why.held_by, why.holder_watermark) == (100, "input 0", 1)

    def test_all_idle_since_the_last_became_idle(self) -> None:
        coalescer = Coalescer(2)
        coalescer.idle(1, now=5)
        coalescer.idle(0, now=7)
        why = coalescer.why()
        assert (why.reason, why.held_by, why.since) == (Reason.IDLE, None, 7)
        assert "every input is idle since" in str(why)

    def test_all_done(self) -> None:
        coalescer = Coalescer(1)
        coalescer.watermark(0, Watermark(3))
        coalescer.done(0, now=9)
        assert (coalescer.why().reason, coalescer.why().since) == (Reason.DONE, 9)

    def test_keys_are_explained_separately(self) -> None:
        coalescer = Coalescer(2)
        coalescer.watermark(0, Watermark(1, "order_time"))
        coalescer.watermark(1, Watermark(2, "delivery_time"))
        assert coalescer.why("order_time").held_by == "input 1"
        assert coalescer.why("delivery_time").held_by == "input 0"
        assert coalescer.why("never heard of").reason is Reason.NEVER_SPOKE

    def test_since_survives_a_restart(self) -> None:
        coalescer = Coalescer(["a", "b"], now=100)
        coalescer.watermark(0, Watermark(10), now=101)
        assert Coalescer.load(coalescer.save()).why() == coalescer.why()

    def test_an_operator_names_the_edge_and_the_edge_its_channel(self) -> None:
        operator = OperatorCoalescer([["left-0", "left-1"], 1])
        operator.watermark(0, 0, Watermark(5))
        operator.watermark(1, 0, Watermark(5))
        assert operator.why().held_by == "input 'edge 0'"
        assert operator.edge(0).why().held_by == "input 'left-1'"


class TestTracker:
    def test_gap_names_sequence_and_missing_chunks(self) -> None:
        tracker = ProgressTracker(["a", "b"], now=0)
        tracker.observe(_buffer("a", 1, 50), now=1)
        tracker.observe(_buffer("b", 1, 10), now=2)
        tracker.observe(_buffer("b", 2, 20, chunk=1, last=False), now=3)
        tracker.observe(_buffer("b", 2, 20, chunk=4), now=4)
        why = tracker.why()
        assert (why.reason, why.held_by, why.since) == (Reason.GAP, "origin 'b'", 3)
        assert why.gap == Gap(2, ((2, 3),))
        assert "gap at sequence 2 (chunks missing: 2-3)" in str(why)

    def test_gap_of_a_sequence_without_any_chunk(self) -> None:
        tracker = ProgressTracker()
        tracker.observe(_buffer("a", 1, 10), now=1)
        tracker.observe(_buffer("a", 3, 30), now=2)
        assert tracker.why().gap == Gap(2, ((1, None),))
        assert tracker.why().since == 2

    def test_since_is_renewed_when_one_gap_closes_and_the_next_opens(self) -> None:
        tracker = ProgressTracker()
        tracker.observe(_buffer("a", 2, 20), now=1)
        tracker.observe(_buffer("a", 4, 40), now=2)
        tracker.observe(_buffer("a", 1, 10), now=9)
        assert tracker.why().gap == Gap(3, ((1, None),))
        assert tracker.why().since == 9
        tracker.observe(_buffer("a", 3, 30), now=10)
        assert tracker.why().reason is Reason.SLOWEST

    def test_unknown_end_of_a_sequence(self) -> None:
        tracker = ProgressTracker()
        tracker.observe(_buffer("a", 1, 10, chunk=2, last=False))
        assert str(tracker.why().gap) == "gap at sequence 1 (chunks missing: 1, 3 and on)"

    def test_an_origin_without_a_watermark_of_the_key(self) -> None:
        tracker = ProgressTracker()
        tracker.observe(BufferHeader("a", 1), now=4)
        assert (tracker.why().reason, tracker.why().since) == (Reason.NEVER_SPOKE, 4)

    def test_no_origins(self) -> None:
        assert "there is no input" in str(ProgressTracker().why())

    def test_idle_and_done(self) -> None:
        tracker = ProgressTracker(["a"])
        tracker.idle("a", now=3)
        assert (tracker.why().reason, tracker.why().since) == (Reason.IDLE, 3)
        tracker.done("a", now=5)
        assert (tracker.why().reason, tracker.why().since) == (Reason.DONE, 5)


class TestGenerator:
    def test_slowest_partition(self) -> None:
        generator = WatermarkGenerator(Lag(0), partitions=["p0", "p1"], now=0)
        generator.observe("p0", 10, now=1)
        generator.observe("p1", 20, now=2)
        why = generator.why()
        assert (why.reason, why.held_by, why.since) == (Reason.SLOWEST, "partition 'p0'", 1)

    def test_idle(self) -> None:
        generator = WatermarkGenerator(Lag(0), partitions=["p0"], now=0, idle_after=5)
        generator.tick(now=5)
        assert generator.why().reason is Reason.IDLE

    def test_no_partition(self) -> None:
        assert "there is no input" in str(WatermarkGenerator(Lag(0), now=0).why())

    def test_a_generator_that_discovers_partitions_is_not_idle_before_the_first_one(self) -> None:
        generator = WatermarkGenerator(Lag(0), now=0)
        assert generator.tick(now=5) == ()
        generator = generator.load(generator.save())
        assert generator.tick(now=6) == ()
        assert generator.why().reason is Reason.NEVER_SPOKE
        generator.add("p0", now=7)
        assert generator.observe("p0", 10, now=7) == (Watermark(10),)
        assert generator.remove("p0", now=8) == (IDLE,)
        assert generator.why().reason is Reason.IDLE

    def test_a_generator_with_an_empty_list_of_partitions_is_idle(self) -> None:
        generator = WatermarkGenerator(Lag(0), partitions=[], now=0)
        assert generator.tick(now=5) == (IDLE,)
        assert generator.why().reason is Reason.IDLE

    def test_a_generator_without_partitions_does_not_release_other_inputs(self) -> None:
        coalescer = Coalescer(["orders", "clicks"])
        coalescer.watermark(0, Watermark(100))
        for emission in WatermarkGenerator(Lag(0), now=0).tick(now=5):
            assert not isinstance(emission, Watermark)
            coalescer.idle(1)
        assert coalescer.current() is None


@pytest.mark.parametrize(
    ("explanation", "text"),
    [
        (
            Explanation("default", 5_000_000, Reason.SLOWEST, "input 0", since=9_000_000),
            "watermark 1970-01-01T00:00:05Z: held back by input 0 since 1970-01-01T00:00:09Z (slowest)",
        ),
        (
            Explanation("order_time", None, Reason.NEVER_SPOKE, "origin 'b'", others=2),
            "watermark of key 'order_time' unknown: held back by origin 'b' (never spoke), and 2 more",
        ),
    ],
)  # fmt: skip
def test_the_text_is_one_line(explanation: Explanation, text: str) -> None:
    assert explanation.text == text
