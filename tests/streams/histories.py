"""Histories: what real processes did to a stream, and between which times.

Each process appends two lines to a file of its own for every operation: one when it begins, and one with the
result when it has ended. An operation whose process was killed has only the first line; it may have taken
effect or not. Times come from the monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from slackwater.streams.segments.positions import Position
from slackwater.streams.time.marks import Mark


class Event(NamedTuple):
    """An event of a history: who wrote it, under which key, as which number, at which event time.

    >>> Event.parse(Event("writer-a", "k1", 7, 5).value()).number
    7
    """

    writer: str
    key: str
    number: int
    time: int

    def value(self) -> bytes:
        """The event as bytes."""
        return f"{self.writer} {self.key} {self.number} {self.time}".encode()

    @classmethod
    def parse(cls, value: bytes | str) -> Event:
        """The event of these bytes."""
        text = value if isinstance(value, str) else value.decode()
        writer, key, number, at = text.split(" ")
        return cls(writer, key, int(number), int(at))


@dataclass(frozen=True)
class Operation:
    """One operation: its arguments, its result, and the times between which it took effect."""

    process: str
    kind: str
    given: dict[str, Any]
    began: int
    ended: int | None = None
    """None if the operation failed, or its process was killed before it ended."""
    result: Any = None

    def follows(self, other: Operation) -> bool:
        """Whether the other operation had ended before this one began."""
        return other.ended is not None and other.ended < self.began

    def may_have_seen(self, other: Operation) -> bool:
        """Whether the other operation had begun before this one ended."""
        return self.ended is None or other.began < self.ended


class Answer:
    """The result of an operation; set before its block ends."""

    value: Any = None


@dataclass
class Recorder:
    """Appends the operations of this process to its history."""

    folder: Path
    process: str
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @contextmanager
    def operation(self, kind: str, **given: Any) -> Iterator[Answer]:
        """Record an operation; it has no end if the block raises."""
        number, answer = next(self._numbers), Answer()
        self._write(id=number, kind=kind, given=given, began=time.monotonic_ns())
        yield answer
        self._write(id=number, ended=time.monotonic_ns(), result=answer.value)

    def _write(self, **line: Any) -> None:
        # one file for each start of a process, so that numbers do not repeat
        path = self.folder / f"{self.process}.{os.getpid()}.history"
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def recorded_cut(cut: Position) -> dict[str, int]:
    """A cut as a history contains it."""
    return {str(segment): offset for segment, offset in cut.items()}


def recorded_mark(mark: Mark) -> dict[str, Any]:
    """A mark as a history contains it."""
    return {"lower": mark.lower, "upper": mark.upper, "cut": recorded_cut(mark.cut)}


def load_histories(folder: Path) -> list[Operation]:
    """The operations of all processes, in the order in which they began."""
    found: list[Operation] = []
    for path in sorted(folder.glob("*.history")):
        begun: dict[int, dict[str, Any]] = {}
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                entry = json.loads(line)
            except json.JSONDecodeError:
                continue  # the process was killed while it wrote the line
            begun.setdefault(entry.pop("id"), {}).update(entry)
        process = path.name.partition(".")[0]
        found += [Operation(process, **entry) for entry in begun.values()]
    return sorted(found, key=lambda operation: operation.began)
