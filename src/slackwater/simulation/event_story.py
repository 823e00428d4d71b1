"""The story of a simulation: what happened, when, to which process."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from slackwater.time import SECOND


@dataclass(frozen=True, slots=True)
class StoryLine:
    """One event of the story; ``at`` counts microseconds from the start.

    >>> StoryLine(61_500_000, "writer-1", "is killed").text
    'is killed'
    """

    at: int
    process: str
    text: str


def format_story(lines: Iterable[StoryLine]) -> str:
    """The story as a timeline.

    >>> print(
    ...     format_story([StoryLine(61_500_000, "writer-1", "is killed"), StoryLine(62_000_000, "", "end")])
    ... )
      1:01.500  writer-1  is killed
      1:02.000            end
    """
    known = list(lines)
    width = max((len(line.process) for line in known), default=0)
    return "\n".join(f"{_clock(line.at)}  {line.process:<{width}}  {line.text}" for line in known)


def _clock(at: int) -> str:
    seconds, micros = divmod(at, SECOND)
    return f"{seconds // 60:>3}:{seconds % 60:02d}.{micros // 1_000:03d}"
