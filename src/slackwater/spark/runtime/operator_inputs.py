"""The inputs of an operator, as one of its buckets knows them: each with its own watermark, and all as one.

An input is a source, whose rows or headers tell the time, or an operator that comes before this one, whose
buckets tell how far they are. Several inputs are coalesced by the rules of `slackwater.progress`: the event
times that drive the operator to its watermark, and every key under its name.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import Final

from slackwater.progress.coalescer import Coalescer
from slackwater.progress.explanation import Explanation, Reason
from slackwater.progress.saved_form import Saved
from slackwater.progress.values import DEFAULT_KEY, Watermark
from slackwater.spark.runtime.keyed_progress import TimesProgress, TimesRules
from slackwater.spark.runtime.numbered_progress import NumberedProgress, NumberedRules
from slackwater.spark.runtime.source_progress import SourceProgress, SourceRules
from slackwater.spark.wire.buffers import Chunk, Number, Observation, Result


@dataclass(frozen=True, slots=True)
class UpstreamRules:
    """An operator that comes before: the buckets it has, all of which are waited for.

    >>> UpstreamRules((0, 2)).key
    'default'
    """

    buckets: tuple[int, ...]
    key: str = DEFAULT_KEY


InputRules = SourceRules | TimesRules | NumberedRules | UpstreamRules


@dataclass(frozen=True, slots=True)
class Heard:
    """What a batch brings of one input."""

    observations: Sequence[Observation] = ()
    results: Sequence[Result] = ()
    chunks: Sequence[Chunk] = ()


NOTHING: Final = Heard()


@dataclass(frozen=True, slots=True)
class Judged:
    """What a batch was found to hold."""

    ahead: int = 0
    """Times that lay too far ahead of the clock to count."""
    repeated: list[Set[Number]] = field(default_factory=list)
    """For each input the numbered buffers that came before."""


class UpstreamProgress:
    """How far an operator is that comes before: the lowest watermark of its buckets.

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
        """The last watermark, None before the first."""
        return self._coalescer.current(self._rules.key)

    @property
    def watermarks(self) -> dict[str, int | None]:
        """The last watermark by its key."""
        return {self._rules.key: self.watermark}

    @property
    def idle(self) -> bool:
        """Whether nothing is to be expected for now."""
        return self._coalescer.all_idle

    def advance(self, results: Sequence[Result], now: int | None = None) -> None:
        """The buckets have spoken."""
        places = {bucket: place for place, bucket in enumerate(self._rules.buckets)}
        for result in results:
            self._coalescer.event(places[result.bucket], now=now)
        moved = [
            (result.watermarks[self._rules.key], places[result.bucket])
            for result in results
            if self._rules.key in result.watermarks
        ]
        for value, place in sorted(moved):
            self._coalescer.watermark(place, Watermark(value, self._rules.key), now=now)
        for result in results:
            if result.idle:
                self._coalescer.idle(places[result.bucket], now=now)

    def why(self, key: str | None = None) -> Explanation:
        """Which bucket holds the watermark back."""
        return self._coalescer.why(self._rules.key)

    def save(self) -> bytes:
        """Everything heard so far."""
        return self._coalescer.save()


Progress = SourceProgress | TimesProgress | NumberedProgress | UpstreamProgress

_DRIVING: Final = "event:time"
"""What the event times that drive the operator are called among the keys, whatever key each input chose."""


class SavedInputs(Saved):
    """The progress of all inputs."""

    parts: list[bytes]
    coalescer: bytes | None


class Inputs:
    """All inputs of an operator.

    >>> from slackwater.progress.generator import Lag
    >>> from slackwater.spark.wire.buffers import Peak
    >>> inputs = Inputs((SourceRules(Lag(0)), SourceRules(Lag(0))), now=0)
    >>> seen = Heard([Observation("a", [Peak(20, 1)])]), Heard([Observation("b", [Peak(30, 1)])])
    >>> inputs.advance(seen, now=1).ahead, inputs.watermark, inputs.edges
    (0, 20, [20, 30])
    """

    def __init__(self, rules: Sequence[InputRules], now: int, saved: SavedInputs | None = None) -> None:
        parts = [None] * len(rules) if saved is None else saved.parts
        self._parts = [_progress(one, now, part) for one, part in zip(rules, parts, strict=True)]
        self._coalescer: Coalescer | None = None
        if saved is not None and saved.coalescer is not None:
            self._coalescer = Coalescer.load(saved.coalescer)
        elif len(rules) > 1:
            self._coalescer = Coalescer(len(rules))

    @property
    def edges(self) -> list[int | None]:
        """The watermark of each input."""
        return [part.watermark for part in self._parts]

    @property
    def watermark(self) -> int | None:
        """The watermark of all inputs together."""
        return self._parts[0].watermark if self._coalescer is None else self._coalescer.current(_DRIVING)

    @property
    def watermarks(self) -> dict[str, int | None]:
        """The watermark of every key that some input has, of all inputs together."""
        names = {key: None for part in self._parts for key in part.watermarks}
        if self._coalescer is None:
            return self._parts[0].watermarks
        return {key: self._coalescer.current(key) for key in names}

    @property
    def idle(self) -> bool:
        """Whether nothing is to be expected from any input for now."""
        return all(part.idle for part in self._parts)

    @property
    def duplicates(self) -> int:
        """How many numbered buffers came again."""
        return sum(part.duplicates for part in self._parts if isinstance(part, NumberedProgress))

    def advance(self, heard: Sequence[Heard], now: int, *, restarted: bool = False) -> Judged:
        """A batch has come; what it was found to hold."""
        ahead = 0
        repeated: list[Set[Number]] = []
        before = [self._moving(part) for part in self._parts]
        for part, news in zip(self._parts, heard, strict=True):
            again: Set[Number] = frozenset()
            match part:
                case UpstreamProgress():
                    part.advance(news.results, now)
                case NumberedProgress():
                    again = part.advance(news.chunks, now, restarted=restarted)
                case SourceProgress() | TimesProgress():
                    ahead += part.advance(news.observations, now, restarted=restarted)
            repeated.append(again)
        if self._coalescer is not None:
            self._coalesce(self._coalescer, before, now)
        return Judged(ahead, repeated)

    def _coalesce(self, coalescer: Coalescer, before: list[dict[str, int | None]], now: int) -> None:
        for place, part in enumerate(self._parts):
            if not part.idle:
                coalescer.event(place, now=now)
        risen = [
            (value, key, place)
            for place, (part, old) in enumerate(zip(self._parts, before, strict=True))
            for key, value in self._moving(part).items()
            if value is not None and value != old[key]
        ]
        for value, key, place in sorted(risen):
            coalescer.watermark(place, Watermark(value, key), now=now)
        for place, part in enumerate(self._parts):
            if part.idle:
                coalescer.idle(place, now=now)

    def _moving(self, part: Progress) -> dict[str, int | None]:
        return {_DRIVING: part.watermark, **part.watermarks}

    def why(self, key: str | None = None) -> Explanation:
        """Who holds the watermark back: of several inputs, the one that is furthest behind.

        Without a key, the watermark that drives the operator.
        """
        waiting = [part for part in self._parts if not part.idle] or self._parts
        for part in waiting:
            if key is not None and key not in part.watermarks:
                without = f"input {self._parts.index(part)}, which has no such key"
                return Explanation(key, None, Reason.NEVER_SPOKE, without)
        levels = [part.watermark if key is None else part.watermarks[key] for part in waiting]
        if None in levels:
            return waiting[levels.index(None)].why(key)
        return min(zip(levels, waiting, strict=True), key=lambda level: level[0] or 0)[1].why(key)

    def save(self) -> SavedInputs:
        """Everything heard so far."""
        coalescer = None if self._coalescer is None else self._coalescer.save()
        return SavedInputs([part.save() for part in self._parts], coalescer)


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
