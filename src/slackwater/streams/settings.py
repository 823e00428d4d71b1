"""What is set for a stream: when marks are made, how it scales, and what it keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from slackwater.errors import CorruptState, InvalidArgument
from slackwater.streams.maintenance.retention import Retention
from slackwater.streams.maintenance.scaling import ScalingPolicy
from slackwater.streams.time.marks import MarkSettings


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """All settings of a stream; each has a default that does nothing surprising.

    >>> settings = StreamSettings(scaling=ScalingPolicy(rate=1000))
    >>> StreamSettings.load(settings.save()) == settings
    True
    >>> StreamSettings.load({}) == StreamSettings()
    True
    """

    marks: MarkSettings = field(default_factory=MarkSettings)
    retention: Retention = field(default_factory=Retention)
    scaling: ScalingPolicy | None = None
    """None: only by hand."""

    @classmethod
    def of(cls, given: StreamSettings | Mapping[str, Any] | None) -> StreamSettings:
        """What a caller has set; what is not known is refused.

        >>> StreamSettings.of({"marks": {"timeout": 5}}).marks.timeout
        5
        >>> StreamSettings.of({"marks": {"every": 5}})
        Traceback (most recent call last):
        slackwater.errors.InvalidArgument: settings = ['marks.every']: are not known; give StreamSettings(…)
        """
        if isinstance(given, StreamSettings):
            return given
        wanted, fix = dict(given or {}), "give StreamSettings(…)"
        try:
            made = msgspec.convert(wanted, cls)
        except msgspec.ValidationError as error:
            raise InvalidArgument("settings", wanted, f"cannot be used: {error}", fix=fix) from None
        if unknown := _unknown(wanted, made.save()):
            raise InvalidArgument("settings", unknown, "are not known", fix=fix)
        return made

    def save(self) -> dict[str, Any]:
        """As it is kept in the catalog."""
        saved: dict[str, Any] = msgspec.to_builtins(self)
        return saved

    @classmethod
    def load(cls, saved: Mapping[str, Any]) -> StreamSettings:
        """From what the catalog has."""
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
