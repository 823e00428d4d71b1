"""What a stream may forget: the policy, and the cut at which a stream that keeps no more begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slackwater.errors import InvalidArgument
from slackwater.streams.log.positions import Position
from slackwater.streams.log.segments import Epochs
from slackwater.streams.log.walking import settled
from slackwater.time import check_int64


@dataclass(frozen=True, slots=True)
class Retention:
    """Keep what is younger than ``age`` (microseconds), and of that at most ``size`` bytes; None keeps all.

    >>> Retention(size=10_000_000).age is None
    True
    """

    age: int | None = None
    size: int | None = None

    def __post_init__(self) -> None:
        for name in ("age", "size"):
            value = getattr(self, name)
            if value is not None and check_int64(value, name) <= 0:
                fix = "give more, or None to keep everything"
                raise InvalidArgument(name, value, "must be greater than zero", fix=fix)


def retention_cut(
    epochs: Epochs, head: Position, kept_from: Mapping[int, int], lengths: Mapping[int, int]
) -> Position:
    """The cut before which nothing is kept, at or after ``head``.

    ``kept_from`` has the first offset to keep of each segment that has one; of the others nothing is kept.
    What follows a sealed segment comes into the cut once all that it replaced is empty.

    >>> from slackwater.streams.log.segments import Segment
    >>> epochs = Epochs([[Segment(0, 0, 0, 2**62)]]).scale([0], [(0, 2**61), (2**61, 2**62)])
    >>> left, right = (segment.id for segment in epochs.active)
    >>> lengths = {0: 20, left: 5, right: 5}
    >>> retention_cut(epochs, Position.of({0: 3}), {0: 10, left: 0, right: 0}, lengths)
    Position({0: 10})
    >>> retention_cut(epochs, Position.of({0: 3}), {left: 2}, lengths) == Position.of({left: 2, right: 5})
    True
    """
    kept = {identity: kept_from.get(identity, length) for identity, length in lengths.items()}
    cut = Position.of({identity: max(offset, kept[identity]) for identity, offset in head.items()})
    return settled(epochs, cut, lengths, entered=kept)
