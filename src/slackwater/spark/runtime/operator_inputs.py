"""The progress of an operator's inputs in one bucket: the watermark of each input, and of all together.

An input is a source, whose watermark follows from its rows or headers, or an upstream operator, whose buckets
send their watermarks. Several inputs are coalesced by the rules of `slackwater.progress`: the driving event
times to the operator's watermark, and each watermark key under its own name. The inputs of a join or cogroup
belong to two sides, each of which has a watermark of its own: that of its inputs, coalesced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from slackwater.errors import IncompatibleState
from slackwater.monitoring.origins import OriginState, OriginSummary
from slackwater.monitoring.query_state import PolicyLag
from slackwater.progress.coalescer import Coalescer
from slackwater.progress.explanation import Explanation, Reason
from slackwater.progress.saved_form import Saved
from slackwater.progress.values import DEFAULT_KEY, Watermark
from slackwater.spark.runtime.keyed_progress import TimesProgress, TimesRules
from slackwater.spark.runtime.numbered_progress import NumberedProgress, NumberedRules
from slackwater.spark.runtime.source_progress import NO_TABLES, ONLY_ORIGIN, SourceProgress, SourceRules
from slackwater.spark.wire.buffers import Observation, OriginChunk, Result
from slackwater.spark.wire.numbered_chunks import Repeats
from slackwater.time import BEGINNING_OF_TIME, END_OF_TIME


@dataclass(frozen=True, slots=True)
class UpstreamRules:
    """An upstream operator: the ids of its buckets, all of which are waited for, and its watermark keys.

    ``key`` drives the next operator. It is one of the keys that the buckets send, or `EITHER`, whose
    watermark is the lowest of them.

    >>> UpstreamRules((0, 2)).names
    ('default',)
    >>> UpstreamRules((0, 2), EITHER, ("ordered", "delivered")).names
    ('ordered', 'delivered', 'either')
    """

    buckets: tuple[int, ...]
    key: str = DEFAULT_KEY
    sent: tuple[str, ...] = ()
    """The keys that the buckets send; only ``key`` if empty."""

    @property
    def names(self) -> tuple[str, ...]:
        """All keys that have a watermark."""
        return tuple(dict.fromkeys((*self.sent, self.key)))


EITHER: Final = "either"
"""The key of rows with the event time of one of two sides, whichever they have."""

InputRules = SourceRules | TimesRules | NumberedRules | UpstreamRules


@dataclass(frozen=True, slots=True)
class ProgressHeaders:
    """The progress information about one input in a batch, from the headers of its buffers."""

    observations: Sequence[Observation] = ()
    results: Sequence[Result] = ()
    chunks: Sequence[OriginChunk] = ()


@dataclass(frozen=True, slots=True)
class AdvanceResult:
    """What `Inputs.advance` found in a batch."""

    ahead: int = 0
    """The number of event times too far in the future to count."""
    repeats: list[Repeats] = field(default_factory=list)
    """For each input, the numbered buffers and rows that had arrived before."""


class UpstreamProgress:
    """The progress of an upstream operator: the lowest watermark of its buckets.

    >>> progress = UpstreamProgress(UpstreamRules((0, 2)))
    >>> progress.advance([Result(0, 1, 1, False, False, {"default": 5}), Result(2, 1, 1, False, False, {})])
    >>> progress.watermark is None
    True
    >>> progress.advance([Result(2, 2, 1, False, False, {"default": 9})])
    >>> progress.watermark
    5
    """

    def __init__(self, rules: UpstreamRules, saved: bytes | None = None) -> None:
        self._rules = rules
        names = [f"bucket {bucket}" for bucket in rules.buckets]
        self._coalescer = Coalescer(names) if saved is None else Coalescer.load(saved)

    @property
    def watermark(self) -> int | None:
        """The current watermark of the driving key; None before the first."""
        return self._current(self._rules.key)

    @property
    def watermarks(self) -> dict[str, int | None]:
        """The current watermark of every key."""
        return {key: self._current(key) for key in self._rules.names}

    @property
    def idle(self) -> bool:
        """Whether all buckets are idle."""
        return self._coalescer.all_idle

    def advance(self, results: Sequence[Result], now: int | None = None) -> None:
        """Apply the results that the buckets sent in a batch."""
        indices = {bucket: index for index, bucket in enumerate(self._rules.buckets)}
        for result in results:
            self._coalescer.event(indices[result.bucket], now=now)
        moved = [
            (value, key, indices[result.bucket])
            for result in results
            for key, value in result.watermarks.items()
            if key in self._rules.names
        ]
        for value, key, index in sorted(moved):
            self._coalescer.watermark(index, Watermark(value, key), now=now)
        for result in results:
            if result.idle:
                self._coalescer.idle(indices[result.bucket], now=now)

    def origins(self) -> list[OriginState]:
        """None: the upstream operator reports its own origins."""
        return []

    def why(self, key: str | None = None) -> Explanation:
        """Which bucket holds the watermark of a key back."""
        key = self._rules.key if key is None else key
        if not self._is_derived(key):
            return self._coalescer.why(key)
        current = {name: self._coalescer.current(name) for name in self._rules.sent}
        slowest = min(current, key=lambda name: (current[name] is not None, current[name] or 0))
        return replace(self._coalescer.why(slowest), key=key)

    def save(self) -> bytes:
        """The saved state."""
        return self._coalescer.save()

    def _is_derived(self, key: str) -> bool:
        return key == EITHER and bool(self._rules.sent) and key not in self._rules.sent

    def _current(self, key: str) -> int | None:
        if not self._is_derived(key):
            return self._coalescer.current(key)
        current = [self._coalescer.current(name) for name in self._rules.sent]
        known = [value for value in current if value is not None]
        return min(known) if len(known) == len(current) else None


Progress = SourceProgress | TimesProgress | NumberedProgress | UpstreamProgress

_DRIVING: Final = "event:time"
"""The coalescer's key for the driving event times; inputs may have different watermark keys for them."""


@dataclass(frozen=True, slots=True)
class InputProgress:
    """Where the watermark of one input is, and why."""

    name: str
    watermark: int | None
    idle: bool
    why: Explanation


_KINDS: Final = {
    "G": "a source with one event time",
    "K": "a source with several event times",
    "H": "a source of numbered buffers",
    "C": "an operator",
}
"""The kinds of inputs by the tag of their saved progress."""


class SavedInputs(Saved):
    """The saved progress of all inputs."""

    parts: list[bytes]
    coalescer: bytes | None
    sides: tuple[bytes | None, ...] = ()
    """The coalescer of each side that has several inputs, if there is more than one side."""
    names: tuple[str | None, ...] = ()
    """What explanations call the inputs, if there are several."""


class Inputs:
    """The progress of all inputs of an operator.

    ``sides`` has the index of each input's side; without it, all inputs belong to one side. ``names`` are
    what explanations call the inputs.

    >>> from slackwater.progress.watermark_policies import Lag
    >>> from slackwater.spark.wire.buffers import Peak
    >>> inputs = Inputs((SourceRules(Lag(0)), SourceRules(Lag(0))), now=0, sides=(0, 1))
    >>> a, b = (
    ...     ProgressHeaders([Observation(*seen)]) for seen in (("a", [Peak(20, 1)]), ("b", [Peak(30, 1)]))
    ... )
    >>> inputs.advance((a, b), now=1).ahead, inputs.watermark, inputs.side_watermarks
    (0, 20, [20, 30])
    """

    def __init__(
        self,
        rules: Sequence[InputRules],
        now: int,
        saved: SavedInputs | None = None,
        *,
        sides: Sequence[int] = (),
        names: Sequence[str | None] = (),
    ) -> None:
        if saved is not None:
            _check_inputs(rules, saved, sides)
            _check_order(saved.names, names)
        parts = [None] * len(rules) if saved is None else saved.parts
        self._parts = [_progress(one, now, part) for one, part in zip(rules, parts, strict=True)]
        self._coalescer: Coalescer | None = None
        if saved is not None and saved.coalescer is not None:
            self._coalescer = Coalescer.load(saved.coalescer)
        elif len(rules) > 1:
            self._coalescer = Coalescer(len(rules))
        self._names = names or [None] * len(rules)
        sides = sides or [0] * len(rules)
        members = [[index for index, of in enumerate(sides) if of == side] for side in range(max(sides) + 1)]
        known = saved.sides if saved is not None and saved.sides else (None,) * len(members)
        # With one side, the coalescer of all inputs is that of the side.
        self._sides = [
            _Side(mine, part, coalesces=len(members) > 1) for mine, part in zip(members, known, strict=True)
        ]

    @property
    def side_watermarks(self) -> list[int | None]:
        """The watermark of each side, coalesced over its inputs."""
        if len(self._sides) == 1:
            return [self.watermark]
        return [side.watermarks(self._parts)[_DRIVING] for side in self._sides]

    @property
    def side_keys(self) -> list[dict[str, int | None]]:
        """The watermark of every key of each side, coalesced over its inputs."""
        if len(self._sides) == 1:
            return [self.watermarks]
        by_side = [side.watermarks(self._parts) for side in self._sides]
        return [{key: value for key, value in side.items() if key != _DRIVING} for side in by_side]

    @property
    def idle_sides(self) -> list[bool]:
        """For each side, whether all its inputs are idle."""
        return [all(self._parts[index].idle for index in side.members) for side in self._sides]

    @property
    def watermark(self) -> int | None:
        """The coalesced watermark of all inputs."""
        return self._parts[0].watermark if self._coalescer is None else self._coalescer.current(_DRIVING)

    @property
    def watermarks(self) -> dict[str, int | None]:
        """The coalesced watermark of every key that an input has.

        An input without the key holds it back, unless it belongs to a side on which no input has the key.
        """
        if self._coalescer is None:
            return self._parts[0].watermarks
        if len(self._sides) == 1:
            names = {key: None for part in self._parts for key in part.watermarks}
            return {key: self._coalescer.current(key) for key in names}
        lowest: dict[str, int | None] = {}
        for side in self.side_keys:
            for key, value in side.items():
                known = lowest.setdefault(key, value)
                lowest[key] = None if known is None or value is None else min(known, value)
        return lowest

    @property
    def idle(self) -> bool:
        """Whether all inputs are idle."""
        return all(part.idle for part in self._parts)

    def arrival_times(self, now: int) -> list[int]:
        """For each input, the event time of rows that arrive now and have none of their own.

        It is the clock, but not below the watermark: rows are not late because the clock was set back.
        """
        return [now if part.watermark is None else max(now, part.watermark) for part in self._parts]

    @property
    def duplicates(self) -> int:
        """The number of repeated numbered buffers."""
        return sum(part.duplicates for part in self._parts if isinstance(part, NumberedProgress))

    def advance(
        self,
        headers: Sequence[ProgressHeaders],
        now: int,
        *,
        restarted: bool = False,
        set_back: int = 0,
        tables: Mapping[str, int] = NO_TABLES,
    ) -> AdvanceResult:
        """Apply the headers of a batch, one value for each input.

        ``set_back`` is by how much the clock was set back since the last batch, and ``tables`` the times up
        to which tables are complete.
        """
        ahead = 0
        repeats: list[Repeats] = []
        for part in self._parts if set_back else ():
            if not isinstance(part, UpstreamProgress):
                part.set_back(set_back)
        for part, received in zip(self._parts, headers, strict=True):
            again = Repeats()
            match part:
                case UpstreamProgress():
                    part.advance(received.results, now)
                case NumberedProgress():
                    again = part.advance(received.chunks, now, restarted=restarted)
                case SourceProgress():
                    ahead += part.advance(received.observations, now, restarted=restarted, tables=tables)
                case TimesProgress():
                    ahead += part.advance(received.observations, now, restarted=restarted)
            repeats.append(again)
        if self._coalescer is not None:
            _coalesce(self._coalescer, self._parts, now)
        for side in self._sides:
            if side.coalescer is not None:
                _coalesce(side.coalescer, [self._parts[index] for index in side.members], now)
        return AdvanceResult(ahead, repeats)

    def why(self, key: str | None = None) -> Explanation:
        """What holds the watermark of a key back: of several inputs, the one furthest behind.

        Without a key, the watermark that drives the operator.
        """
        parts = self._parts
        if key is not None:
            parts = [
                self._parts[index]
                for side in self._sides
                for index in side.members
                if any(key in self._parts[other].watermarks for other in side.members)
            ]
        waiting = [part for part in parts if not part.idle] or parts
        for part in waiting:
            if key is not None and key not in part.watermarks:
                index = self._parts.index(part)
                without_key = f"{self._names[index] or f'input {index}'}, which has no such key"
                return Explanation(key, None, Reason.NEVER_SPOKE, without_key)
        levels = [part.watermark if key is None else part.watermarks[key] for part in waiting]
        if None in levels:
            return self._explained(waiting[levels.index(None)], key)
        return self._explained(
            min(zip(levels, waiting, strict=True), key=lambda level: level[0] or 0)[1], key
        )

    @property
    def idle_names(self) -> list[str]:
        """The names of the idle inputs."""
        return [name or "the input" for name, part in zip(self._names, self._parts, strict=True) if part.idle]

    def by_input(self) -> list[InputProgress]:
        """The progress of each input."""
        return [
            InputProgress(self._names[index] or f"input {index + 1}", part.watermark, part.idle, part.why())
            for index, part in enumerate(self._parts)
        ]

    @property
    def fronts(self) -> list[tuple[str | None, int | None]]:
        """For each input its name, if there are several, and the event time that it has reached.

        That is its watermark plus the lag of its policy; None for an operator and while it is unknown.
        """
        fronts: list[tuple[str | None, int | None]] = []
        for part, name in zip(self._parts, self._labels, strict=True):
            lag, at = _lag(part), part.watermark
            fronts.append((name, None if lag is None or at is None or at == END_OF_TIME else at + lag))
        return fronts

    @property
    def policy_lags(self) -> tuple[PolicyLag, ...]:
        """The lags of the policies of all sources, each with its input if there are several."""
        return tuple(
            lag if name is None else msgspec.structs.replace(lag, name=f"{name}: {lag.name}")
            for part, name in zip(self._parts, self._labels, strict=True)
            if isinstance(part, SourceProgress | TimesProgress)
            for lag in part.lags
        )

    @property
    def _labels(self) -> list[str | None]:
        """The name of each input, if there are several."""
        if len(self._parts) == 1:
            return [None]
        return [name or f"input {index + 1}" for index, name in enumerate(self._names)]

    def origins(self) -> OriginSummary:
        """The origins of all sources, each with the name of its input if there are several."""
        if len(self._parts) == 1:
            (only,) = self._parts
            if isinstance(only, SourceProgress):
                return OriginSummary.of_columns(only.origin_columns())
            return OriginSummary.of(only.origins())
        names = [name or f"input {index + 1}" for index, name in enumerate(self._names)]
        return OriginSummary.of(
            msgspec.structs.replace(origin, input=name)
            for part, name in zip(self._parts, names, strict=True)
            for origin in part.origins()
        )

    def _explained(self, part: Progress, key: str | None) -> Explanation:
        """The explanation of one input, which names the input."""
        why, name = part.why(key), self._names[self._parts.index(part)]
        if name is None or (why.held_by is None and why.reason is Reason.IDLE):
            return why
        if why.held_by in (None, f"partition {ONLY_ORIGIN!r}"):
            return replace(why, held_by=name, reason=why.reason if why.held_by else Reason.NEVER_SPOKE)
        return replace(why, held_by=f"{why.held_by} of {name}")

    def save(self) -> SavedInputs:
        """The saved state."""
        coalescer = None if self._coalescer is None else self._coalescer.save()
        sides = tuple(side.save() for side in self._sides) if len(self._sides) > 1 else ()
        names = tuple(self._names) if len(self._parts) > 1 else ()
        return SavedInputs([part.save() for part in self._parts], coalescer, sides, names)


class _Side:
    """The inputs of a side, with a coalescer if there are several."""

    def __init__(self, members: Sequence[int], saved: bytes | None, *, coalesces: bool) -> None:
        self.members = members
        self.coalescer: Coalescer | None = None
        if saved is not None:
            self.coalescer = Coalescer.load(saved)
        elif coalesces and len(members) > 1:
            self.coalescer = Coalescer(len(members))

    def watermarks(self, parts: Sequence[Progress]) -> dict[str, int | None]:
        """The watermarks of this side: by key, and of the driving event times."""
        if self.coalescer is None:
            return _watermarks(parts[self.members[0]])
        names = {key: None for index in self.members for key in _watermarks(parts[index])}
        return {key: self.coalescer.current(key) for key in names}

    def save(self) -> bytes | None:
        return None if self.coalescer is None else self.coalescer.save()


def _coalesce(coalescer: Coalescer, parts: Sequence[Progress], now: int) -> None:
    """Pass on what the coalescer does not know yet of some inputs."""
    for index, part in enumerate(parts):
        if not part.idle:
            coalescer.event(index, now=now)
    advanced = [
        (value, key, index)
        for index, part in enumerate(parts)
        for key, value in _watermarks(part).items()
        if value is not None and value > _or_lowest(coalescer.received(index, key))
    ]
    for value, key, index in sorted(advanced):
        coalescer.watermark(index, Watermark(value, key), now=now)
    for index, part in enumerate(parts):
        if part.idle:
            coalescer.idle(index, now=now)


def _or_lowest(watermark: int | None) -> int:
    return BEGINNING_OF_TIME - 1 if watermark is None else watermark


def _watermarks(part: Progress) -> dict[str, int | None]:
    return {_DRIVING: part.watermark, **part.watermarks}


def _check_inputs(rules: Sequence[InputRules], saved: SavedInputs, sides: Sequence[int]) -> None:
    """Raise if inputs were added, removed, moved to another side, or replaced by another kind of input."""
    if len(rules) != len(saved.parts):
        raise IncompatibleState("inputs", [("the number of inputs", len(saved.parts), len(rules))])
    new = [sum(of == side for of in sides) for side in range(max(sides) + 1)] if sides else [len(rules)]
    # The state of a single side, and that of an earlier release, does not contain sides.
    by_side = [1 if side is None else Coalescer.load(side).inputs for side in saved.sides] or new
    if len(by_side) != len(new):
        raise IncompatibleState("inputs", [("the number of sides", len(by_side), len(new))])
    kinds = [(_KINDS.get(chr(part[1])), _kind(one)) for one, part in zip(rules, saved.parts, strict=True)]
    differences: list[tuple[str, object, object]] = [
        (f"the number of inputs on the {side} side", before, after)
        for side, before, after in zip(("left", "right"), by_side, new, strict=False)
        if before != after
    ]
    differences += [
        (f"input {number}", before, after) for number, (before, after) in enumerate(kinds) if before != after
    ]
    if differences:
        raise IncompatibleState("inputs", differences)


def _check_order(saved: Sequence[str | None], names: Sequence[str | None]) -> None:
    """Raise if inputs have changed places: state and the offsets of Spark's sources belong to positions."""
    moved = [
        (f"the position of {name}", before, names.index(name) + 1)
        for before, name in enumerate(saved, start=1)
        if name in names and names[before - 1] != name
    ]
    if moved:
        raise IncompatibleState("inputs", moved)


def _lag(part: Progress) -> int | None:
    """By how much the watermark of an input is behind the event time that it has reached."""
    match part:
        case SourceProgress() | TimesProgress():
            return part.lags[0].lag if part.lags else None
        case NumberedProgress():
            return 0
        case UpstreamProgress():
            return None


def _kind(rules: InputRules) -> str:
    match rules:
        case UpstreamRules():
            return _KINDS["C"]
        case TimesRules():
            return _KINDS["K"]
        case NumberedRules():
            return _KINDS["H"]
        case SourceRules():
            return _KINDS["G"]


def _progress(rules: InputRules, now: int, saved: bytes | None) -> Progress:
    match rules:
        case UpstreamRules():
            return UpstreamProgress(rules, saved)
        case TimesRules():
            return TimesProgress(rules, now, saved)
        case NumberedRules():
            return NumberedProgress(rules, now, saved)
        case SourceRules():
            return SourceProgress(rules, now) if saved is None else SourceProgress.load(rules, saved, now)
