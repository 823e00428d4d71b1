"""Trigger transcripts in Beam's format, run against the reference model and against the operator.

A transcript has one key, and each of its actions (a batch, a watermark, a clock) is one step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from slackwater import windows
from slackwater.errors import SlackwaterError
from slackwater.time import END_OF_TIME
from tests.conformance import expressions
from tests.conformance.framework import BrokenCase, Case, Difference, Fields, equal
from tests.model.windows import Pane
from tests.support.windowed import ModelSubject, OperatorSubject, Options, Subject, blocks

FIELDS: Final = Fields(
    required={"transcript"},
    optional={
        "accumulation_mode", "allowed_lateness", "closing_behavior", "drop_late", "error", "on_time_behavior",
        "only_updated", "timestamp_combiner", "trigger_fn", "window_fn",
    },
)  # fmt: skip
ACTIONS: Final = ("input", "watermark", "clock")
CHECKS: Final = ("expect", "dropped_late", "dropped_closed", "state")
PANE: Final = Fields(
    optional={
        "early", "final", "index", "late", "nonspeculative_index", "retraction", "sum", "timestamp", "values",
        "window",
    }
)  # fmt: skip

WINDOWS: Final[Mapping[str, Callable[..., windows.Window]]] = {
    "FixedWindows": windows.Fixed,
    "SlidingWindows": windows.Sliding,
    "Sessions": windows.Sessions,
    "GlobalWindows": windows.Global,
}
TRIGGERS: Final[Mapping[str, Callable[..., windows.Trigger]]] = {
    "Default": lambda: windows.DEFAULT_TRIGGER,
    "AfterWatermark": windows.AfterWatermark,
    "AfterCount": windows.AfterCount,
    "AfterProcessingTime": lambda delay=0: windows.AfterProcessingTime(delay),
    "AfterEach": windows.AfterEach,
    "AfterAny": windows.AfterAny,
    "AfterAll": windows.AfterAll,
    "Repeatedly": windows.Repeatedly,
    "OrFinally": windows.OrFinally,
    "Never": windows.Never,
    "Always": windows.Always,
}
_EXPRESSIONS: Final = (("window_fn", "GlobalWindows", WINDOWS), ("trigger_fn", "Default", TRIGGERS))
BEHAVIOURS: Final = {"FIRE_ALWAYS": "always", "FIRE_IF_NON_EMPTY": "if_non_empty"}
COMBINERS: Final = {
    "OUTPUT_AT_EOW": "end_of_window",
    "OUTPUT_AT_EARLIEST": "earliest",
    "OUTPUT_AT_LATEST": "latest",
}
WORDS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "accumulation_mode": {
            word: word for word in ("discarding", "accumulating", "accumulating_and_retracting")
        },
        "timestamp_combiner": COMBINERS,
        "closing_behavior": BEHAVIOURS,
        "on_time_behavior": BEHAVIOURS,
        "drop_late": {word: word for word in ("by_window", "by_element")},
    }
)


def run(case: Case, subject: Callable[[Options], Subject]) -> None:
    """Run a transcript; one with `error` must fail with that text."""
    _check(case)
    if "error" not in case:
        _check_words(case)
        _play(case, subject)
        return
    try:
        _check_words(case)
        _play(case, subject)
    except (SlackwaterError, Difference) as error:
        if case["error"] is not True and str(case["error"]).lower() not in str(error).lower():
            raise Difference(f"error\n  expected: {case['error']!r}\n  got:      {error}") from error
    else:
        raise Difference(f"error\n  expected: {case['error']!r}\n  got:      the transcript passes")


SUBJECTS: Final[Mapping[str, Callable[[Case], None]]] = {
    "model": partial(run, subject=ModelSubject),
    "operator": partial(run, subject=OperatorSubject),
}


# ---- reading a case


def _check(case: Case) -> None:
    """Everything that can be wrong with the words of a case, before anything is built from them."""
    if not isinstance(case["transcript"], list) or not case["transcript"]:
        raise BrokenCase(f"transcript: must be a list of actions, got {case['transcript']!r}")
    if case.get("error", True) is not True and not isinstance(case["error"], str):
        raise BrokenCase(f"error: must be a text or true, got {case['error']!r}")
    for number, line in enumerate(case["transcript"], 1):
        if not isinstance(line, Mapping) or len(line) != 1 or next(iter(line)) not in (*ACTIONS, *CHECKS):
            raise BrokenCase(f"line {number}: must be one of {', '.join((*ACTIONS, *CHECKS))}, got {line!r}")
        for pane in line.get("expect") or ():
            PANE.check(pane, f"line {number}, expected pane {pane!r}")
    for name, default, known in _EXPRESSIONS:
        expressions.parse(case.get(name, default), known)


def _check_words(case: Case) -> None:
    """Refuse a mode or behaviour that does not exist, which a case may ask for."""
    for name, words in WORDS.items():
        if name in case and case[name] not in words:
            raise Difference(f"{name}: {case[name]!r} is none of {', '.join(words)}")


def options_of(case: Case) -> Options:
    """How the operator of a case is set up."""
    window, trigger = (
        expressions.evaluate(case.get(name, default), known) for name, default, known in _EXPRESSIONS
    )
    lateness = case.get("allowed_lateness", 0)
    return Options(
        window=window,
        trigger=trigger,
        accumulations=("sum", "collect"),
        mode=case.get("accumulation_mode", "accumulating"),
        allowed_lateness=None if lateness == math.inf else lateness,
        timestamp=COMBINERS[case.get("timestamp_combiner", "OUTPUT_AT_EOW")],
        closing=BEHAVIOURS[case.get("closing_behavior", "FIRE_IF_NON_EMPTY")],
        on_time=BEHAVIOURS[case.get("on_time_behavior", "FIRE_ALWAYS")],
        only_updated=case.get("only_updated", False),
        drop_late=case.get("drop_late", "by_window"),
    )


# ---- playing it


def steps_of(case: Case) -> list[tuple[list[dict[str, Any]], int | None, int]]:
    """The actions of a case: rows, a watermark or none, and the time on the clock."""
    steps: list[tuple[list[dict[str, Any]], int | None, int]] = []
    clock = 0
    for line in case["transcript"]:
        [(name, value)] = line.items()
        if name in ACTIONS:
            clock = value if name == "clock" else clock
            rows = [_row(element) for element in value] if name == "input" else []
            steps.append((rows, _instant(value) if name == "watermark" else None, clock))
    return steps


def _play(case: Case, make: Callable[[Options], Subject]) -> None:
    subject = make(options_of(case))
    steps = iter(steps_of(case))
    dropped = {"dropped_late": 0, "dropped_closed": 0}
    pending: list[Pane] = []
    lines = case["transcript"]
    for number, line in enumerate(lines, 1):
        [(name, value)] = line.items()
        where = f"line {number} of {len(lines)}: {line!r}"
        if name in ACTIONS:
            _nothing_left(pending, f"before {where}")
            try:
                observed = subject.step(*next(steps))
                blocks(observed.panes)
            except AssertionError as difference:
                raise Difference(f"{where}\n{difference}") from difference
            pending = list(observed.panes)
            dropped["dropped_late"] += observed.dropped_late
            dropped["dropped_closed"] += observed.dropped_closed
        elif name == "expect":
            pending = _take(value or [], pending, where)
        elif name in dropped:
            equal(f"{where}\n{name}", value, dropped[name])
    _nothing_left(pending, "at the end of the transcript")


def _row(element: object) -> dict[str, Any]:
    """An element is its timestamp, or a timestamp and a value."""
    at, value = element if isinstance(element, list) else (element, element)
    return {"key": "key", "ts": at, "value": value}


def _instant(value: float) -> int:
    return END_OF_TIME if value == math.inf else int(value)


def _nothing_left(pending: Sequence[Pane], where: str) -> None:
    if pending:
        raise Difference(f"Unexpected output {where}\n" + "\n".join(f"  {_shown(pane)}" for pane in pending))


def _take(expected: Sequence[Mapping[str, Any]], got: list[Pane], where: str) -> list[Pane]:
    """Assign every expected pane to one that came, if that can be done at all; what is left over."""
    fitting = [[place for place, pane in enumerate(got) if _fits(wanted, pane)] for wanted in expected]
    taken: dict[int, int] = {}

    def assign(wanted: int, tried: set[int]) -> bool:
        for place in fitting[wanted]:
            if place not in tried:
                tried.add(place)
                if place not in taken or assign(taken[place], tried):
                    taken[place] = wanted
                    return True
        return False

    missing = [wanted for number, wanted in enumerate(expected) if not assign(number, set())]
    if missing:
        raise Difference(
            f"Unmatched output at {where}\n"
            + "\n".join(f"  expected: {dict(wanted)!r}" for wanted in missing)
            + "\n"
            + ("\n".join(f"  got:      {_shown(pane)}" for pane in got) or "  got:      no pane")
        )
    return [pane for place, pane in enumerate(got) if place not in taken]


def _fits(wanted: Mapping[str, Any], pane: Pane) -> bool:
    seen = _fields(pane)
    asked = {"retraction": False, **wanted}
    if "values" in asked:
        asked["values"] = sorted(asked["values"])
    return all(seen[name] == value for name, value in asked.items())


def _fields(pane: Pane) -> dict[str, Any]:
    return {
        "window": [pane.start, pane.end - 1],
        "values": pane.values["collect"],
        "sum": pane.values["sum"] or 0,
        "timestamp": pane.timestamp,
        "index": pane.index,
        "nonspeculative_index": pane.on_time_index,
        "early": pane.timing == "EARLY",
        "late": pane.timing == "LATE",
        "final": pane.is_last,
        "retraction": pane.retraction,
    }


def _shown(pane: Pane) -> str:
    return repr(_fields(pane))
