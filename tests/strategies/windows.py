"""Random scenarios for the windowed operator: its settings and its events.

Choices come from Hypothesis, which shrinks failures, or from a seeded random source, which generates hundreds
of thousands of cases in the time of thousands with Hypothesis. Both implement three methods: choose an
option, a number, or true and false.

Times and keys are few on purpose (two dozen ticks, three keys), so that exact boundaries occur often.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from random import Random
from typing import Any, Protocol, TypeVar

import polars as pl
from hypothesis import strategies as st

from slackwater import windows
from slackwater.time import END_OF_TIME, HOUR, SECOND, instant
from tests.model.windows import Row
from tests.support.windowed import Options

T = TypeVar("T")

FIRST, LAST = -8, 24
"""The ticks of event times."""
SUBTRACTABLE = {"count", "sum", "mean"}
CALENDARS: tuple[tuple[Any, ...], ...] = (
    ("days", 1, "Europe/Berlin", "2024-03-29T00:00:00Z"),
    ("days", 2, "UTC", "1969-12-30T00:00:00Z"),
    ("weeks", 1, "America/New_York", "2024-10-31T00:00:00Z"),
    ("months", 1, "Europe/Berlin", "2024-02-27T00:00:00Z"),
    ("months", 3, "Asia/Tokyo", "2023-12-29T00:00:00Z"),
    ("years", 1, "America/Sao_Paulo", "2017-12-30T00:00:00Z"),
    ("weeks", 2, "Europe/Berlin", "2024-03-28T00:00:00Z", "sunday"),
    ("months", 3, "America/New_York", "2024-01-30T00:00:00Z", "monday", 2),
    ("years", 1, "Europe/London", "2024-03-29T00:00:00Z", "monday", 4),
)
CALENDAR_TICK = 7 * HOUR


class Source(Protocol):
    """A source of random choices."""

    def choose(self, options: Sequence[T]) -> T:
        """One of the options; the first is the simplest."""

    def integer(self, low: int, high: int) -> int:
        """A number between the bounds, inclusive."""

    def chance(self, percent: int) -> bool:
        """True with about this probability."""


class RandomSource:
    """Choices of a seeded generator."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def choose(self, options: Sequence[T]) -> T:
        return self.random.choice(options)

    def integer(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def chance(self, percent: int) -> bool:
        return self.random.random() * 100 < percent


class HypothesisSource:
    """Choices that Hypothesis makes, and can shrink."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw

    def choose(self, options: Sequence[T]) -> T:
        return self.draw(st.sampled_from(options))

    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def chance(self, percent: int) -> bool:
        return self.draw(st.integers(0, 99)) >= 100 - percent


@dataclass(frozen=True)
class Step:
    """One step; with `reload`, the state is saved and loaded after it."""

    rows: tuple[Row, ...]
    watermark: int | None
    now: int
    reload: bool = False
    idle: bool = False


@dataclass(frozen=True)
class _Columns:
    """The types of the key and the value of a row."""

    key_type: Any
    keys: tuple[Any, ...]
    value_type: Any
    unit: float

    @property
    def schema(self) -> dict[str, Any]:
        return {"key": self.key_type, "region": pl.String, "ts": pl.Int64, "value": self.value_type}


@dataclass(frozen=True)
class Scenario:
    """The settings of an operator and its steps."""

    options: Options
    steps: tuple[Step, ...]
    schema: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Limits:
    """Restrictions of a scenario, for laws that do not hold for all settings."""

    kinds: tuple[str, ...] = (
        "fixed", "sliding", "sessions", "sessions", "global", "expiring", "calendar", "inherited",
    )  # fmt: skip
    modes: tuple[str, ...] = ("accumulating_and_retracting", "discarding", "accumulating")
    trigger_depth: int = 3
    trigger: windows.Trigger | None = None
    accumulations: tuple[str, ...] | None = None
    only_updated: bool = True
    lateness: bool = True
    retractions: int = 30
    """How often the input contains retractions, in percent."""
    steps: int = 10
    rows: int = 6
    keys: int = 2


@st.composite
def scenarios(draw: st.DrawFn, limits: Limits = Limits()) -> Scenario:  # noqa: B008 - frozen
    """Scenarios drawn by Hypothesis."""
    return scenario(HypothesisSource(draw), limits)


def scenario(source: Source, limits: Limits = Limits()) -> Scenario:  # noqa: B008 - frozen
    """A scenario drawn from any source of choices."""
    window, scale = _window(source, source.choose(limits.kinds))
    mode = source.choose(limits.modes)
    least = 1 if isinstance(window, windows.Sessions) else 0
    key = ("key", "region")[: source.choose([1, 2, *([0] if least == 0 else [])])]
    accumulations = limits.accumulations or _accumulations(source)
    options = Options(
        window=window,
        trigger=trigger(source, limits.trigger_depth) if limits.trigger is None else limits.trigger,
        accumulations=accumulations,
        key=key,
        mode=mode,
        allowed_lateness=_lateness(source, scale, window) if limits.lateness else 0,
        on_time=source.choose(["always", "if_non_empty"]),
        closing=source.choose(["if_non_empty", "always"]),
        timestamp=source.choose(["end_of_window", "earliest", "latest"]),
        drop_late=source.choose(["by_window", "by_window", "by_element"]),
        retractions=limits.accumulations is None
        and (mode != "discarding" or set(accumulations) <= SUBTRACTABLE)
        and source.chance(limits.retractions),
        only_updated=limits.only_updated and mode != "discarding" and source.chance(25),
    )
    if options.allowed_lateness is not None and not isinstance(window, windows.Global) and source.chance(40):
        options = replace(options, idle="close")
    if options.retractions and isinstance(window, windows.Sessions) and options.trigger.can_finish:
        # A retraction whose element is in a closed session would be added to another one.
        options = replace(options, trigger=windows.Repeatedly(options.trigger))
    each_has_a_gap = isinstance(window, windows.Sessions) and limits.accumulations is None
    if each_has_a_gap and not options.retractions and source.chance(30):
        options = replace(options, window=windows.Sessions("gap"))
    columns = _columns(source, limits)
    schema = columns.schema
    if options.window == windows.Sessions("gap"):
        schema |= {"gap": pl.Int64}
    if isinstance(window, windows.Inherited):
        schema |= {"window_start": pl.Int64, "window_end": pl.Int64}
    if options.retractions:
        schema |= {"retraction": pl.Boolean}
    schema = {name: dtype for name, dtype in schema.items() if name not in {"key", "region"} or name in key}
    return Scenario(options, tuple(_steps(source, limits, options, scale, columns)), schema)


def trigger(source: Source, depth: int) -> windows.Trigger:
    """Any trigger of at most this depth."""
    leaves = ("count", "watermark", "clock", "event_time", "default", "never", "always")
    nodes = ("early_and_late", "repeatedly", "each", "any", "all", "or_finally")
    often = ("early_and_late", "early_and_late", "early_and_late", "each", "repeatedly")
    kind = source.choose(leaves if depth <= 1 else (*nodes, *leaves[:5], *often))
    match kind:
        case "count":
            return windows.AfterCount(source.choose([1, 1, 2, 2, 3, 5]))
        case "watermark":
            return windows.AfterWatermark()
        case "clock":
            return windows.AfterProcessingTime(source.integer(0, 8))
        case "event_time":
            return windows.AfterEventTime(source.choose([1, 2, 3, 4, 5, 8]))
        case "default":
            return windows.DEFAULT_TRIGGER
        case "never":
            return windows.Never()
        case "always":
            return windows.Always()
        case "early_and_late":
            early = trigger(source, depth - 1) if source.chance(75) else None
            late = trigger(source, depth - 1) if source.chance(75) else None
            return windows.AfterWatermark(early=early, late=late)
        case "repeatedly":
            return windows.Repeatedly(trigger(source, depth - 1))
        case "or_finally":
            return windows.OrFinally(trigger(source, depth - 1), trigger(source, depth - 1))
    parts = [trigger(source, depth - 1) for _ in range(source.integer(1, 3))]
    several: dict[str, Callable[..., windows.Trigger]] = {
        "each": windows.AfterEach,
        "any": windows.AfterAny,
        "all": windows.AfterAll,
    }
    return several[kind](*parts)


@dataclass(frozen=True)
class _Scale:
    """How ticks become microseconds."""

    tick: int = 1
    origin: int = 0

    def at(self, tick: int) -> int:
        return self.origin + tick * self.tick


def _window(source: Source, kind: str) -> tuple[windows.Window, _Scale]:
    scale = source.choose([_Scale(), _Scale(), _Scale(SECOND, instant("2024-01-01T00:00:00Z"))])
    match kind:
        case "fixed":
            size, offset = source.integer(1, 12), source.integer(-7, 7)
            return windows.Fixed(size * scale.tick, offset * scale.tick), scale
        case "sliding":
            size, every, offset = source.integer(1, 12), source.integer(1, 12), source.integer(-7, 7)
            return windows.Sliding(size * scale.tick, every * scale.tick, offset * scale.tick), scale
        case "sessions":
            return windows.Sessions(source.integer(1, 8) * scale.tick), scale
        case "calendar":
            unit, count, timezone, begin, *first = source.choose(CALENDARS)
            window = windows.Calendar(unit, count, timezone, *first)
            return window, _Scale(CALENDAR_TICK, instant(begin))
        case "inherited":
            return windows.Inherited(), scale
        case "expiring":
            return windows.Global(ttl=source.choose([1, 2, 4, 8]) * scale.tick), scale
    return windows.Global(), scale


def _accumulations(source: Source) -> tuple[str, ...]:
    usual = ("count", "sum", "collect")
    others = (
        "min", "max", "mean", "first", "last", "collect_set", "sort", "top_n", "count_distinct",
        "sum_distinct", "ordered",
    )  # fmt: skip
    if source.chance(60):
        return tuple(name for name in usual if source.chance(60)) or ("sum",)
    return tuple(name for name in (*usual, *others) if source.chance(30)) or ("max",)


def _lateness(source: Source, scale: _Scale, window: windows.Window) -> int | None:
    expires = isinstance(window, windows.Global) and window.ttl is not None
    ticks = source.choose([0, 0, 1, 5] if expires else [0, 1, 5, 10, 20, None])
    return None if ticks is None else ticks * scale.tick


def _columns(source: Source, limits: Limits) -> _Columns:
    numbers = range(1, source.choose([1, 1, 2, 3, limits.keys]) + 1)
    key_type, keys = source.choose(
        [
            (pl.Int64, tuple(numbers)),
            (pl.String, tuple(f"key {number}" for number in numbers)),
            (pl.Date, tuple(date(2024, 1, number) for number in numbers)),
            (pl.Boolean, tuple(number % 2 == 0 for number in numbers)),
        ]
    )
    value_type, unit = source.choose([(pl.Int64, 1), (pl.Float64, 0.25)])
    return _Columns(key_type, keys if len(keys) == 1 else (None, *keys), value_type, unit)


def _steps(source: Source, limits: Limits, options: Options, scale: _Scale, columns: _Columns) -> list[Step]:
    steps: list[Step] = []
    remaining: list[Row] = []
    now = 0
    low = FIRST
    for _ in range(source.integer(1, limits.steps)):
        count = source.integer(0, limits.rows) if source.chance(75) else 0
        rows: list[Row] = []
        for _ in range(count):
            row = _row(source, options, scale, low, columns)
            rows.append(row)
            remaining.append(row)
            if options.retractions and source.chance(35):
                taken = remaining.pop(source.integer(0, len(remaining) - 1))
                rows.append(taken | {"retraction": True})
        watermark: int | None = None
        if source.chance(45):
            low = min(LAST + 10, low + source.choose([0, 1, 2, 4, 8, 12]))
            watermark = END_OF_TIME if source.chance(3) else scale.at(low)
        now += source.choose([0, 0, 1, 2, 5, 9])
        idle = not rows and source.chance(12)
        steps.append(Step(tuple(rows), watermark, now, source.chance(15), idle=idle))
        if watermark == END_OF_TIME:
            low = END_OF_TIME
            break
    if low != END_OF_TIME and source.chance(50):
        steps.append(Step((), END_OF_TIME, now))
    if steps[-1].watermark == END_OF_TIME and source.chance(10):
        steps.append(Step((_row(source, options, scale, 0, columns),), None, now))
    return steps


def _row(source: Source, options: Options, scale: _Scale, low: int, columns: _Columns) -> Row:
    tick = source.integer(FIRST, LAST) if source.chance(50) else source.integer(low - 6, low + 8)
    values: Row = {"key": source.choose(columns.keys), "region": source.choose(["x", "x", None])}
    row: Row = {name: values[name] for name in options.key}
    row |= {"ts": scale.at(tick), "value": None if source.chance(8) else source.integer(-3, 6) * columns.unit}
    if options.retractions:
        row |= {"retraction": False}
    if options.window == windows.Sessions("gap"):
        row |= {"gap": source.choose([1, 2, 4, 8, 15]) * scale.tick}
    if isinstance(options.window, windows.Inherited):
        start = tick - tick % 5
        row |= {"window_start": scale.at(start), "window_end": scale.at(start + source.choose([5, 5, 7]))}
    return row
