"""The async ordering == model derived from history, ordered and unordered, with and without capacity."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slackwater.progress.ordering import OrderedResults, Ticket, UnorderedResults
from slackwater.progress.values import Watermark
from tests.model.ordering import OrderingModel

STEPS = st.lists(
    st.one_of(
        st.just("submit"),
        st.tuples(st.just("complete"), st.integers(0, 9)),
        st.builds(Watermark, st.integers(0, 12), st.sampled_from(["default", "k1"])),
    ),
    max_size=30,
)


@given(st.booleans(), st.one_of(st.none(), st.integers(1, 4)), STEPS)
def test_ordering_equals_the_model(
    ordered: bool, capacity: int | None, steps: list[str | tuple[str, int] | Watermark]
) -> None:
    stage = OrderedResults[str](capacity) if ordered else UnorderedResults[str](capacity)
    model = OrderingModel(ordered)
    waiting: dict[str, Ticket] = {}
    for number, step in enumerate(steps):
        if isinstance(step, Watermark):
            assert stage.watermark(step) == model.watermark(step)
        elif isinstance(step, str):
            ticket = stage.submit()
            assert (ticket is None) == (capacity is not None and model.held() >= capacity)
            if ticket is not None:
                waiting[f"item {number}"] = ticket
                model.submit(f"item {number}")
        elif waiting:
            name = sorted(waiting)[step[1] % len(waiting)]
            assert stage.complete(waiting.pop(name), name) == model.complete(name)
        assert stage.held == model.held()


@given(st.booleans(), st.lists(st.booleans(), max_size=20))
def test_a_watermark_is_emitted_after_all_earlier_items(ordered: bool, keep: list[bool]) -> None:
    """Also for filtered items: a result of None releases the watermarks after it."""
    stage = OrderedResults[int]() if ordered else UnorderedResults[int]()
    tickets = []
    output: list[int | Watermark] = []
    for number, _ in enumerate(keep):
        ticket = stage.submit()
        assert ticket is not None
        tickets.append(ticket)
        output += stage.watermark(Watermark(number))
    assert not output
    for number in reversed(range(len(keep))):
        output += stage.complete(tickets[number], number if keep[number] else None)
    positions = {each.value: index for index, each in enumerate(output) if isinstance(each, Watermark)}
    for index, each in enumerate(output):
        if not isinstance(each, Watermark):
            assert all(index < position for value, position in positions.items() if value >= each)
    assert sorted(each for each in output if not isinstance(each, Watermark)) == [
        number for number, kept in enumerate(keep) if kept
    ]
