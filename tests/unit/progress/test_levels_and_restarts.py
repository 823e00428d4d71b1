"""Rules that need longer scenarios: two levels of coalescing, restores, clocks that go back, memory."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from slackwater.errors import AfterDone, IncompatibleState, InvalidArgument, ProgressError, SlackwaterError
from slackwater.progress.coalescer import Coalescer, EdgeEmission, OperatorCoalescer
from slackwater.progress.explanation import Explanation, Gap, Reason
from slackwater.progress.generator import WatermarkGenerator
from slackwater.progress.numbering import OutputNumbering, Rechunker
from slackwater.progress.ordering import OrderedResults, UnorderedResults
from slackwater.progress.pipeline_plan import Kind, PipelinePlan, PlanNode
from slackwater.progress.tracker import ProgressTracker
from slackwater.progress.values import DONE, IDLE, BufferHeader, Watermark
from slackwater.progress.watermark_policies import Clock, FixedDelay, Lag
from slackwater.time import END_OF_TIME


class _Index:
    """An integer type of another library, like those of NumPy."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value

    def __hash__(self) -> int:
        return hash(self.value)


def number(value: int) -> Any:
    return _Index(value)


class TestTwoLevels:
    def test_an_idle_edge_is_excluded_until_an_event_arrives(self) -> None:
        operator = OperatorCoalescer([2, 1])
        operator.watermark(1, 0, Watermark(10))
        assert operator.idle(0, 0) == ((), ())
        edge_idle = operator.idle(0, 1)
        assert edge_idle.edge == (EdgeEmission(0, IDLE),)
        assert edge_idle.operator == (Watermark(10),)
        operator.event(0, 1)
        assert operator.watermark(1, 0, Watermark(20)).operator == ()
        assert operator.why().held_by == "input 'edge 0'"

    def test_a_watermark_makes_its_edge_active_even_if_the_edge_emits_nothing(self) -> None:
        operator = OperatorCoalescer([2, 1])
        for channel in (0, 1):
            operator.idle(0, channel)
        operator.watermark(0, 0, Watermark(5))
        operator.event(0, 1)
        assert operator.watermark(1, 0, Watermark(20)).operator == (Watermark(5),)
        assert operator.watermark(0, 0, Watermark(30)).edge == ()

    def test_all_edges_idle(self) -> None:
        operator = OperatorCoalescer([1, 1])
        operator.idle(0, 0)
        assert operator.idle(1, 0).operator == (IDLE,)
        operator.event(0, 0)
        assert operator.idle(0, 0).operator == (IDLE,)

    def test_an_edge_ends_with_its_last_channel(self) -> None:
        operator = OperatorCoalescer([2, 1])
        operator.watermark(1, 0, Watermark(10))
        assert operator.done(0, 0).operator == ()
        assert operator.done(0, 1).operator == (Watermark(10),)
        assert operator.watermark(1, 0, Watermark(20)).operator == (Watermark(20),)
        with pytest.raises(AfterDone):
            operator.event(0, 1)

    def test_the_last_channel_releases_the_edge_watermark_before_the_edge_ends(self) -> None:
        operator = OperatorCoalescer([2, 1])
        operator.watermark(0, 0, Watermark(30))
        operator.watermark(0, 1, Watermark(5))
        operator.watermark(1, 0, Watermark(20))
        operator.done(0, 0)
        ended = operator.done(0, 1)
        assert ended.edge == (EdgeEmission(0, Watermark(30)),)
        assert ended.operator == (Watermark(20),)

    def test_no_idle_is_emitted_when_the_idle_edge_ends(self) -> None:
        operator = OperatorCoalescer([1, 1])
        operator.idle(0, 0)
        operator.idle(1, 0)
        assert operator.done(0, 0) == ((), ())
        assert operator.done(1, 0) == ((), ())


class TestRestore:
    @pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
    def test_partitions_restored_one_after_the_other(self, order: tuple[str, str]) -> None:
        generator = WatermarkGenerator(Lag(0), partitions=["a", "b"], now=0)
        for partition in order:
            generator.restore({partition: {"a": 10, "b": 20}[partition]}, now=0)
            generator = generator.load(generator.save())
        assert generator.current == 10
        assert generator.observe("a", 15, now=0) == (Watermark(15),)

    def test_an_emitted_watermark_is_not_emitted_again(self) -> None:
        generator = WatermarkGenerator(Lag(0), partitions=["a"], now=0)
        generator.observe("a", 50, now=0)
        generator.restore({"b": 10}, now=0)
        assert generator.current == 50
        assert generator.observe("b", 40, now=0) == ()

    def test_a_restored_partition_counts_as_heard(self) -> None:
        generator = WatermarkGenerator(Lag(0), partitions=["a"], now=0, idle_after=10)
        generator.restore({"a": 5}, now=8)
        assert generator.tick(now=17) == ()
        assert generator.tick(now=18) == (IDLE,)

    def test_a_generator_with_more_partitions_than_were_saved(self) -> None:
        old = WatermarkGenerator(Lag(0), partitions=["a"], now=0)
        old.observe("a", 10, now=0)
        new = WatermarkGenerator(Lag(0), partitions=["a", "b"], now=0).load(old.save())
        assert new.partitions == ("a", "b")
        assert new.observe("a", 20, now=0) == ()

    def test_another_key_is_rejected(self) -> None:
        saved = WatermarkGenerator(Lag(0), now=0, key="order_time").save()
        with pytest.raises(IncompatibleState, match="order_time"):
            WatermarkGenerator(Lag(0), now=0).load(saved)


class TestClocksThatGoBack:
    def test_idleness_uses_the_current_clock(self) -> None:
        generator = WatermarkGenerator(Lag(0), partitions=["a", "b"], now=0, idle_after=10)
        generator.observe("a", 1, now=100)
        generator.observe("b", 2, now=100)
        generator.observe("b", 3, now=50)
        assert generator.tick(now=59) == ()
        assert generator.tick(now=60) == ()
        assert generator.observe("a", 4, now=61) == (Watermark(4),)

    def test_a_jittering_clock_does_not_grow_memory(self) -> None:
        generator = WatermarkGenerator(Lag(0), partitions=["a"], now=0, idle_after=1000)
        for number in range(10_000):
            generator.observe("a", number, now=100 + (number % 2) * 50)
        assert len(generator._silence._deadlines) < 100

    def test_the_clock_follows_partitions_that_join(self) -> None:
        generator = WatermarkGenerator(Clock(0), partitions=["a"], now=0)
        assert generator.tick(now=100) == (Watermark(100),)
        generator.add("b", now=100)
        assert generator.observe("b", 40, now=101) == ()
        assert generator.partition_watermark("b") == 40
        assert generator.tick(now=102) == (Watermark(102),)


class TestMemory:
    def test_chunked_sequences_after_a_gap_are_freed_when_it_closes(self) -> None:
        tracker, fresh = ProgressTracker(["a"]), ProgressTracker(["a"])
        for sequence in range(2, 50):
            for chunk in (2, 1):
                tracker.observe(BufferHeader("a", sequence, chunk, chunk == 2, {"default": sequence}))
        tracker.observe(BufferHeader("a", 1, watermarks={"default": 1}))
        for sequence in range(1, 50):
            fresh.observe(BufferHeader("a", sequence, watermarks={"default": sequence}))
        assert tracker.save() == fresh.save()

    def test_adding_and_removing_partitions_does_not_grow_memory(self) -> None:
        generator = WatermarkGenerator(Lag(0), partitions=["stays"], now=0, idle_after=5)
        generator.observe("stays", 1, now=0)
        size = len(generator.save())
        for number in range(2_000):
            generator.add(number, now=number)
            generator.observe(number, number, now=number)
            generator.remove(number, now=number)
        assert len(generator.save()) < size + 60
        assert len(generator._silence._deadlines) < 100

    def test_watermarks_after_one_stuck_item_do_not_grow_memory(self) -> None:
        stage = UnorderedResults[int](capacity=10)
        stuck = stage.submit()
        assert stuck is not None
        for number in range(1_000):
            ticket = stage.submit()
            assert ticket is not None
            assert stage.watermark(Watermark(number)) == []
            assert stage.watermark(Watermark(number, "other")) == []
            assert stage.complete(ticket, number) == [number]
        assert len(stage._pending) < 50
        assert stage.complete(stuck, -1) == [-1, Watermark(999), Watermark(999, "other")]

    def test_a_shared_node_is_explained_once(self) -> None:
        node = PlanNode("source", Kind.SOURCE)
        for number in range(50):
            node = PlanNode(f"union {number}", Kind.STATELESS, (node, node))
        assert len(PipelinePlan(node).explain().splitlines()) == 101


class TestAsyncOrder:
    def test_watermarks_are_emitted_in_the_order_received_when_a_key_repeats(self) -> None:
        stage = UnorderedResults[str]()
        ticket = stage.submit()
        assert ticket is not None
        for watermark in (Watermark(1, "a"), Watermark(1, "b"), Watermark(2, "a")):
            stage.watermark(watermark)
        assert stage.complete(ticket, "x") == ["x", Watermark(1, "b"), Watermark(2, "a")]

    def test_items_in_flight_cannot_be_saved(self) -> None:
        stage = OrderedResults[str]()
        ticket = stage.submit()
        assert ticket is not None
        with pytest.raises(ProgressError, match="cannot save while 1 items are in flight"):
            stage.save()
        stage.complete(ticket, "a")
        stage.watermark(Watermark(5))
        assert OrderedResults[str].load(stage.save()).watermark(Watermark(5)) == []
        assert UnorderedResults[str].load(stage.save()).watermark(Watermark(6)) == [Watermark(6)]


class TestOtherIntegers:
    """Integer types of other libraries are accepted and converted to plain integers."""

    def test_watermarks_and_times(self) -> None:
        five = number(5)
        coalescer = Coalescer(1, now=five)
        assert coalescer.watermark(0, Watermark(five), now=five) == (Watermark(5),)
        assert Coalescer.load(coalescer.save()).current() == 5

    def test_headers(self) -> None:
        one = number(1)
        tracker = ProgressTracker(["a"])
        tracker.observe(BufferHeader("a", one, one, True, {"default": number(5)}), now=one)
        assert ProgressTracker.load(tracker.save()).current() == 5

    def test_a_rejected_header_of_mixed_integers_changes_no_state(self) -> None:
        tracker = ProgressTracker(["a"])
        before = tracker.save()
        with pytest.raises(InvalidArgument, match="key = ''"):
            tracker.observe(BufferHeader("a", 1, watermarks={"default": number(5), "": 7}))
        assert tracker.save() == before

    def test_policies(self) -> None:
        generator = WatermarkGenerator(
            Lag(number(3)), partitions=["a"], now=number(0), frame_offset=number(0)
        )
        assert generator.observe("a", number(10), now=number(1)) == (Watermark(7),)
        assert generator.load(generator.save()).current == 7


@pytest.mark.parametrize("origin", [("topic", 3), None, 1.5, b"a", True, 2**70, chr(0xD800)])
def test_origins_that_the_saved_form_cannot_store_are_rejected(origin: Any) -> None:
    for take in (
        lambda: WatermarkGenerator(Lag(0), now=0).add(origin, now=0),
        lambda: Rechunker(origin),
        lambda: OutputNumbering(origin),
        lambda: ProgressTracker().observe(BufferHeader(origin, 1)),
        lambda: ProgressTracker().idle(origin),
    ):
        with pytest.raises(InvalidArgument):
            take()


@pytest.mark.parametrize("now", ["x", 1.5, 2**70, None])
def test_an_invalid_clock_reading_is_rejected_before_any_change(now: Any) -> None:
    generator = WatermarkGenerator(Lag(0), partitions=["a"], now=0)
    before = generator.save()
    for step in (
        lambda: generator.observe("a", 5, now=now),
        lambda: generator.tick(now=now),
        lambda: generator.add("b", now=now),
        lambda: generator.remove("a", now=now),
        lambda: generator.restore({"b": 1, "c": 2}, now=now),
        lambda: generator.resume(now=now),
    ):
        with pytest.raises(SlackwaterError, match="now = "):
            step()
    assert generator.save() == before


def test_a_fixed_delay_at_the_lower_bound_of_time() -> None:
    generator = WatermarkGenerator(FixedDelay(END_OF_TIME), partitions=["a"], now=0)
    assert generator.tick(now=-5) == (Watermark(-(2**63)),)
    assert generator.load(generator.save()).current == -(2**63)


@pytest.mark.parametrize(
    "value",
    [
        Watermark(5, "order_time"),
        IDLE,
        DONE,
        BufferHeader("a", 1),
        BufferHeader("a", 1, 2, False, {"default": 5}),
        *OutputNumbering("w").number(3),
        Lag(5),
        Clock(5),
        Explanation("default", 5, Reason.GAP, "origin 'a'", gap=Gap(2, ((1, None),))),
    ],
    ids=str,
)
def test_values_can_be_pickled(value: object) -> None:
    assert pickle.loads(pickle.dumps(value)) == value  # noqa: S301 - our own bytes
    assert copy.deepcopy(value) == value
