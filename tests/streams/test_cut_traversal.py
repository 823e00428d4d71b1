"""Cuts and groups that advance through random histories read every event once and reach the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from slackwater.streams.log.group_segments import (
    GroupSegment,
    finish_segments,
    group_position,
    unblocked_segments,
)
from slackwater.streams.segments.cut_traversal import advance_cut, readable_cut, spans_between
from slackwater.streams.segments.cuts import Standing, check_cut, compare, stream_cut
from slackwater.streams.segments.epochs import Epochs
from slackwater.streams.segments.positions import Position
from tests.strategies.streams import histories, positions


@st.composite
def filled_histories(draw: st.DrawFn) -> tuple[Epochs, dict[int, int]]:
    """The segments of a stream, and the length of each."""
    epochs = draw(histories())
    return epochs, {identity: draw(st.integers(0, 5)) for identity in epochs.segments}


@st.composite
def cuts(draw: st.DrawFn, epochs: Epochs, lengths: Mapping[int, int]) -> Position:
    """A cut as marks have them, which may be on both sides of a segment; not beyond the end of the stream."""
    cut = stream_cut(epochs, draw(st.lists(positions(epochs), max_size=3)))
    return Position.of({identity: min(offset, lengths[identity]) for identity, offset in cut.items()})


def tail_of(epochs: Epochs, lengths: Mapping[int, int]) -> Position:
    """The cut at which the stream ends."""
    return Position.of({segment.id: lengths[segment.id] for segment in epochs.active})


@given(st.data())
def test_advancing_in_any_steps_reads_every_event_once_and_ends_at_the_tail(data: st.DataObject) -> None:
    epochs, lengths = data.draw(filled_histories())
    head = Position.of({segment.id: 0 for segment in epochs[0]})
    tail = tail_of(epochs, lengths)
    limit = data.draw(st.integers(1, 7))
    read: Counter[tuple[int, int]] = Counter()
    cut = head
    while (end := advance_cut(epochs, cut, lengths, limit)) != cut:
        check_cut(epochs, end)
        assert compare(end, cut, epochs.segments) is Standing.PASSED
        spans = spans_between(epochs, cut, end, lengths)
        assert sum(span.events for span in spans) <= limit
        read.update((span.segment, offset) for span in spans for offset in range(span.start, span.end))
        cut = end
    assert cut == tail == advance_cut(epochs, head, lengths)
    assert read == Counter((i, offset) for i, length in lengths.items() for offset in range(length))


@given(st.data())
def test_a_readable_cut_misses_no_event_after_any_cut(data: st.DataObject) -> None:
    epochs, lengths = data.draw(filled_histories())
    cut = data.draw(cuts(epochs, lengths))
    tail = tail_of(epochs, lengths)
    start = readable_cut(epochs, cut, lengths)
    check_cut(epochs, start)
    assert advance_cut(epochs, start, lengths) == tail
    asked = spans_between(epochs, cut, tail, lengths)
    got = {span.segment: span for span in spans_between(epochs, start, tail, lengths)}
    for span in asked:
        assert got[span.segment].start <= span.start
        assert got[span.segment].end == span.end


@given(st.data())
def test_a_group_started_at_any_cut_reads_all_later_events_in_order(data: st.DataObject) -> None:
    epochs, lengths = data.draw(filled_histories())
    cut = data.draw(cuts(epochs, lengths))
    tail = tail_of(epochs, lengths)
    entries = finish_segments(
        {identity: GroupSegment(offset) for identity, offset in cut.items()}, lengths, epochs
    )
    read: list[tuple[int, int]] = []
    while group_position(entries, epochs) != tail:
        waiting = [i for i in unblocked_segments(entries, epochs) if entries[i].offset < lengths[i]]
        segment = data.draw(st.sampled_from(waiting))  # fails if empty: the group would be stuck
        read.append((segment, entries[segment].offset))
        moved = {**entries, segment: GroupSegment(entries[segment].offset + 1)}
        entries = finish_segments(moved, lengths, epochs)
    assert len(set(read)) == len(read)
    spans = spans_between(epochs, cut, tail, lengths)
    assert {(s.segment, offset) for s in spans for offset in range(s.start, s.end)} <= set(read)
    for number, (later, _) in enumerate(read):
        before = [epochs.segment(earlier) for earlier, _ in read[:number]]
        assert not any(earlier.succeeds(epochs.segment(later)) for earlier in before)
