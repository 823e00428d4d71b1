"""Positions: how far somebody is in each segment.

A controller compares the positions of a thousand writers in a thousand segments every few seconds.
So a position is two columns of integers that are stored as they lie in memory, and the highest of
many positions is taken by column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Final

import msgspec
import numpy as np
import numpy.typing as npt

from slackwater.errors import CorruptState, InvalidArgument
from slackwater.time import check_int64

_INTEGERS: Final = np.dtype("<i8")
_HIGHEST: Final = np.iinfo(np.int64).max

END_OF_SEGMENT: Final = int(_HIGHEST)
"""The offset of a segment that is finished: ahead of any other."""


class Position:
    """Segment id → offset, ascending by id; a negative offset counts as 0 (N1).

    >>> position = Position.of({7: 12, 3: -1})
    >>> position
    Position({3: 0, 7: 12})
    >>> Position.load(position.save()) == Position.parse(position.as_text()) == position
    True
    >>> position.as_text()
    '{"3": 0, "7": 12}'
    """

    __slots__ = ("ids", "offsets")

    def __init__(self, ids: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]) -> None:
        self.ids = ids
        self.offsets = offsets

    @classmethod
    def of(cls, offsets: Mapping[int, int]) -> Position:
        """The position with these offsets."""
        checked = sorted(
            (check_int64(identity, "segment"), max(0, check_int64(offset, "offset")))
            for identity, offset in offsets.items()
        )
        columns = np.array(checked, dtype=_INTEGERS).reshape(-1, 2)
        return cls(columns[:, 0].copy(), columns[:, 1].copy())

    @classmethod
    def load(cls, saved: bytes) -> Position:
        """A position from its saved form."""
        if len(saved) % (2 * _INTEGERS.itemsize):
            raise CorruptState("position", f"has {len(saved)} bytes, not 16 for each segment")
        columns = np.frombuffer(saved, dtype=_INTEGERS).reshape(2, -1)
        ids, offsets = columns[0], columns[1]
        if (np.diff(ids) <= 0).any() or (offsets < 0).any():
            raise CorruptState("position", "has segments out of order, or negative offsets")
        return cls(ids, offsets)

    def save(self) -> bytes:
        """All ids, then all offsets, little-endian 64-bit integers."""
        return self.ids.tobytes() + self.offsets.tobytes()

    def items(self) -> Iterator[tuple[int, int]]:
        """Pairs of id and offset, ascending by id."""
        return zip(self.ids.tolist(), self.offsets.tolist(), strict=True)

    def as_text(self) -> str:
        """The position as JSON, always the same for the same one."""
        return "{" + ", ".join(f'"{identity}": {offset}' for identity, offset in self.items()) + "}"

    @classmethod
    def parse(cls, text: str, name: str = "cut") -> Position:
        """The position that `as_text` wrote."""
        try:
            return cls.of(msgspec.json.decode(text, type=dict[int, Annotated[int, msgspec.Meta(ge=0)]]))
        except msgspec.MsgspecError as error:
            fix = 'write it like {"0": 12, "1": 7}: segment id, offset'
            raise InvalidArgument(name, text, f"is no cut: {error}", fix=fix) from None

    def goes_back_from(self, last: Position) -> bool:
        """Whether the offset of a segment that both have is lower here (N2)."""
        if self.ids.size == last.ids.size and (self.ids == last.ids).all():
            return bool((self.offsets < last.offsets).any())
        _, here, there = np.intersect1d(self.ids, last.ids, assume_unique=True, return_indices=True)
        return bool((self.offsets[here] < last.offsets[there]).any())

    def __len__(self) -> int:
        return int(self.ids.size)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Position):
            return NotImplemented
        return np.array_equal(self.ids, other.ids) and np.array_equal(self.offsets, other.offsets)

    def __hash__(self) -> int:
        return hash(self.save())

    def __repr__(self) -> str:
        return f"Position({dict(self.items())})"


def highest(positions: Iterable[Position]) -> Position:
    """The maximum offset of each segment over all positions.

    >>> highest([Position.of({1: 5, 2: 5}), Position.of({2: 9})])
    Position({1: 5, 2: 9})
    """
    together: dict[bytes, list[Position]] = {}
    for position in positions:
        together.setdefault(position.ids.tobytes(), []).append(position)
    columns = [(group[0].ids, np.maximum.reduce([p.offsets for p in group])) for group in together.values()]
    if not columns:
        return Position.of({})
    if len(columns) == 1:
        return Position(*columns[0])
    ids, places = np.unique(np.concatenate([ids for ids, _ in columns]), return_inverse=True)
    offsets = np.zeros(ids.size, dtype=_INTEGERS)
    np.maximum.at(offsets, places, np.concatenate([offsets for _, offsets in columns]))
    return Position(ids, offsets)
