"""Noting time and the controller's cycle (N1–N5, M1–M5, M7): against the rules alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Protocol

from slackwater.streams.marks import (
    Mark,
    MarkSettings,
    NoteResult,
    WriterMark,
    check_writer_id,
    judge_cycle,
    judge_note,
)
from slackwater.streams.positions import Position
from slackwater.streams.segments import Epochs
from slackwater.time import SECOND
from tests.conformance.framework import Case, Fields, Step, equal, flag, run_steps
from tests.conformance.streams import Named

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


class RulesSubject:
    """The rules over plain values: what a store would keep is kept in variables."""

    def __init__(self, epochs: Epochs, timeout: int) -> None:
        self._epochs = epochs
        self._settings = MarkSettings(timeout=timeout)
        self._records: dict[str, WriterMark] = {}
        self._newest: Mark | None = None
        self._first_noted: int | None = None

    def note(self, writer: str, time: int, position: Position, now: int) -> str:
        check_writer_id(writer)
        last = self._records.get(writer)
        result = judge_note(last, time, position)
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
        """Nothing is kept anywhere else."""

    def cycle(self, now: int) -> Mark | None:
        decided = judge_cycle(
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


def _run(case: Case, make: Callable[[Epochs, int], Subject]) -> None:
    named = Named(case)
    made = cache(lambda: make(named.epochs(case["epochs"]), round(case.get("timeout", 60) * SECOND)))
    now = 0

    def perform(step: Step) -> None:
        nonlocal now
        subject = made()  # in the first step, which may ask for its refusal
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

    run_steps(case["steps"], perform)


SUBJECTS = {"rules": partial(_run, make=RulesSubject)}
