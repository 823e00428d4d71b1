"""Explanations of a watermark: what holds it back, since when, and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from slackwater import _notebook_html as notebook
from slackwater._time_text import instant_text
from slackwater.progress.values import Origin


class Reason(Enum):
    """Why the input, partition or origin in an `Explanation` holds the watermark back."""

    NEVER_SPOKE = "never spoke"
    SLOWEST = "slowest"
    GAP = "gap"
    IDLE = "idle"
    DONE = "done"
    DISCOVERY = "discovery"


@dataclass(frozen=True, slots=True)
class Gap:
    """The first incomplete sequence of an origin.

    Args:
        sequence: The number of the sequence.
        missing: The missing chunks as inclusive ranges. The end of the last range is None while the
            last chunk of the sequence has not arrived, because the number of chunks is then unknown.

    >>> import slackwater as sw
    >>> str(sw.Gap(4, ((2, 2), (5, 7))))
    'gap at sequence 4 (chunks missing: 2, 5-7)'
    >>> str(sw.Gap(4, ((1, None),)))
    'gap at sequence 4 (chunks missing: all)'
    """

    sequence: int
    missing: tuple[tuple[int, int | None], ...]

    def __str__(self) -> str:
        if self.missing == ((1, None),):
            chunks = "all"
        else:
            chunks = ", ".join(_range_text(first, last) for first, last in self.missing)
        return f"gap at sequence {self.sequence} (chunks missing: {chunks})"


class OriginProgress(NamedTuple):
    """Where the watermark of one origin of a source is.

    Args:
        name: The name of the origin.
        watermark: Its watermark, None if it has none yet.
        status: ``active``, ``idle`` or ``done``.
        heard: When it last sent something, on the clock that the caller passes as ``now``.
        gap: The missing sequence, if there is one.

    >>> OriginProgress("b", 5_000_000, "idle", heard=3_000_000).status
    'idle'
    """

    name: Origin
    watermark: int | None
    status: str
    heard: int | None = None
    gap: Gap | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer of ``why()`` for one watermark key.

    Args:
        key: The watermark key.
        watermark: The current watermark, None if it is not known yet.
        reason: Why it does not advance.
        held_by: The input, partition or origin that has to advance for the watermark to advance; None
            if there is none.
        since: Since when, on the clock that the caller passes as ``now``; None if it passes none.
        holder_watermark: The watermark of ``held_by`` itself.
        gap: The missing sequence, if the reason is a gap.
        others: How many other inputs hold the watermark back in the same way.

    >>> import slackwater as sw
    >>> slowest = sw.Reason.SLOWEST
    >>> print(sw.Explanation("default", 5_000_000, slowest, "origin 'b'", holder_watermark=5_000_000))
    watermark 1970-01-01T00:00:05Z: held back by origin 'b' (slowest, at 1970-01-01T00:00:05Z)
    """

    key: str
    watermark: int | None
    reason: Reason
    held_by: str | None = None
    since: int | None = None
    holder_watermark: int | None = None
    gap: Gap | None = None
    others: int = 0

    @property
    def text(self) -> str:
        """The explanation as one line, the same on the console, on web pages and in logs."""
        of_key = "" if self.key == "default" else f" of key {self.key!r}"
        since = "" if self.since is None else f" since {instant_text(self.since)}"
        head = f"watermark{of_key} {instant_text(self.watermark)}: "
        if self.held_by is None:
            who = {
                Reason.IDLE: "every input is idle",
                Reason.DONE: "every input is done",
                Reason.DISCOVERY: "waiting for origins to be discovered",
            }
            return f"{head}{who.get(self.reason, 'there is no input yet')}{since}"
        detail = str(self.gap) if self.gap is not None else self.reason.value
        if self.holder_watermark is not None:
            detail += f", at {instant_text(self.holder_watermark)}"
        others = f", and {self.others} more" if self.others else ""
        return f"{head}held back by {self.held_by}{since} ({detail}){others}"

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        """What notebooks show: the explanation, and where the watermark and its holder are.

        >>> shown = Explanation("default", 5_000_000, Reason.SLOWEST, "origin '<b>'")._repr_html_()
        >>> "held back by origin &#x27;&lt;b&gt;&#x27;" in shown
        True
        """
        parts = [notebook.sentence(self.text, strong=True)]
        if self.held_by is not None and self.holder_watermark is not None:
            holder = notebook.TimeSpan(
                self.held_by, self.holder_watermark, None, _STATES.get(self.reason, "active")
            )
            parts.append(notebook.timeline([holder], [("watermark", self.watermark)]))
        return notebook.fragment(*parts)


_STATES: Final = {Reason.GAP: "gap", Reason.NEVER_SPOKE: "silent", Reason.IDLE: "idle"}


def _range_text(first: int, last: int | None) -> str:
    if last is None:
        return f"{first} and on"
    return str(first) if first == last else f"{first}-{last}"
