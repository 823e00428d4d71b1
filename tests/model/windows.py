"""The reference model of the windowed operator: one element at a time, slow and simple.

Written from the specification alone. A window of a key is a `Record` that keeps every element it ever
accepted, so that each value is computed from the elements themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from slackwater import windows as configuration
from slackwater.errors import InvalidArgument, WatermarkRegression
from slackwater.time import BEGINNING_OF_TIME, END_OF_TIME, instant, to_datetime
from tests.model import triggers

Key = tuple[Any, ...]
Row = dict[str, Any]
Bounds = tuple[int, int]
Accumulate = Callable[[Sequence[Row]], Row]


@dataclass(frozen=True)
class Pane:
    """The result of a window when it fires."""

    key: Key
    start: int
    end: int
    values: Row
    timing: str
    index: int
    on_time_index: int
    is_first: bool
    is_last: bool
    timestamp: int
    retraction: bool = False


@dataclass(frozen=True)
class Emission:
    """A pane, and the retractions directly before it; no pane if everything in the window was retracted."""

    retractions: tuple[Pane, ...]
    pane: Pane | None

    @property
    def panes(self) -> tuple[Pane, ...]:
        return self.retractions if self.pane is None else (*self.retractions, self.pane)


@dataclass(frozen=True)
class Drop:
    """A row that was dropped: for one window, or (by_element) for all of its windows."""

    row: Row
    reason: str
    window: Bounds | None


@dataclass
class Output:
    """The output of one step."""

    emissions: list[Emission] = field(default_factory=list)
    drops: list[Drop] = field(default_factory=list)
    forwarded: int | None = None
    waiting: int | None = None
    """The end of the earliest window that still owes a pane."""
    expired: int = 0
    """How many keys of a global window were purged because of its ttl."""

    def dropped(self, reason: str) -> int:
        return sum(drop.reason == reason for drop in self.drops)


@dataclass(frozen=True)
class Element:
    """A row in a window, with the situation at its arrival."""

    row: Row
    timestamp: int
    before_completion: bool
    """Whether it arrived before its window was complete."""
    not_behind: bool
    """Whether its timestamp was not behind the watermark."""


@dataclass(eq=False)
class Record:
    """The state of one window of one key."""

    key: Key
    start: int
    end: int
    trigger: triggers.Node
    elements: list[Element] = field(default_factory=list)
    new: list[Element] = field(default_factory=list)
    closed: bool = False
    index: int = 0
    on_time_index: int = 0
    last: Pane | None = None
    owed: list[Pane] = field(default_factory=list)
    latest: int = BEGINNING_OF_TIME
    """The latest event time that arrived for it, also after it was closed."""

    @property
    def bounds(self) -> Bounds:
        return self.start, self.end

    @property
    def had_non_early_pane(self) -> bool:
        return self.on_time_index > 0


class WindowedModel:
    """The windowed operator with the same settings and steps, one element after the other."""

    def __init__(
        self,
        window: configuration.Window,
        trigger: configuration.Trigger,
        accumulate: Accumulate,
        *,
        mode: str = "accumulating",
        allowed_lateness: int | None = 0,
        on_time: str = "always",
        closing: str = "if_non_empty",
        timestamp: str = "end_of_window",
        drop_late: str = "by_window",
        idle: str = "hold",
        only_updated: bool = False,
        retractions: str | None = None,
    ) -> None:
        if only_updated and mode == "discarding":
            raise InvalidArgument(
                "only_updated", only_updated, "equal panes hold different elements in discarding mode"
            )
        if allowed_lateness is not None and allowed_lateness < 0:
            raise InvalidArgument("allowed_lateness", allowed_lateness, "must not be negative")
        self.window = window
        self.trigger = trigger
        self.accumulate = accumulate
        self.mode = mode
        self.allowed_lateness = allowed_lateness
        self.on_time = on_time
        self.closing = closing
        self.timestamp = timestamp
        self.drop_late = drop_late
        self.idle = idle
        self.only_updated = only_updated
        self.retractions = retractions
        self.records: list[Record] = []
        self.ttl = window.ttl if isinstance(window, configuration.Global) else None
        self.watermark = BEGINNING_OF_TIME
        self.received = BEGINNING_OF_TIME
        """The watermark of the inputs; behind ``watermark`` if windows were closed because of idleness."""
        self.clock: int | None = None
        self.forwarded = BEGINNING_OF_TIME
        self.dropped_late = 0
        self.dropped_closed = 0

    # ---- the step

    def step(
        self, rows: Iterable[tuple[Key, int, Row]], watermark: int | None, now: int, *, idle: bool = False
    ) -> Output:
        """Process the batch under the watermark before the step; then the watermark, idleness, the clock."""
        if watermark is not None and watermark < self.received:
            raise WatermarkRegression("the model", "default", self.received, watermark)
        self.received = self.received if watermark is None else watermark
        output = Output()
        for record in self._take(list(rows), now, output):
            if self.watermark >= self._horizon(record.end):  # a retraction has shortened the session
                self._emit(record, output, last=True, completes=False)
                self.records.remove(record)
            else:
                self._ask(record, output)
        if watermark is not None and watermark > self.watermark:
            self._advance(watermark, output)
        if idle and self.idle == "close":
            horizons = [self._horizon(record.end) for record in self.records]
            closing = max((at for at in horizons if at < END_OF_TIME), default=self.watermark)
            if closing > self.watermark:
                self._advance(closing, output)
        self._tick(now, output)
        self._forward(output)
        output.waiting = self._waiting()
        self.dropped_late += output.dropped("late")
        self.dropped_closed += output.dropped("closed")
        return output

    def _take(self, rows: list[tuple[Key, int, Row]], now: int, output: Output) -> list[Record]:
        accepted: list[tuple[Key, Bounds, int, Row]] = []
        for key, at, row in rows:
            assigned = assign(self.window, at, row)
            late = [window for window in assigned if self._is_late(at, window)]
            if self.drop_late == "by_element" and assigned and (late or self._behind(at)):
                output.drops.append(Drop(row, "late", None))
                continue
            output.drops += [Drop(row, "late", window) for window in late]
            accepted += [(key, window, at, row) for window in assigned if window not in late]
        if isinstance(self.window, configuration.Sessions):
            return self._take_sessions(accepted, now, output)
        touched: list[Record] = []
        for key, window, at, row in accepted:
            record = self._find(key, window)
            if record is None:
                record = Record(key, *window, triggers.build(self.trigger))
                self.records.append(record)
            record.latest = max(record.latest, at)
            if record.closed:
                output.drops.append(Drop(row, "closed", window))
                continue
            self._put(record, at, row, now)
            if record not in touched:
                touched.append(record)
        return touched

    def _take_sessions(
        self, accepted: list[tuple[Key, Bounds, int, Row]], now: int, output: Output
    ) -> list[Record]:
        touched: list[Record] = []
        for key in unique(key for key, *_ in accepted):
            mine = [(window, at, row) for owner, window, at, row in accepted if same_key(owner, key)]
            opened = [record for record in self.records if same_key(record.key, key) and not record.closed]
            windows = [window for window, *_ in mine] + [record.bounds for record in opened]
            for start, end in merge_windows(windows):
                inside = [(at, row) for (left, right), at, row in mine if start <= left and right <= end]
                sources = [record for record in opened if start <= record.start and record.end <= end]
                if not inside:
                    continue
                same = self._find(key, (start, end))
                if same is not None and same.closed and not sources:
                    output.drops += [Drop(row, "closed", (start, end)) for _, row in inside]
                    continue
                record = self._merged(key, (start, end), sources, same)
                for at, row in inside:
                    self._put(record, at, row, now)
                touched += self._reformed(record, sources, now)
        return touched

    def _reformed(self, record: Record, sources: list[Record], now: int) -> list[Record]:
        """The session; if it lost elements so that its bounds change, those of the elements that remain."""
        if self.retractions is None or self.mode == "discarding":
            return [record]
        remaining = self._remaining(record)
        windows = merge_windows([assign(self.window, at, row)[0] for at, row in remaining])
        if not windows or windows == [record.bounds]:
            return [record]
        self.records.remove(record)
        parts = [Record(record.key, *window, triggers.build(self.trigger)) for window in windows]
        for part in parts:
            for at, row in remaining:
                if part.start <= at < part.end:
                    self._put(part, at, row, now)
        by_bounds = {part.bounds: part for part in parts}
        owed = list(record.owed) + ([] if record.last is None else [record.last])
        for source in sources:
            if source.bounds in by_bounds:
                part = by_bounds[source.bounds]
                part.index, part.on_time_index = source.index, source.on_time_index
                part.last, part.owed = source.last, list(source.owed)
                owed = [pane for pane in owed if pane is not source.last and pane not in source.owed]
        parts[0].owed += owed
        self.records += parts
        return parts

    def _remaining(self, record: Record) -> list[tuple[int, Row]]:
        """The elements that were not retracted."""
        remaining: list[tuple[int, Row]] = []
        mark = str(self.retractions)
        for element in record.elements:
            row = {**element.row, mark: False}
            if element.row[mark]:
                remaining.remove((element.timestamp, row))
            else:
                remaining.append((element.timestamp, row))
        return remaining

    def _merged(self, key: Key, window: Bounds, sources: list[Record], same: Record | None) -> Record:
        """The open session `window`, merged from the sources; a new one if there are none."""
        merged = Record(key, *window, triggers.build(self.trigger))
        merged.trigger.merge([source.trigger for source in sources], self._moment(window[1]))
        for source in sources:
            merged.elements += source.elements
            merged.new += source.new
            merged.owed += source.owed
            if source is same:
                merged.last = source.last
            elif source.last is not None:
                merged.owed.append(source.last)
        if same is not None:
            merged.index, merged.on_time_index = same.index, same.on_time_index
        gone = [*sources, *([] if same is None else [same])]
        self.records = [record for record in self.records if not any(record is old for old in gone)]
        self.records.append(merged)
        return merged

    def _put(self, record: Record, at: int, row: Row, now: int) -> None:
        element = Element(row, at, self.watermark < record.end, at >= self.watermark)
        record.elements.append(element)
        record.new.append(element)
        record.trigger.add(1, now, max(self.watermark, record.start))

    def _advance(self, watermark: int, output: Output) -> None:
        before, self.watermark = self.watermark, watermark
        for record in list(self.records):
            completes = before < record.end <= watermark
            expires = self.ttl is not None and watermark >= self._horizon(record.latest + self.ttl)
            output.expired += expires and watermark < END_OF_TIME
            if watermark >= self._horizon(record.end) or expires:
                if not record.closed:
                    self._emit(record, output, last=True, completes=completes)
                self.records.remove(record)
            elif not record.closed:
                reached = any(before < multiple <= watermark for multiple in record.trigger.multiples())
                if completes or reached:
                    self._ask(record, output, completes=completes)

    def _tick(self, now: int, output: Output) -> None:
        before, self.clock = self.clock, now
        for record in self.records:
            if record.closed:
                continue
            if any(
                (before is None or before <= target) and target < now for target in record.trigger.targets()
            ):
                self._ask(record, output)

    # ---- firing

    def _ask(self, record: Record, output: Output, *, completes: bool = False) -> None:
        moment = self._moment(record.end)
        if record.trigger.ready(moment):
            record.closed = record.trigger.fire(moment)
            self._emit(record, output, last=record.closed, completes=completes)

    def _emit(self, record: Record, output: Output, *, last: bool, completes: bool) -> None:
        new, record.new = record.new, []
        timing = self._timing(record, new, completes)
        wanted = (
            bool(new)
            or (timing == "ON_TIME" and self.on_time == "always")
            or (last and self.closing == "always")
        )
        if wanted and self._is_withdrawn(record):
            retracted = tuple(replace(old, retraction=True) for old in self._owed(record))
            record.last, record.owed = None, []
            if retracted:
                output.emissions.append(Emission(retracted, None))
            return
        values = self.accumulate([e.row for e in (new if self.mode == "discarding" else record.elements)])
        unchanged = record.last is not None and record.last.values == values and not record.owed
        if not wanted or (self.only_updated and unchanged):
            return
        pane = Pane(
            key=record.key,
            start=record.start,
            end=record.end,
            values=values,
            timing=timing,
            index=record.index,
            on_time_index=-1 if timing == "EARLY" else record.on_time_index,
            is_first=record.index == 0,
            is_last=last,
            timestamp=self._timestamp(record, new),
        )
        retracted = tuple(replace(old, retraction=True) for old in self._owed(record))
        output.emissions.append(Emission(retracted, pane))
        record.index += 1
        record.on_time_index += timing != "EARLY"
        record.last, record.owed = pane, []

    def _owed(self, record: Record) -> list[Pane]:
        """The panes that the next one takes back."""
        if self.mode != "accumulating_and_retracting":
            return []
        return record.owed + ([] if record.last is None else [record.last])

    def _is_withdrawn(self, record: Record) -> bool:
        """Whether every element was retracted, so that there is no pane to emit."""
        if self.retractions is None or self.mode == "discarding":
            return False
        remaining = sum(-1 if element.row[self.retractions] else 1 for element in record.elements)
        return remaining == 0 and (self.mode == "accumulating_and_retracting" or record.index == 0)

    def _timing(self, record: Record, new: list[Element], completes: bool) -> str:
        if self.watermark < record.end:
            return "EARLY"
        if record.had_non_early_pane:
            return "LATE"
        if any(element.before_completion for element in new) or (not new and completes):
            return "ON_TIME"
        return "LATE"

    def _timestamp(self, record: Record, new: list[Element]) -> int:
        times = [element.timestamp for element in new if element.not_behind]
        if self.timestamp == "end_of_window" or not times:
            return record.end - 1
        return min(times) if self.timestamp == "earliest" else max(times)

    def _forward(self, output: Output) -> None:
        """The watermark, held at the earliest output timestamp not yet emitted in an on-time pane.

        A pane that may still be retracted holds it too: its retraction must not be more than the allowed
        lateness behind.
        """
        held = self.watermark
        for record in self.records:
            pending = any(element.before_completion for element in record.new)
            if not record.closed and not record.had_non_early_pane and pending:
                held = min(held, self._timestamp(record, record.new))
            if self.mode == "accumulating_and_retracting" and self.allowed_lateness is not None:
                retractable = [*record.owed, *([] if record.last is None else [record.last])]
                for pane in retractable if not record.closed else ():
                    held = min(held, pane.timestamp + self.allowed_lateness)
        if held > self.forwarded:
            self.forwarded = output.forwarded = held

    def _waiting(self) -> int | None:
        """The end of the earliest window that still owes a pane, unless the pane is at the end of time."""
        ends: list[int] = []
        for record in self.records:
            on_time = self.on_time == "always" and self.watermark < record.end
            owes = not record.closed and (record.new or on_time or self.closing == "always")
            if owes and self._timestamp(record, record.new) < END_OF_TIME - 1:
                ends.append(record.end)
        return min(ends, default=None)

    # ---- small things

    def _moment(self, end: int) -> triggers.Moment:
        clock = BEGINNING_OF_TIME if self.clock is None else self.clock
        return triggers.Moment(self.watermark >= end, clock, self.watermark)

    def _horizon(self, end: int) -> int:
        if self.allowed_lateness is None:
            return END_OF_TIME
        return min(end + self.allowed_lateness, END_OF_TIME)

    def _is_late(self, at: int, window: Bounds) -> bool:
        """Whether an element is too late; with a ttl, as if its window ended that long after it."""
        expired = self.ttl is not None and self.watermark >= self._horizon(at + self.ttl)
        return expired or self.watermark >= self._horizon(window[1])

    def _behind(self, at: int) -> bool:
        return self.allowed_lateness is not None and at < self.watermark - self.allowed_lateness

    def _find(self, key: Key, window: Bounds) -> Record | None:
        found = (r for r in self.records if same_key(r.key, key) and r.bounds == window)
        return next(found, None)


# ---- windows


def assign(window: configuration.Window, at: int, row: Row) -> list[Bounds]:
    """The windows of an element, ascending; for sessions its own, before any merging."""
    match window:
        case configuration.Global():
            return [(BEGINNING_OF_TIME, END_OF_TIME)]
        case configuration.Fixed(size=size, offset=offset):
            start = (at - offset) // size * size + offset
            return [(start, start + size)]
        case configuration.Sliding(size=size, every=every, offset=offset):
            first = (at - size - offset) // every
            starts = [first * every + offset]
            while starts[-1] <= at:
                starts.append(starts[-1] + every)
            return [(start, start + size) for start in starts if start <= at < start + size]
        case configuration.Sessions(gap=gap):
            return [(at, at + (row[gap] if isinstance(gap, str) else gap))]
        case configuration.Calendar():
            return [calendar_window(window, at)]
        case configuration.Inherited():
            return [(row["window_start"], row["window_end"])]
    raise TypeError(f"no such window: {window!r}")


def calendar_window(window: configuration.Calendar, at: int) -> Bounds:
    """The local days, weeks, months or years around an instant; counted from 1970."""
    unit, count, zone = window.unit, window.count, ZoneInfo(window.timezone)
    boundary = date(1970, window.first_month, 1)
    while unit == "weeks" and boundary.strftime("%A").lower() != window.first_day:
        boundary += timedelta(days=1)
    near = to_datetime(at).date().year - 1970
    roughly = {"days": near * 365, "weeks": near * 52, "months": near * 12, "years": near}[unit]
    number = (roughly // count - 2) * count
    while local_midnight(moved(boundary, unit, number + count), zone) <= at:
        number += count
    while local_midnight(moved(boundary, unit, number), zone) > at:
        number -= count
    return local_midnight(moved(boundary, unit, number), zone), local_midnight(
        moved(boundary, unit, number + count), zone
    )


def moved(boundary: date, unit: str, by: int) -> date:
    """A boundary `by` units later."""
    if unit in {"days", "weeks"}:
        return boundary + timedelta(days=by * (7 if unit == "weeks" else 1))
    months = by * (12 if unit == "years" else 1)
    month = boundary.month - 1 + months
    return date(boundary.year + month // 12, month % 12 + 1, 1)


def local_midnight(day: date, zone: ZoneInfo) -> int:
    """The instant at which the local day begins."""
    return instant(datetime(day.year, day.month, day.day, tzinfo=zone))


def merge_windows(windows: Iterable[Bounds]) -> list[Bounds]:
    """The unions of windows that overlap; those that only touch are not merged.

    >>> merge_windows([(0, 10), (10, 20), (5, 8)])
    [(0, 10), (10, 20)]
    """
    merged: list[Bounds] = []
    for start, end in sorted(windows):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return merged


def same_key(one: Key, other: Key) -> bool:
    """Keys are equal value by value; null is a value like any other, and 1 is not True."""
    return [(type(value), value) for value in one] == [(type(value), value) for value in other]


def unique(keys: Iterable[Key]) -> list[Key]:
    """Each key once, in the order in which they first appear."""
    seen: list[Key] = []
    for key in keys:
        if not any(same_key(key, known) for known in seen):
            seen.append(key)
    return seen
