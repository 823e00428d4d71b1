"""Stream cuts and marks over random scaling histories, compared with the reference model."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slackwater.streams.segments.cuts import Standing, check_cut, compare, stream_cut
from slackwater.streams.segments.epochs import Epochs
from slackwater.streams.segments.positions import Position, highest
from slackwater.streams.settings import MarkSettings
from slackwater.streams.time.marks import Mark, decide_cycle
from slackwater.streams.time.notes import NoteResult, WriterMark, validate_note
from slackwater.streams.time.time_windows import TimeWindow, newest_passed
from slackwater.time import SECOND
from tests.model.streams import POINTS, cut_model, entries_at, standing_model
from tests.strategies.streams import histories, positions


@given(st.data())
def test_the_cut_equals_the_model_and_is_not_before_any_position(data: st.DataObject) -> None:
    epochs = data.draw(histories())
    reported = data.draw(st.lists(positions(epochs), max_size=4))
    previous = stream_cut(epochs, data.draw(st.lists(positions(epochs), max_size=2)))
    for earlier in (None, previous):
        everything = [*reported, *([] if earlier is None else [earlier])]
        cut = stream_cut(epochs, reported, earlier)
        assert dict(cut.items()) == cut_model(epochs, everything)
        assert stream_cut(epochs, reported[::-1], earlier) == cut
        check_cut(epochs, cut)
        for key_point in POINTS:
            [place] = entries_at(epochs, cut, key_point)
            assert all(place >= other for p in everything for other in entries_at(epochs, p, key_point))


@given(st.data())
def test_comparisons_equal_the_model(data: st.DataObject) -> None:
    epochs = data.draw(histories())
    position = data.draw(positions(epochs))
    cut = stream_cut(epochs, data.draw(st.lists(positions(epochs), max_size=3)))
    assert compare(position, cut, epochs.segments) == standing_model(epochs, position, cut)


@given(st.data())
def test_the_highest_position_is_the_maximum_by_segment(data: st.DataObject) -> None:
    entries = st.dictionaries(st.integers(0, 6), st.integers(-3, 9))
    given_positions = data.draw(st.lists(entries, max_size=6))
    expected: dict[int, int] = {}
    for entry in given_positions:
        for identity, offset in entry.items():
            expected[identity] = max(offset, expected.get(identity, 0))
    assert highest(map(Position.of, given_positions)) == Position.of(expected)


@given(histories())
def test_successors_and_predecessors_are_inverse(epochs: Epochs) -> None:
    for segment in epochs.segments.values():
        followers = epochs.successors(segment.id)
        assert bool(followers) == epochs.is_sealed(segment.id)
        for follower in followers:
            assert follower.succeeds(segment)
            assert segment in epochs.predecessors(follower.id)
    for segment in epochs.active:
        assert epochs.at(segment.low) == epochs.at(segment.high - 1) == segment


@given(st.data())
def test_marks_of_any_notes_and_cycles_ascend_and_cover_the_key_space(data: st.DataObject) -> None:
    """Lower bounds strictly increase; each cut is at or after the previous one and all positions in it."""
    epochs = data.draw(histories())
    settings = MarkSettings(period="10 seconds", timeout="25 seconds")
    records: dict[str, WriterMark] = {}
    marks: list[Mark] = []
    first_noted = None
    now = 0
    for _ in range(data.draw(st.integers(1, 25))):
        now += data.draw(st.sampled_from([0, 1, 9, 10])) * SECOND
        action = data.draw(st.sampled_from(["note", "note", "close", "cycle"]))
        writer = data.draw(st.sampled_from("abc"))
        last = records.get(writer)
        if action == "note":
            time, position = data.draw(st.integers(0, 20)), data.draw(positions(epochs))
            if validate_note(last, time, position) is NoteResult.OK:
                first_noted = now if first_noted is None else first_noted
                records[writer] = WriterMark(
                    writer, time, position, behind_since=None if last is None else last.behind_since
                )
        elif action == "close" and last is not None:
            records[writer] = WriterMark(
                writer, last.time, last.position, closed=True, behind_since=last.behind_since
            )
        elif action == "cycle":
            newest = marks[-1] if marks else None
            decided = decide_cycle(
                records.values(), newest, epochs, now=now, first_noted=first_noted, settings=settings
            )
            for record in decided.delete:
                assert newest is not None
                assert record.time <= newest.lower
                del records[record.writer]
            for record in (*decided.behind, *decided.caught_up):
                since = now if record in decided.behind else None
                records[record.writer] = WriterMark(
                    record.writer, record.time, record.position, record.closed, since
                )
            if decided.mark is not None:
                assert not decided.waited_for
                assert newest is None or decided.mark.lower > newest.lower
                assert decided.mark.lower <= decided.mark.upper
                check_cut(epochs, decided.mark.cut)
                if newest is not None:
                    assert compare(decided.mark.cut, newest.cut, epochs.segments) is Standing.PASSED
                marks.append(decided.mark)
    window = TimeWindow()
    for position in data.draw(st.lists(positions(epochs), max_size=4)):
        moved = window.advance(position, marks, epochs.segments)
        assert window.lower is None or (moved.lower is not None and moved.lower >= window.lower)
        assert moved.lower is None or moved.upper is None or moved.lower <= moved.upper
        passed = newest_passed(position, marks, epochs.segments)
        standings = [compare(position, mark.cut, epochs.segments) for mark in marks]
        behind_us = [mark for mark, s in zip(marks, standings, strict=True) if s is Standing.PASSED]
        assert passed == (behind_us[-1] if behind_us and len(position) else None)
        if passed is not None:
            assert moved.lower is not None
            assert moved.lower >= passed.lower
        window = moved
