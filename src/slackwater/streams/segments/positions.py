"""Positions: offsets by segment.

A controller compares the positions of a thousand writers in a thousand segments every few seconds. A position
is therefore two columns of integers, stored in their memory layout, and the maximum of many positions is
computed column by column.
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
"""Offset of a segment that was read to its sealed end; ahead of any other offset."""


class Position:
    """Offsets by segment id, ascending by id; a negative offset counts as 0 (N1).

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
        """Create a position from offsets by segment id."""
        checked = sorted(
            (check_int64(identity, "segment"), max(0, check_int64(offset, "offset")))
            for identity, offset in offsets.items()
        )
        columns = np.array(checked, dtype=_INTEGERS).reshape(-1, 2)
        return cls(columns[:, 0].copy(), columns[:, 1].copy())

    @classmethod
    def load(cls, saved: bytes) -> Position:
        """Rebuild a position from its saved form."""
        if len(saved) % (2 * _INTEGERS.itemsize):
            raise CorruptState("position", f"has {len(saved)} bytes, which is not a multiple of 16")
        columns = np.frombuffer(saved, dtype=_INTEGERS).reshape(2, -1)
        ids, offsets = columns[0], columns[1]
        if (np.diff(ids) <= 0).any() or (offsets < 0).any():
            raise CorruptState("position", "has unsorted segment ids or negative offsets")
        return cls(ids, offsets)

    def save(self) -> bytes:
        """Serialize as all ids, then all offsets, each a little-endian 64-bit integer."""
        return self.ids.tobytes() + self.offsets.tobytes()

    def items(self) -> Iterator[tuple[int, int]]:
        """Pairs of id and offset, ascending by id."""
        return zip(self.ids.tolist(), self.offsets.tolist(), strict=True)

    def as_text(self) -> str:
        """The position as JSON; equal positions give equal text."""
        return "{" + ", ".join(f'"{identity}": {offset}' for identity, offset in self.items()) + "}"

    @classmethod
    def parse(cls, text: str, name: str = "cut") -> Position:
        """Parse the text that `as_text` wrote; ``name`` is the argument that errors name."""
        try:
            return cls.of(msgspec.json.decode(text, type=dict[int, Annotated[int, msgspec.Meta(ge=0)]]))
        except msgspec.MsgspecError as error:
            fix = 'write segment ids and offsets, as in {"0": 12, "1": 7}'
            raise InvalidArgument(name, text, f"is not a valid cut: {error}", fix=fix) from None

    def goes_back_from(self, last: Position) -> bool:
        """Whether a segment that both positions contain has a lower offset here (N2)."""
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
    same_ids: dict[bytes, list[Position]] = {}
    for position in positions:
        same_ids.setdefault(position.ids.tobytes(), []).append(position)
    columns = [(group[0].ids, np.maximum.reduce([p.offsets for p in group])) for group in same_ids.values()]
    if not columns:
        return Position.of({})
    if len(columns) == 1:
        return Position(*columns[0])
    ids, indices = np.unique(np.concatenate([ids for ids, _ in columns]), return_inverse=True)
    offsets = np.zeros(ids.size, dtype=_INTEGERS)
    np.maximum.at(offsets, indices, np.concatenate([offsets for _, offsets in columns]))
    return Position(ids, offsets)
