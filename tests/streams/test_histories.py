"""The checker of histories accepts one that keeps all rules, and finds each rule that another breaks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from slackwater.streams.segments.epochs import KEY_SPACE
from slackwater.streams.segments.routing import point_of
from tests.streams.histories import Event, Operation, Recorder, load_histories
from tests.streams.history_checker import check_history

MIDDLE = KEY_SPACE // 2
WHOLE, LEFT, RIGHT = 0, 2**32, 2**32 + 1
RANGES = {WHOLE: (0, KEY_SPACE), LEFT: (0, MIDDLE), RIGHT: (MIDDLE, KEY_SPACE)}
"""A stream of one segment that was split."""
HEAD = {WHOLE: 0}
LEFT_KEY = next(key for key in map(str, count()) if point_of(key) < MIDDLE)
RIGHT_KEY = next(key for key in map(str, count()) if point_of(key) >= MIDDLE)

History = dict[str, Operation]
Change = Callable[[History], History]


def event(writer: str, number: int, time: int, key: str = LEFT_KEY) -> str:
    return Event(writer, key, number, time).value().decode()


def operation(kind: str, began: int, result: Any = None, **given: Any) -> Operation:
    return Operation("process", kind, given, began, began + 1, result)


def append(writer: str, first: int, last: int, began: int) -> Operation:
    return operation("append", began, writer=writer, first=first, last=last)


def note(writer: str, time: int, after: int, began: int, result: str = "ok") -> Operation:
    return operation("note", began, result, writer=writer, time=time, after=after)


def read(segment: int, first: int, values: list[str], began: int) -> Operation:
    return operation("read", began, {"segment": segment, "first": first, "values": values})


def mark(lower: int, upper: int, cut: dict[int, int]) -> dict[str, Any]:
    return {"lower": lower, "upper": upper, "cut": {str(segment): offset for segment, offset in cut.items()}}


def window(lower: int, upper: int | None, began: int) -> Operation:
    return operation("window", began, {"lower": lower, "upper": upper})


def cut_at(time: int, cut: dict[int, int], began: int) -> Operation:
    return operation("cut_at", began, {str(segment): offset for segment, offset in cut.items()}, time=time)


FIRST = mark(1, 2, {WHOLE: 4})
SECOND = mark(3, 4, {LEFT: 2, RIGHT: 1})


def good() -> History:
    """Two writers, a split, two marks, and a group that has read everything."""
    whole = [event("a", 1, 1), event("a", 2, 2, RIGHT_KEY), event("b", 1, 1), event("b", 2, 2, RIGHT_KEY)]
    return {
        "a writes": append("a", 1, 2, 10),
        "a notes": note("a", 1, 2, 12),
        "b writes": append("b", 1, 2, 14),
        "b notes": note("b", 2, 2, 16),
        "no mark": operation("marks", 18, []),
        "first cycle": operation("cycle", 20, [FIRST]),
        "one mark": operation("marks", 22, [FIRST]),
        "a writes more": append("a", 3, 4, 24),
        "a notes more": note("a", 3, 4, 26),
        "b writes more": append("b", 3, 3, 28),
        "b notes more": note("b", 4, 3, 30),
        "second cycle": operation("cycle", 32, [SECOND]),
        "two marks": operation("marks", 34, [FIRST, SECOND]),
        "read": read(WHOLE, 0, whole, 40),
        "read left": read(LEFT, 0, [event("a", 3, 3), event("b", 3, 4)], 42),
        "read right": read(RIGHT, 0, [event("a", 4, 4, RIGHT_KEY)], 44),
        "window": window(3, None, 46),
        "early cut": cut_at(1, HEAD, 48),
        "cut": cut_at(2, {WHOLE: 4}, 50),
        "a writes again": append("a", 5, 5, 52),
        "read left again": read(LEFT, 2, [event("a", 5, 3)], 54),
    }


def with_second(changed: dict[str, Any]) -> Change:
    """The second mark is another one."""
    return lambda history: {
        **history,
        "second cycle": replace(history["second cycle"], result=[changed]),
        "two marks": replace(history["two marks"], result=[FIRST, changed]),
    }


def with_operation(name: str, changed: Operation) -> Change:
    """An operation is added, or replaced by another one."""
    return lambda history: {**history, name: changed}


def moved(name: str, began: int) -> Change:
    """An operation happens at another time."""
    return lambda history: {**history, name: replace(history[name], began=began, ended=began + 1)}


BROKEN: list[tuple[str, Change]] = [
    (
        "an offset has one event",
        with_operation("read another", read(WHOLE, 0, [event("a", 9, 1)], 60)),
    ),
    (
        "an event is stored once",
        with_operation("read twice", read(LEFT, 3, [event("a", 5, 3)], 60)),
    ),
    (
        "an acknowledged event is read",
        with_operation("a writes what is lost", append("a", 6, 6, 60)),
    ),
    (
        "events of a key are stored in order",
        lambda history: {
            **history,
            "read left": read(LEFT, 0, [event("a", 5, 3), event("b", 3, 4)], 42),
            "read left again": read(LEFT, 2, [event("a", 3, 3)], 54),
        },
    ),
    ("events of a key are read in order", moved("read", 60)),
    (
        "a note that goes back is refused",
        with_operation("a notes less", note("a", 2, 5, 60)),
    ),
    (
        "a note is accepted",
        with_operation("a is refused", note("a", 9, 5, 60, "invalid_time")),
    ),
    (
        "lower bounds of marks ascend",
        with_operation("marks in disorder", operation("marks", 36, [SECOND, FIRST])),
    ),
    ("a mark stays", with_operation("fewer marks", operation("marks", 36, [FIRST]))),
    ("a lower bound is not above its upper bound", with_second(mark(4, 3, {LEFT: 2, RIGHT: 1}))),
    ("the bounds of a mark were noted", with_second(mark(3, 9, {LEFT: 2, RIGHT: 1}))),
    ("the bounds of a mark were noted", moved("b notes more", 60)),
    ("a cut covers every key once", with_second(mark(3, 4, {LEFT: 2}))),
    ("a cut covers every key once", with_second(mark(3, 4, {WHOLE: 4, RIGHT: 1}))),
    ("the cut of a mark does not go back", with_second(mark(3, 4, {WHOLE: 3}))),
    ("a mark covers only events that exist", with_second(mark(3, 4, {LEFT: 7, RIGHT: 1}))),
    ("a mark covers only events that exist", with_second(mark(3, 4, {LEFT: 3, RIGHT: 1}))),
    ("a mark waits for every writer", with_second(mark(4, 4, {LEFT: 2, RIGHT: 1}))),
    ("a mark is not above what follows", with_second(mark(4, 4, {LEFT: 2, RIGHT: 1}))),
    ("a mark covers what was noted", with_second(mark(3, 4, {LEFT: 1, RIGHT: 1}))),
    ("a cut at a time is that of the newest mark", with_operation("cut", cut_at(2, HEAD, 50))),
    ("a cut at a time is that of the newest mark", with_operation("cut", cut_at(2, {LEFT: 2, RIGHT: 1}, 50))),
    ("the window of a group does not go back", with_operation("window again", window(1, None, 60))),
    ("the window of a group has the bound of a mark", with_operation("window", window(2, None, 46))),
    ("a lower bound is not above its upper bound", with_operation("window", window(3, 2, 46))),
    ("a group has read what its window covers", moved("read right", 60)),
]


def rules(history: History) -> set[str]:
    operations = sorted(history.values(), key=lambda one: one.began)
    return {found.rule for found in check_history(operations, RANGES, HEAD)}


def test_a_history_that_keeps_the_rules_is_accepted() -> None:
    assert rules(good()) == set()


@pytest.mark.parametrize(("rule", "change"), BROKEN)
def test_a_broken_rule_is_found(rule: str, change: Change) -> None:
    assert rule in rules(change(good()))


def test_every_rule_of_the_checker_is_broken_once() -> None:
    source = Path(__file__).with_name("history_checker.py").read_text(encoding="utf-8")
    assert all(f'"{rule}"' in source for rule, _ in BROKEN)
    assert source.count("yield Contradiction(") == len({rule for rule, _ in BROKEN}) + 2


def test_a_writer_that_writes_below_its_own_note_is_late_by_its_own_fault() -> None:
    late = with_operation("read left again", read(LEFT, 2, [event("a", 5, 2)], 54))
    assert rules(late(good())) == set()


def test_an_operation_without_an_end_may_have_taken_effect_or_not() -> None:
    history = good()
    unknown = replace(append("a", 6, 6, 60), ended=None)
    assert rules({**history, "a is killed": unknown}) == set()
    stored = {**history, "a is killed": unknown, "read it": read(LEFT, 3, [event("a", 6, 5)], 62)}
    assert rules(stored) == set()
    noted = replace(note("a", 9, 5, 60), ended=None, result=None)
    assert rules({**history, "a is killed": noted, "refused": note("a", 5, 5, 62, "invalid_time")}) == set()
    assert rules({**history, "a is killed": noted, "accepted": note("a", 5, 5, 62)}) == set()


def test_a_mark_need_not_wait_for_a_writer_that_has_just_arrived_or_is_closed() -> None:
    arrived = {**good(), "no mark": operation("marks", 8, []), "one mark": operation("marks", 22, [FIRST])}
    without = with_second(mark(4, 4, {LEFT: 2, RIGHT: 1}))
    assert "a mark waits for every writer" not in rules(without(arrived))
    closed = {**without(good()), "a closes": operation("close", 31, writer="a")}
    assert "a mark waits for every writer" not in rules(closed)


def test_a_history_is_read_back_as_it_was_recorded(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "writer-a")
    with recorder.operation("note", writer="writer-a", time=7, after=3) as answer:
        answer.value = "ok"
    with pytest.raises(OSError, match="killed"), recorder.operation("append", first=4):
        raise OSError("killed")
    with next(tmp_path.glob("*.history")).open("a") as file:
        file.write('{"id": 1, "en')  # killed while it wrote a line
    noted, appended = load_histories(tmp_path)
    assert (noted.process, noted.kind, noted.given["time"], noted.result) == ("writer-a", "note", 7, "ok")
    assert noted.ended is not None
    assert noted.began < noted.ended < appended.began
    assert appended.ended is None
