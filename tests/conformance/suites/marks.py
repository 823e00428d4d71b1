"""Noting time and the controller's cycle (N1–N5, M1–M5, M7): against the rules alone, and with a store."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from sqlalchemy.engine import Connection

from slackwater.metadata import store_schema as schema
from slackwater.streams.arguments import check_id
from slackwater.streams.log.catalog import Streams
from slackwater.streams.maintenance.mark_cycle import CycleRunner
from slackwater.streams.segments.epochs import Epochs
from slackwater.streams.segments.positions import Position
from slackwater.streams.settings import MarkSettings, StreamSettings
from slackwater.streams.time import mark_store
from slackwater.streams.time.marks import Mark, decide_cycle
from slackwater.streams.time.notes import NoteResult, WriterMark, validate_note
from slackwater.time import SECOND
from tests.conformance.framework import Case, Fields, Step, equal, flag, run_steps
from tests.conformance.streams import Named
from tests.stores import new_store

FIELDS = Fields({"segments", "epochs", "steps"}, {"timeout"})
STEPS = (
    Fields({"note"}, {"at", "result"}),
    Fields({"close"}, {"at", "result"}),
    Fields({"restart"}, {"at"}),
    Fields({"cycle"}, {"at", "emit", "writers"}),
)
_NOTE = Fields({"writer", "time", "position"})
_MARK = Fields({"lower", "upper", "cut"})


class Subject(Protocol):
    """What a case is run against; times of the clock are instants."""

    def note(self, writer: str, time: int, position: Position, now: int) -> str: ...

    def close(self, writer: str) -> str: ...

    def restart(self) -> None: ...

    def cycle(self, now: int) -> Mark | None: ...

    def writers(self) -> list[str]: ...

    def end(self) -> None: ...


class RulesSubject:
    """The rules on plain values; what a store would keep is in variables."""

    def __init__(self, epochs: Epochs, timeout: int) -> None:
        self._epochs = epochs
        self._settings = MarkSettings(timeout=timedelta(microseconds=timeout))
        self._records: dict[str, WriterMark] = {}
        self._newest: Mark | None = None
        self._first_noted: int | None = None

    def note(self, writer: str, time: int, position: Position, now: int) -> str:
        check_id(writer)
        last = self._records.get(writer)
        result = validate_note(last, time, position)
        if result is NoteResult.OK:
            behind_since = None if last is None else last.behind_since
            self._records[writer] = WriterMark(writer, time, position, behind_since=behind_since)
            self._first_noted = now if self._first_noted is None else self._first_noted
        return result.value

    def close(self, writer: str) -> str:
        if writer not in self._records:
            return "unknown_writer"
        self._records[writer] = replace(self._records[writer], closed=True)
        return "ok"

    def restart(self) -> None:
        """All state is in variables."""

    def cycle(self, now: int) -> Mark | None:
        decided = decide_cycle(
            self._records.values(),
            self._newest,
            self._epochs,
            now=now,
            first_noted=self._first_noted,
            settings=self._settings,
        )
        for writer in decided.delete:
            del self._records[writer.writer]
        for writer in decided.behind:
            self._records[writer.writer] = replace(writer, behind_since=now)
        for writer in decided.caught_up:
            self._records[writer.writer] = replace(writer, behind_since=None)
        self._newest = decided.mark or self._newest
        return decided.mark

    def writers(self) -> list[str]:
        return sorted(self._records)

    def end(self) -> None:
        """There is nothing to close."""


class StoreSubject:
    """A stream in a metadata store, and a controller that shares nothing with its successor but the store."""

    def __init__(self, epochs: Epochs, timeout: int, *, url: str, data: str | None, name: str) -> None:
        settings = StreamSettings(marks=MarkSettings(timeout=timedelta(microseconds=timeout)))
        self._streams, self._clock = _opened(url)
        self._clock.now = 0
        self._stream = self._streams.create(name, settings=settings, data=data)
        self._streams.store.write(lambda connection: replace_segments(connection, self._stream.id, epochs))
        self._runner = CycleRunner(self._streams.store)

    def note(self, writer: str, time: int, position: Position, now: int) -> str:
        return self._streams.store.write(
            lambda connection: mark_store.note(connection, self._stream.id, writer, time, position, now)
        ).value

    def close(self, writer: str) -> str:
        work = partial(mark_store.close_writer, stream=self._stream.id, writer=writer)
        return "ok" if self._streams.store.write(work) else "unknown_writer"

    def restart(self) -> None:
        self._runner = CycleRunner(self._streams.store)

    def cycle(self, now: int) -> Mark | None:
        self._clock.now = now
        cycle = self._runner.run(self._stream.id)
        assert cycle is not None, "no other controller runs"
        newest = self._streams.store.read(partial(mark_store.newest_mark, stream=self._stream.id))
        if cycle.mark is not None:
            equal("newest mark in the store", cycle.mark, newest and newest[1])
        return cycle.mark

    def writers(self) -> list[str]:
        found = self._streams.store.read(partial(mark_store.writer_marks, stream=self._stream.id))
        return sorted(record.writer for record in found)

    def end(self) -> None:
        self._streams.close()


@dataclass
class SettableClock:
    """A clock that stands still."""

    now: int = 0

    def __call__(self) -> int:
        return self.now


@cache
def _opened(url: str) -> tuple[Streams, SettableClock]:
    """The streams of a store, which know the SQL of the cases before, and their clock."""
    clock = SettableClock()
    return Streams.open(url, create=True, clock=clock), clock


def replace_segments(connection: Connection, stream: int, epochs: Epochs) -> None:
    """Replace the segments of a stream by any history."""
    segments = schema.segments
    connection.execute(segments.delete().where(segments.c.stream == stream))
    for segment in epochs.segments.values():
        last = max(number for number in range(len(epochs)) if segment in epochs[number])
        connection.execute(
            segments.insert().values(
                stream=stream,
                id=segment.id,
                number=segment.number,
                epoch=segment.epoch,
                low=segment.low,
                high=segment.high,
                sealed_epoch=last + 1 if last + 1 < len(epochs) else None,
                start=0,
                length=0,
                bytes=0,
                created_at=0,
            )
        )
    streams = schema.streams
    connection.execute(streams.update().where(streams.c.id == stream).values(epoch=len(epochs) - 1))


def run_with_store(case: Case, url: str, data: str | None = None) -> None:
    """Run a case with a stream in the store at ``url`` and the data folder ``data``."""
    _run(case, partial(StoreSubject, url=url, data=data, name=f"cases/{case['id']}"))


def _with_sqlite(case: Case) -> None:
    """Run a case in a stream of its own; all cases of a process share a store."""
    run_with_store(case, _shared_store())


@cache
def _shared_store() -> str:
    folder = TemporaryDirectory()
    atexit.register(folder.cleanup)
    return new_store(Path(folder.name))


def _run(case: Case, make: Callable[[Epochs, int], Subject]) -> None:
    named = Named(case)
    made = cache(lambda: make(named.epochs(case["epochs"]), round(case.get("timeout", 60) * SECOND)))
    now = 0

    def perform(step: Step) -> None:
        nonlocal now
        subject = made()  # in the first step, which may expect an error
        now = round(step["at"] * SECOND) if "at" in step else now
        if "note" in step:
            note = step["note"]
            _NOTE.check(note, "note")
            position = named.position(note["position"])
            result = subject.note(note["writer"], note["time"], position, now)
            equal("result", step.get("result", "ok"), result)
        elif "close" in step:
            equal("result", step.get("result", "ok"), subject.close(step["close"]))
        elif flag(step, "restart"):
            subject.restart()
        elif flag(step, "cycle"):
            mark = subject.cycle(now)
            wanted = step.get("emit")
            if wanted is not None:
                _MARK.check(wanted, "emit")
            got = mark and {"lower": mark.lower, "upper": mark.upper, "cut": named.named(mark.cut)}
            equal("emit", wanted, got)
            if "writers" in step:
                equal("writers", step["writers"], subject.writers())

    try:
        run_steps(case["steps"], perform)
    finally:
        if made.cache_info().currsize:
            made().end()


SUBJECTS = {"rules": partial(_run, make=RulesSubject), "sqlite": _with_sqlite}
