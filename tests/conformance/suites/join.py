"""The time-bounded join, rules J1 to J7: each case against the columnar operator and the element-wise model.

The operator's state is saved and loaded after every step, so each case also shows that a restart
between any two steps changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, Final, Protocol

import polars as pl

from slackwater.time import END_OF_TIME
from slackwater.windows.engine.join_operator import JoinOperator, JoinOutput
from slackwater.windows.spec.join_spec import JoinSpec
from slackwater.windows.spec.operator_spec import SIDES, Side
from tests.conformance.framework import BrokenCase, Case, Fields, Step, equal, run_steps
from tests.model.join import INFINITY, JoinModel, Pair

_ASSERTED: Final = {"emit", "forward", "buffered"}
FIELDS: Final = Fields({"how", "before", "after", "steps"})
STEPS: Final = (
    Fields({"left", "ts"}, {"key", "late", *_ASSERTED}),
    Fields({"right", "ts"}, {"key", "late", *_ASSERTED}),
    Fields({"watermark", "side"}, _ASSERTED),
    Fields({"end"}, _ASSERTED),
)
_SCHEMA: Final = {"key": pl.String, "ts": pl.Int64, "name": pl.Int64}
_NO_KEY: Final = "the same for all"

Forwarded = Mapping[Side, float]


class Subject(Protocol):
    """What a case is run against."""

    def row(self, side: Side, name: str, time: int, key: str | None) -> tuple[list[Pair], int]:
        """Pairs, and how many rows were dropped as late."""

    def watermarks(self, values: Mapping[Side, float]) -> tuple[list[Pair], Forwarded]:
        """Pairs, and the watermarks sent on."""

    def buffered(self) -> Mapping[Side, int]:
        """How many rows each side keeps."""


class OperatorSubject:
    """The operator, saved and loaded after every step."""

    def __init__(self, case: Case) -> None:
        join = JoinSpec(on=("key",), before=case["before"], after=case["after"], how=case["how"])
        self._operator = JoinOperator(join, left=_SCHEMA, right=_SCHEMA)
        self._blobs: dict[str, bytes] = {}
        self._names: list[str] = []
        """Cases name rows and keys by texts or numbers; a column has one type, so rows travel by number."""
        self._saved = self._operator.save(self._operator.initial_state(self._blobs))

    def row(self, side: Side, name: str, time: int, key: str | None) -> tuple[list[Pair], int]:
        self._names.append(name)
        written = None if key is None else repr(key)
        frame = pl.DataFrame({"key": [written], "ts": [time], "name": [len(self._names) - 1]}, schema=_SCHEMA)
        output = self._step(**{side: frame})
        equal("watermarks sent on by a row", {}, output.watermarks)
        return self._pairs(output), output.dropped[side]

    def watermarks(self, values: Mapping[Side, float]) -> tuple[list[Pair], Forwarded]:
        whole = {side: END_OF_TIME if value == INFINITY else int(value) for side, value in values.items()}
        output = self._step(watermarks=whole)
        return self._pairs(output), {
            side: INFINITY if value == END_OF_TIME else value for side, value in output.watermarks.items()
        }

    def buffered(self) -> Mapping[Side, int]:
        return self._operator.buffered(self._operator.load(self._saved, self._blobs))

    def _pairs(self, output: JoinOutput) -> list[Pair]:
        numbers = output.rows.select("name_left", "name_right").rows()
        return [(self._name(left), self._name(right)) for left, right in numbers]

    def _name(self, number: int | None) -> str | None:
        return None if number is None else self._names[number]

    def _step(self, **given: Any) -> JoinOutput:
        state, output = self._operator.step(self._operator.load(self._saved, self._blobs), **given)
        self._saved = self._operator.save(state)
        return output


class ModelSubject:
    """The element-wise model."""

    def __init__(self, case: Case) -> None:
        self._model = JoinModel(case["how"], case["before"], case["after"])

    def row(self, side: Side, name: str, time: int, key: str | None) -> tuple[list[Pair], int]:
        before = len(self._model.late[side])
        return self._model.row(side, name, time, (key,)), len(self._model.late[side]) - before

    def watermarks(self, values: Mapping[Side, float]) -> tuple[list[Pair], Forwarded]:
        before = {side: self._model.forwarded(side) for side in SIDES}
        pairs = [pair for side, value in values.items() for pair in self._model.watermark(side, value)]
        after = {side: self._model.forwarded(side) for side in SIDES}
        return pairs, {s: value for s, value in after.items() if value is not None and value != before[s]}

    def buffered(self) -> Mapping[Side, int]:
        return {side: len(self._model.buffers[side]) for side in SIDES}


def _run(case: Case, make: Callable[[Case], Subject]) -> None:
    made = cache(lambda: make(case))

    def perform(step: Step) -> None:
        subject = made()  # in the first step, which may ask for its refusal
        forwarded: Forwarded = {}
        if "end" in step:
            equal("end", True, step["end"])
            pairs, forwarded = subject.watermarks({"left": INFINITY, "right": INFINITY})
        elif "watermark" in step:
            if step["side"] not in SIDES:
                raise BrokenCase(f"side: must be left or right, got {step['side']!r}")
            pairs, forwarded = subject.watermarks({step["side"]: step["watermark"]})
        else:
            side: Side = "left" if "left" in step else "right"
            pairs, late = subject.row(side, step[side], step["ts"], step.get("key", _NO_KEY))
            equal("late", step.get("late", False), late == 1)
        wanted = Counter((left, right) for left, right in step.get("emit", []))
        equal("emit", wanted, Counter(pairs))
        if "forward" in step:
            Fields((), SIDES).check(step["forward"], "forward")
        if "end" not in step or "forward" in step:
            equal("forward", step.get("forward", {}), forwarded)
        if "buffered" in step:
            Fields((), SIDES).check(step["buffered"], "buffered")
            kept = subject.buffered()
            equal("buffered", step["buffered"], {side: kept[side] for side in step["buffered"]})

    run_steps(case["steps"], perform)


SUBJECTS: Final = {
    "operator": partial(_run, make=OperatorSubject),
    "model": partial(_run, make=ModelSubject),
}
