"""The progress of an operator's inputs in one bucket: the watermark of each input, and of all together.

An input is a source, whose watermark follows from its rows or headers, or an upstream operator, whose buckets
send their watermarks. Several inputs are coalesced by the rules of `slackwater.progress`: the driving event
times to the operator's watermark, and each watermark key under its own name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from slackwater.progress.coalescer import Coalescer
from slackwater.progress.explanation import Explanation, Reason
from slackwater.progress.saved_form import Saved
from slackwater.progress.values import DEFAULT_KEY, Watermark
from slackwater.spark.runtime.keyed_progress import TimesProgress, TimesRules
from slackwater.spark.runtime.numbered_progress import NumberedProgress, NumberedRules
from slackwater.spark.runtime.source_progress import SourceProgress, SourceRules
from slackwater.spark.wire.buffers import Chunk, Observation, Result
from slackwater.spark.wire.numbered_chunks import Repeats


@dataclass(frozen=True, slots=True)
class UpstreamRules:
    """An upstream operator: the ids of its buckets, all of which are waited for.

    >>> UpstreamRules((0, 2)).key
    'default'
    """

    buckets: tuple[int, ...]
    key: str = DEFAULT_KEY


InputRules = SourceRules | TimesRules | NumberedRules | UpstreamRules


@dataclass(frozen=True, slots=True)
class ProgressHeaders:
    """The progress information about one input in a batch, from the headers of its buffers."""

    observations: Sequence[Observation] = ()
    results: Sequence[Result] = ()
    chunks: Sequence[Chunk] = ()


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
        """The current watermark; None before the first."""
        return self._coalescer.current(self._rules.key)

    @property
    def watermarks(self) -> dict[str, int | None]:
        """The current watermark by its key."""
        return {self._rules.key: self.watermark}

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
            (result.watermarks[self._rules.key], indices[result.bucket])
            for result in results
            if self._rules.key in result.watermarks
        ]
        for value, index in sorted(moved):
            self._coalescer.watermark(index, Watermark(value, self._rules.key), now=now)
        for result in results:
            if result.idle:
                self._coalescer.idle(indices[result.bucket], now=now)

    def why(self, key: str | None = None) -> Explanation:
        """Which bucket holds the watermark back."""
        return self._coalescer.why(self._rules.key)

    def save(self) -> bytes:
        """The saved state."""
        return self._coalescer.save()


Progress = SourceProgress | TimesProgress | NumberedProgress | UpstreamProgress

_DRIVING: Final = "event:time"
"""The coalescer's key for the driving event times; inputs may have different watermark keys for them."""


class SavedInputs(Saved):
    """The saved progress of all inputs."""

    parts: list[bytes]
    coalescer: bytes | None


class Inputs:
    """The progress of all inputs of an operator.

    >>> from slackwater.progress.generator import Lag
    >>> from slackwater.spark.wire.buffers import Peak
    >>> inputs = Inputs((SourceRules(Lag(0)), SourceRules(Lag(0))), now=0)
    >>> a, b = (
    ...     ProgressHeaders([Observation(*seen)]) for seen in (("a", [Peak(20, 1)]), ("b", [Peak(30, 1)]))
    ... )
    >>> inputs.advance((a, b), now=1).ahead, inputs.watermark, inputs.input_watermarks
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
    def input_watermarks(self) -> list[int | None]:
        """The watermark of each input."""
        return [part.watermark for part in self._parts]

    @property
    def watermark(self) -> int | None:
        """The coalesced watermark of all inputs."""
        return self._parts[0].watermark if self._coalescer is None else self._coalescer.current(_DRIVING)

    @property
    def watermarks(self) -> dict[str, int | None]:
        """The coalesced watermark of every key that an input has."""
        names = {key: None for part in self._parts for key in part.watermarks}
        if self._coalescer is None:
            return self._parts[0].watermarks
        return {key: self._coalescer.current(key) for key in names}

    @property
    def idle(self) -> bool:
        """Whether all inputs are idle."""
        return all(part.idle for part in self._parts)

    @property
    def idle_inputs(self) -> list[bool]:
        """For each input, whether it is idle."""
        return [part.idle for part in self._parts]

    @property
    def duplicates(self) -> int:
        """The number of repeated numbered buffers."""
        return sum(part.duplicates for part in self._parts if isinstance(part, NumberedProgress))

    def advance(
        self, headers: Sequence[ProgressHeaders], now: int, *, restarted: bool = False
    ) -> AdvanceResult:
        """Apply the headers of a batch, one value for each input."""
        ahead = 0
        repeats: list[Repeats] = []
        before = [_watermarks(part) for part in self._parts]
        for part, received in zip(self._parts, headers, strict=True):
            again = Repeats()
            match part:
                case UpstreamProgress():
                    part.advance(received.results, now)
                case NumberedProgress():
                    again = part.advance(received.chunks, now, restarted=restarted)
                case SourceProgress() | TimesProgress():
                    ahead += part.advance(received.observations, now, restarted=restarted)
            repeats.append(again)
        if self._coalescer is not None:
            self._coalesce(self._coalescer, before, now)
        return AdvanceResult(ahead, repeats)

    def _coalesce(self, coalescer: Coalescer, before: list[dict[str, int | None]], now: int) -> None:
        for index, part in enumerate(self._parts):
            if not part.idle:
                coalescer.event(index, now=now)
        advanced = [
            (value, key, index)
            for index, (part, old) in enumerate(zip(self._parts, before, strict=True))
            for key, value in _watermarks(part).items()
            if value is not None and value != old[key]
        ]
        for value, key, index in sorted(advanced):
            coalescer.watermark(index, Watermark(value, key), now=now)
        for index, part in enumerate(self._parts):
            if part.idle:
                coalescer.idle(index, now=now)

    def why(self, key: str | None = None) -> Explanation:
        """What holds the watermark of a key back: of several inputs, the one furthest behind.

        Without a key, the watermark that drives the operator.
        """
        waiting = [part for part in self._parts if not part.idle] or self._parts
        for part in waiting:
            if key is not None and key not in part.watermarks:
                without_key = f"input {self._parts.index(part)}, which has no such key"
                return Explanation(key, None, Reason.NEVER_SPOKE, without_key)
        levels = [part.watermark if key is None else part.watermarks[key] for part in waiting]
        if None in levels:
            return waiting[levels.index(None)].why(key)
        return min(zip(levels, waiting, strict=True), key=lambda level: level[0] or 0)[1].why(key)

    def save(self) -> SavedInputs:
        """The saved state."""
        coalescer = None if self._coalescer is None else self._coalescer.save()
        return SavedInputs([part.save() for part in self._parts], coalescer)


def _watermarks(part: Progress) -> dict[str, int | None]:
    return {_DRIVING: part.watermark, **part.watermarks}


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
