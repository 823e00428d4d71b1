"""Coalescer == model recomputed from history, for any interleaving and any split into save and load."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slackwater.errors import AfterDone, WatermarkRegression
from slackwater.progress.coalescer import Coalescer, OperatorCoalescer
from slackwater.progress.values import IDLE, Emission, Watermark
from tests.model.coalescing import Kind, Message, emissions, world_after

LIKELY: list[Kind] = ["watermark", "watermark", "watermark", "event", "idle", "done"]
KINDS = st.sampled_from(LIKELY)
KEYS = st.sampled_from(["default", "order_time"])


@st.composite
def histories(draw: st.DrawFn) -> tuple[int, list[Message]]:
    """Valid steps: watermarks rise for each input and key, and nothing follows DONE."""
    inputs = draw(st.integers(1, 4))
    steps: list[Message] = []
    for _ in range(draw(st.integers(0, 25))):
        source = draw(st.integers(0, inputs - 1))
        if any(step.source == source and step.kind == "done" for step in steps):
            continue
        kind = draw(KINDS)
        if kind != "watermark":
            steps.append(Message(source, kind))
            continue
        key = draw(KEYS)
        previous = world_after(inputs, steps).last.get((source, key), draw(st.integers(-5, 5)))
        steps.append(Message(source, "watermark", ((key, previous + draw(st.integers(1, 6))),)))
    return inputs, steps


def perform(coalescer: Coalescer, step: Message, now: int) -> tuple[Emission, ...]:
    if step.kind == "watermark":
        ((key, value),) = step.watermarks
        return coalescer.watermark(step.source, Watermark(value, key), now=now)
    return {"event": coalescer.event, "idle": coalescer.idle, "done": coalescer.done}[step.kind](
        step.source, now=now
    )


@given(histories(), st.data())
def test_coalescer_equals_the_model(history: tuple[int, list[Message]], data: st.DataObject) -> None:
    inputs, steps = history
    coalescer = Coalescer(inputs, now=0)
    for now, (step, expected) in enumerate(zip(steps, emissions(inputs, steps), strict=True), 1):
        emitted = perform(coalescer, step, now)
        assert set(emitted) == expected
        assert len(emitted) == len(expected)
        assert IDLE not in emitted[:-1]
        if data.draw(st.booleans(), label="save and load here"):
            coalescer = Coalescer.load(coalescer.save())


@given(histories(), st.integers(0, 3), st.integers(-40, 40))
def test_a_rejected_step_changes_no_state(
    history: tuple[int, list[Message]], source: int, value: int
) -> None:
    inputs, steps = history
    coalescer = Coalescer(inputs)
    for now, step in enumerate(steps):
        perform(coalescer, step, now)
    before = coalescer.save()
    try:
        coalescer.watermark(source % inputs, Watermark(value))
    except (WatermarkRegression, AfterDone):
        assert coalescer.save() == before


@given(histories())
def test_why_names_the_input_that_has_to_advance(history: tuple[int, list[Message]]) -> None:
    """The watermark can advance if the holder leaves, and does not if any other input leaves."""
    inputs, steps = history
    coalescer = Coalescer(inputs)
    for now, step in enumerate(steps):
        perform(coalescer, step, now)
    explanation = coalescer.why()
    world = world_after(inputs, steps)
    assert (explanation.held_by is None) == (not world.active)
    if explanation.held_by is None or explanation.others:
        return
    holder = int(explanation.held_by.removeprefix("input "))
    assert holder in world.active
    for other in world.active - {holder}:
        if len(world.active) > 1:
            trial = Coalescer.load(coalescer.save())
            assert not [
                each for each in trial.idle(other) if isinstance(each, Watermark) and each.key == "default"
            ]


@given(st.lists(st.integers(1, 3), min_size=1, max_size=3), st.data())
def test_two_levels_give_the_same_minimum_as_one(channels: list[int], data: st.DataObject) -> None:
    """Without idle inputs the minimum of the edge minima is the overall minimum."""
    two_levels = OperatorCoalescer(channels)
    flat = Coalescer(sum(channels))
    last: dict[tuple[int, int], int] = {}
    for _ in range(data.draw(st.integers(0, 30))):
        edge = data.draw(st.integers(0, len(channels) - 1))
        channel = data.draw(st.integers(0, channels[edge] - 1))
        value = last.get((edge, channel), 0) + data.draw(st.integers(1, 5))
        last[edge, channel] = value
        emissions_of_both = two_levels.watermark(edge, channel, Watermark(value))
        assert emissions_of_both.operator == flat.watermark(sum(channels[:edge]) + channel, Watermark(value))
        assert all(each.edge == edge for each in emissions_of_both.edge)
        two_levels = OperatorCoalescer.load(two_levels.save())
