"""The inputs of an operator, as one of its buckets knows them: each with its own watermark, and all as one.

An input is a source, whose rows tell the time, or an operator that comes before this one, whose buckets
tell how far they are. Several inputs are coalesced by the rules of `slackwater.progress`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from slackwater.progress.coalescer import Coalescer
from slackwater.progress.explanation import Explanation
from slackwater.progress.saved import Saved
from slackwater.progress.values import DEFAULT_KEY, Watermark
from slackwater.spark.buffers import Observation, Result
from slackwater.spark.progress import SourceProgress, SourceRules


@dataclass(frozen=True, slots=True)
class UpstreamRules:
    """An operator that comes before: the buckets it has, all of which are waited for.

    >>> UpstreamRules((0, 2)).key
    'default'
    """

    buckets: tuple[int, ...]
    key: str = DEFAULT_KEY


InputRules = SourceRules | UpstreamRules


@dataclass(frozen=True, slots=True)
class Heard:
    """What a batch brings of one input."""

    observations: Sequence[Observation] = ()
    results: Sequence[Result] = ()


NOTHING: Final = Heard()


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

    def why(self) -> Explanation:
        """Which bucket holds the watermark back."""
        return self._coalescer.why(self._rules.key)

    def save(self) -> bytes:
        """Everything heard so far."""
        return self._coalescer.save()


class SavedInputs(Saved):
    """The progress of all inputs."""

    parts: list[bytes]
    coalescer: bytes | None


class Inputs:
    """All inputs of an operator.

    >>> from slackwater.progress.generator import Lag
    >>> from slackwater.spark.buffers import Peak
    >>> inputs = Inputs((SourceRules(Lag(0)), SourceRules(Lag(0))), now=0)
    >>> seen = Heard([Observation("a", [Peak(20, 1)])]), Heard([Observation("b", [Peak(30, 1)])])
    >>> inputs.advance(seen, now=1), inputs.watermark, inputs.edges
    (0, 20, [20, 30])
    """

    def __init__(self, rules: Sequence[InputRules], now: int, saved: SavedInputs | None = None) -> None:
        self._parts: list[SourceProgress | UpstreamProgress] = []
        for place, one in enumerate(rules):
            part = None if saved is None else saved.parts[place]
            if isinstance(one, UpstreamRules):
                self._parts.append(UpstreamProgress(one, part))
            elif part is None:
                self._parts.append(SourceProgress(one, now))
            else:
                self._parts.append(SourceProgress.load(one, part, now))
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
        return self._parts[0].watermark if self._coalescer is None else self._coalescer.current()

    @property
    def idle(self) -> bool:
        """Whether nothing is to be expected from any input for now."""
        return all(part.idle for part in self._parts)

    def advance(self, heard: Sequence[Heard], now: int, *, restarted: bool = False) -> int:
        """A batch has come; how many of its rows lay too far ahead of the clock to count."""
        ahead = 0
        before = self.edges
        for part, news in zip(self._parts, heard, strict=True):
            if isinstance(part, UpstreamProgress):
                part.advance(news.results, now)
            else:
                ahead += part.advance(news.observations, now, restarted=restarted)
        if self._coalescer is not None:
            self._coalesce(self._coalescer, before, now)
        return ahead

    def _coalesce(self, coalescer: Coalescer, before: list[int | None], now: int) -> None:
        for place, part in enumerate(self._parts):
            if not part.idle:
                coalescer.event(place, now=now)
        risen = [
            (value, place)
            for place, (value, old) in enumerate(zip(self.edges, before, strict=True))
            if value is not None and value != old
        ]
        for value, place in sorted(risen):
            coalescer.watermark(place, Watermark(value), now=now)
        for place, part in enumerate(self._parts):
            if part.idle:
                coalescer.idle(place, now=now)

    def why(self) -> Explanation:
        """Who holds the watermark back: of several inputs, the one that is furthest behind."""
        waiting = [part for part in self._parts if not part.idle] or self._parts
        unknown = [part for part in waiting if part.watermark is None]
        held_by = unknown[0] if unknown else min(waiting, key=lambda part: part.watermark or 0)
        return held_by.why()

    def save(self) -> SavedInputs:
        """Everything heard so far."""
        coalescer = None if self._coalescer is None else self._coalescer.save()
        return SavedInputs([part.save() for part in self._parts], coalescer)
