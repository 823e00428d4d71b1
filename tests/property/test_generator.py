"""WatermarkGenerator == model recomputed from history, for every policy, clock and restart."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slackwater.progress.generator import WatermarkGenerator
from slackwater.progress.values import Emission
from slackwater.progress.watermark_policies import (
    Clock,
    Constant,
    FixedDelay,
    Lag,
    LagThenClock,
    Learned,
    WatermarkPolicy,
)
from slackwater.time import SECOND
from tests.model.generating import GeneratorModel, Happened

POLICIES = st.one_of(
    st.builds(Lag, st.integers(0, 5)),
    st.builds(LagThenClock, st.integers(0, 5)),
    st.builds(Learned, st.sampled_from([0.01, 0.1, 0.5]), st.integers(0, 5), st.sampled_from([None, 5, 9])),
    st.builds(Clock, st.integers(0, 5)),
    st.builds(FixedDelay, st.integers(0, 5)),
    st.builds(Constant, st.integers(-10, 30)),
)
NAMES = ["p0", "p1", "p2"]


@st.composite
def histories(draw: st.DrawFn) -> list[Happened]:
    """Additions, removals, events and ticks; the clock mostly rises, and sometimes goes back."""
    steps: list[Happened] = []
    present: list[str] = []
    now = 0
    for _ in range(draw(st.integers(0, 20))):
        now += draw(st.sampled_from([0, 1, 2, 5, 9, -3]))
        kind = draw(st.sampled_from(["add", "event", "event", "event", "tick", "remove"]))
        if kind == "add" and len(present) < len(NAMES):
            name = next(each for each in NAMES if each not in present)
            present.append(name)
            steps.append(Happened(now, "add", name))
        elif kind == "event" and present:
            steps.append(Happened(now, "event", draw(st.sampled_from(present)), draw(st.integers(-20, 40))))
        elif kind == "remove" and present:
            name = draw(st.sampled_from(present))
            present.remove(name)
            steps.append(Happened(now, "remove", name))
        else:
            steps.append(Happened(now, "tick"))
    return steps


def perform(generator: WatermarkGenerator, step: Happened) -> list[Emission]:
    if step.kind == "tick" or step.partition is None:
        return list(generator.tick(now=step.now))
    if step.kind == "add":
        generator.add(step.partition, now=step.now)
        return []
    if step.kind == "remove":
        return list(generator.remove(step.partition, now=step.now))
    assert step.timestamp is not None
    return list(generator.observe(step.partition, step.timestamp, now=step.now))


@given(
    policy=POLICIES,
    idle_after=st.sampled_from([None, 1, 5, 10]),
    frame=st.sampled_from([1, 1, 0, 3, 10]),
    frame_offset=st.integers(-3, 3),
    max_ahead=st.sampled_from([None, None, 0, 7]),
    discovers=st.booleans(),
    discover=st.sampled_from([None, None, 1, 12]),
    steps=histories(),
    data=st.data(),
)
def test_generator_equals_the_model(
    policy: WatermarkPolicy,
    idle_after: int | None,
    frame: int,
    frame_offset: int,
    max_ahead: int | None,
    discovers: bool,
    discover: int | None,
    steps: list[Happened],
    data: st.DataObject,
) -> None:
    model = GeneratorModel(policy, idle_after, frame, frame_offset, max_ahead, discovers, discover)
    generator = WatermarkGenerator(
        policy,
        partitions=None if discovers else (),
        now=0,
        discover=discover,
        idle_after=idle_after,
        frame=frame,
        frame_offset=frame_offset,
        max_ahead=max_ahead,
    )
    for step in steps:
        assert perform(generator, step) == model.perform(step)
        assert generator.ahead == model.ahead()
        for partition in generator.partitions:
            name = str(partition)
            assert generator.partition_watermark(name) == model.watermark(name, len(model.steps))
        if data.draw(st.booleans(), label="save and load here"):
            generator = generator.load(generator.save())


@given(POLICIES, histories(), st.integers(0, 1000))
def test_a_pause_of_the_pipeline_makes_no_partition_idle(
    policy: WatermarkPolicy, steps: list[Happened], pause: int
) -> None:
    """After a pause at any point and of any length, `resume` makes idleness independent of the pause."""
    straight = WatermarkGenerator(policy, now=0, idle_after=5)
    paused = WatermarkGenerator(policy, now=0, idle_after=5)
    middle = len(steps) // 2
    clocked = isinstance(policy, (Clock, FixedDelay))
    for number, step in enumerate(steps):
        if number == middle:
            paused = paused.load(paused.save())
            paused.resume(now=(steps[number - 1].now if number else 0) + pause)
        later = (
            step if number < middle else Happened(step.now + pause, step.kind, step.partition, step.timestamp)
        )
        expected, got = perform(straight, step), perform(paused, later)
        assert ("IDLE" in repr(expected)) == ("IDLE" in repr(got))
        if not clocked:
            assert expected == got


@given(
    policy=st.builds(Learned, st.sampled_from([0.01, 0.1, 0.5]), st.integers(0, 5 * SECOND)),
    events=st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 90)), min_size=10, max_size=49),
    saved=st.integers(0, 49),
)
def test_a_learned_lag_equals_the_model(policy: Learned, events: list[tuple[str, int]], saved: int) -> None:
    model = GeneratorModel(policy, None, 1, 0, None, discovers=True, discover=None)
    generator = WatermarkGenerator(policy, now=0)
    steps = [Happened(0, "add", name) for name in NAMES]
    steps += [Happened(number, "event", name, at * SECOND) for number, (name, at) in enumerate(events)]
    for number, step in enumerate(steps):
        assert perform(generator, step) == model.perform(step)
        assert generator.lag == model.lag(len(model.steps))
        if number == saved:
            generator = generator.load(generator.save())
