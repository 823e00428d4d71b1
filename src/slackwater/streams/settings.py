"""Settings of a stream: marks, retention and scaling. All times are microseconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from slackwater.errors import CorruptState, InvalidArgument
from slackwater.streams.arguments import check_positive
from slackwater.time import MINUTE, SECOND


@dataclass(frozen=True, slots=True)
class MarkSettings:
    """How often marks are made, and how long they wait for a writer that is behind (M1, M7).

    Args:
        period: Interval between two cycles of the controller. The first mark is made one period after the
            first noted time, so that other writers can arrive.
        timeout: How long a writer that has not noted a time above the last mark holds back the next one.

    Raises:
        InvalidArgument: A value is not above zero.

    >>> MarkSettings().period == 10 * SECOND, MarkSettings().timeout == 60 * SECOND
    (True, True)
    """

    period: int = 10 * SECOND
    timeout: int = 60 * SECOND

    def __post_init__(self) -> None:
        for name in ("period", "timeout"):
            check_positive(getattr(self, name), name, fix="give a duration above zero")


@dataclass(frozen=True, slots=True)
class Retention:
    """How much of a stream is kept. Both limits apply; the default keeps everything.

    Args:
        age: Remove events that were appended longer ago than this.
        size: Remove the oldest events while the stream takes more bytes than this.

    Raises:
        InvalidArgument: A limit is not above zero.

    >>> Retention(age=7 * 24 * 3600 * SECOND, size=10_000_000).size
    10000000
    """

    age: int | None = None
    size: int | None = None

    def __post_init__(self) -> None:
        for name in ("age", "size"):
            if (limit := getattr(self, name)) is not None:
                check_positive(limit, name, fix="give more, or None to keep everything")


@dataclass(frozen=True, slots=True)
class ScalingPolicy:
    """Target rate of a segment, and the limits within which a controller splits and merges segments.

    A segment that takes at least twice the rate is split; neighbours that together take less than half of it
    are merged. Between the two nothing changes, so a steady load does not make the stream oscillate.

    Args:
        rate: Events per second that a segment should take.
        minimum: Fewest active segments.
        maximum: Most active segments.
        window: Interval over which rates are measured. A segment younger than this is not scaled.

    Raises:
        InvalidArgument: A value is below 1, or the maximum is below the minimum.

    >>> ScalingPolicy(rate=1000).minimum
    1
    """

    rate: int
    minimum: int = 1
    maximum: int = 64
    window: int = 2 * MINUTE

    def __post_init__(self) -> None:
        for name in ("rate", "minimum", "maximum", "window"):
            check_positive(getattr(self, name), name, fix="give 1 or more")
        if self.minimum > self.maximum:
            reason, fix = f"is below minimum = {self.minimum}", f"give {self.minimum} or more"
            raise InvalidArgument("maximum", self.maximum, reason, fix=fix)


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """All settings of a stream.

    Args:
        marks: When marks are made.
        retention: What is kept; everything by default.
        scaling: When segments are split and merged; None leaves that to `Stream.scale`.

    >>> settings = StreamSettings(scaling=ScalingPolicy(rate=1000))
    >>> StreamSettings.load(settings.save()) == settings
    True
    >>> StreamSettings.load({}) == StreamSettings()
    True
    """

    marks: MarkSettings = field(default_factory=MarkSettings)
    retention: Retention = field(default_factory=Retention)
    scaling: ScalingPolicy | None = None

    @classmethod
    def of(cls, given: StreamSettings | Mapping[str, Any] | None) -> StreamSettings:
        """Convert settings that a caller gave, and reject unknown names.

        >>> StreamSettings.of({"marks": {"timeout": 5}}).marks.timeout
        5
        >>> StreamSettings.of({"marks": {"every": 5}})
        Traceback (most recent call last):
        slackwater.errors.InvalidArgument: settings = ['marks.every']: unknown setting; give StreamSettings(…)
        """
        if isinstance(given, StreamSettings):
            return given
        wanted, fix = dict(given or {}), "give StreamSettings(…)"
        try:
            made = msgspec.convert(wanted, cls)
        except msgspec.ValidationError as error:
            raise InvalidArgument("settings", wanted, f"is not valid: {error}", fix=fix) from None
        if unknown := _unknown(wanted, made.save()):
            raise InvalidArgument("settings", unknown, "unknown setting", fix=fix)
        return made

    def save(self) -> dict[str, Any]:
        """Return the settings as plain values, as the catalog stores them."""
        saved: dict[str, Any] = msgspec.to_builtins(self)
        return saved

    @classmethod
    def load(cls, saved: Mapping[str, Any]) -> StreamSettings:
        """Rebuild settings from what `save` returned; missing ones take their default."""
        try:
            return msgspec.convert(dict(saved), cls)
        except msgspec.ValidationError as error:
            raise CorruptState("settings of the stream", str(error)) from None


def _unknown(given: Mapping[str, Any], known: Mapping[str, Any]) -> list[str]:
    found = []
    for name, value in given.items():
        if name not in known:
            found.append(name)
        elif isinstance(value, Mapping):
            found += [f"{name}.{inner}" for inner in _unknown(value, known[name])]
    return found
