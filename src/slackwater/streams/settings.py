"""Settings of a stream: marks, retention and scaling.

Durations are given as text or ``timedelta``, as everywhere in Slackwater; the settings keep them, and the
catalog stores them, as microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import timedelta
from typing import Any, Final

from slackwater.errors import CorruptState, InvalidArgument
from slackwater.streams.arguments import check_positive, positive_duration
from slackwater.time import DurationLike


@dataclass(frozen=True, slots=True, init=False)
class MarkSettings:
    """How often marks are made, how long they wait for writers, and how far noted times may be ahead.

    Args:
        period: Interval between two cycles of the controller (M7). The first mark is made one period after
            the first noted time, so that other writers can arrive.
        timeout: How long a writer that has not noted a time above the last mark holds back the next one (M1).
        max_ahead: How far a noted time may be ahead of the store's clock; later ones are refused with
            `NoteResult.TOO_FAR_AHEAD`. By default any time is accepted.

    Raises:
        InvalidArgument: A duration is not above zero, or has no unit.

    >>> import slackwater as sw
    >>> settings = sw.MarkSettings(timeout="5 minutes")
    >>> settings.period, settings.timeout  # microseconds
    (10000000, 300000000)
    >>> sw.MarkSettings(period=10)
    Traceback (most recent call last):
    slackwater.errors.InvalidDuration: period = 10: a bare number has no unit; write it like "10 seconds", \
"1 hour 30 minutes", "PT10S" or timedelta(seconds=10)
    """

    period: int
    timeout: int
    max_ahead: int | None

    def __init__(
        self,
        period: DurationLike = "10 seconds",
        timeout: DurationLike = "60 seconds",
        max_ahead: DurationLike | None = None,
    ) -> None:
        object.__setattr__(self, "period", positive_duration(period, "period"))
        object.__setattr__(self, "timeout", positive_duration(timeout, "timeout"))
        ahead = None if max_ahead is None else positive_duration(max_ahead, "max_ahead")
        object.__setattr__(self, "max_ahead", ahead)


@dataclass(frozen=True, slots=True, init=False)
class Retention:
    """How much of a stream is kept. Both limits apply; the default keeps everything.

    The newest append is always kept.

    Args:
        age: Remove events that were appended longer ago than this, by the clock of the store.
        size: Remove the oldest events while the stream takes more bytes than this.

    Raises:
        InvalidArgument: A limit is not above zero, or the age has no unit.

    >>> import slackwater as sw
    >>> sw.Retention(age="7 days", size=10_000_000).age  # microseconds
    604800000000
    """

    age: int | None
    size: int | None

    def __init__(self, age: DurationLike | None = None, size: int | None = None) -> None:
        fix = "give more, or None to keep everything"
        object.__setattr__(self, "age", None if age is None else positive_duration(age, "age"))
        object.__setattr__(self, "size", None if size is None else check_positive(size, "size", fix=fix))


@dataclass(frozen=True, slots=True, init=False)
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
        InvalidArgument: A value is below 1, the window has no unit, or the maximum is below the minimum.

    >>> import slackwater as sw
    >>> sw.ScalingPolicy(rate=1000).minimum
    1
    """

    rate: int
    minimum: int
    maximum: int
    window: int

    def __init__(
        self, rate: int, minimum: int = 1, maximum: int = 64, window: DurationLike = "2 minutes"
    ) -> None:
        for name, value in (("rate", rate), ("minimum", minimum), ("maximum", maximum)):
            object.__setattr__(self, name, check_positive(value, name, fix="give 1 or more"))
        object.__setattr__(self, "window", positive_duration(window, "window"))
        if self.minimum > self.maximum:
            reason, fix = f"is below minimum = {self.minimum}", f"give {self.minimum} or more"
            raise InvalidArgument("maximum", self.maximum, reason, fix=fix)


_DURATIONS: Final = ("period", "timeout", "max_ahead", "age", "window")
_PARTS: Final[dict[str, type[Any]]] = {
    "marks": MarkSettings,
    "retention": Retention,
    "scaling": ScalingPolicy,
}


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """All settings of a stream.

    Args:
        marks: When marks are made.
        retention: What is kept; everything by default.
        scaling: When segments are split and merged; None leaves that to `Stream.scale`.

    >>> import slackwater as sw
    >>> settings = sw.StreamSettings(scaling=sw.ScalingPolicy(rate=1000))
    >>> sw.StreamSettings.load(settings.save()) == settings
    True
    >>> sw.StreamSettings.load({}) == sw.StreamSettings()
    True
    """

    marks: MarkSettings = field(default_factory=MarkSettings)
    retention: Retention = field(default_factory=Retention)
    scaling: ScalingPolicy | None = None

    @classmethod
    def of(cls, given: StreamSettings | Mapping[str, Any] | None) -> StreamSettings:
        """Convert settings that a caller gave, and reject unknown names.

        Args:
            given: Settings, a mapping of groups of settings, or None for the defaults.

        >>> import slackwater as sw
        >>> sw.StreamSettings.of({"marks": {"timeout": "5 seconds"}}).marks.timeout
        5000000
        >>> sw.StreamSettings.of({"marks": {"every": "5 seconds"}})
        Traceback (most recent call last):
        slackwater.errors.InvalidArgument: settings = ['marks.every']: unknown setting; give StreamSettings(…)
        """
        if isinstance(given, StreamSettings):
            return given
        wanted, fix = dict(given or {}), "give StreamSettings(…)"
        if unknown := _unknown(wanted):
            raise InvalidArgument("settings", unknown, "unknown setting", fix=fix)
        try:
            return cls(**{name: _part(name, value) for name, value in wanted.items()})
        except TypeError as error:
            raise InvalidArgument("settings", wanted, f"is not valid: {error}", fix=fix) from None

    def changed(self, changes: Mapping[str, Mapping[str, Any]]) -> StreamSettings:
        """Return the settings with other values; a value that is None stays as it is.

        Args:
            changes: New values by group and name of the setting.

        >>> import slackwater as sw
        >>> settings = sw.StreamSettings().changed({"marks": {"period": "1 second", "timeout": None}})
        >>> settings.marks.period, settings.marks.timeout
        (1000000, 60000000)
        """
        wanted = {name: _with_durations(part) for name, part in self.save().items()}
        for name, part in changes.items():
            given = {inner: value for inner, value in part.items() if value is not None}
            if given:
                wanted[name] = {**(wanted[name] or {}), **given}
        return StreamSettings.of(wanted)

    def save(self) -> dict[str, Any]:
        """Return the settings as plain values, as the catalog stores them; durations in microseconds."""
        return asdict(self)

    @classmethod
    def load(cls, saved: Mapping[str, Any]) -> StreamSettings:
        """Rebuild settings from what `save` returned; missing ones take their default.

        Args:
            saved: The settings as a mapping.
        """
        try:
            return cls.of({name: _with_durations(part) for name, part in saved.items()})
        except (InvalidArgument, AttributeError, TypeError, OverflowError) as error:
            raise CorruptState("settings of the stream", str(error)) from None


def _part(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return _PARTS[name](**value)
    if not isinstance(value, _PARTS[name]) and not (name == "scaling" and value is None):
        raise TypeError(f"{name} must be {_PARTS[name].__name__}(…)")
    return value


def _with_durations(part: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Saved settings with their durations as ``timedelta``."""
    if part is None:
        return None
    return {
        name: timedelta(microseconds=value) if name in _DURATIONS and value is not None else value
        for name, value in part.items()
    }


def _unknown(given: Mapping[str, Any]) -> list[str]:
    found = []
    for name, value in given.items():
        if name not in _PARTS:
            found.append(name)
        elif isinstance(value, Mapping):
            known = {one.name for one in fields(_PARTS[name])}
            found += [f"{name}.{inner}" for inner in value if inner not in known]
    return found
