"""What is set for a stream: when marks are made, how it scales, and what it keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from slackwater.errors import CorruptState
from slackwater.streams.marks import MarkSettings
from slackwater.streams.retention import Retention
from slackwater.streams.scaling import ScalingPolicy


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
