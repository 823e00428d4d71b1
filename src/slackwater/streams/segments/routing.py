"""Routing of keys to segments, a whole column at a time.

The point of a key in the key space must never change, or events of one key would get out of order. The hash
is therefore defined here and not taken from a library that may change it:

    h ← length · K₀
    for each 8 bytes w (little-endian, the last word padded with zeros):  h ← rotate(h xor w · K₁, 29) · K₂
    h ← finish(h), the finalizer of MurmurHash3;  the point is h without its two lowest bits

Text is hashed as UTF-8. The events of a batch that have no key share one random point.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from slackwater.errors import InvalidArgument
from slackwater.streams.segments.epochs import KEY_SPACE, Epochs

Points = npt.NDArray[np.int64]
RoutingKey = str | bytes | None

_FIX: Final = "give a string or bytes"
_K0: Final = 0x9E3779B97F4A7C15
_K1: Final = 0xC2B2AE3D27D4EB4F
_K2: Final = 0x165667B19E3779F9
_FINISH: Final = (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53)
_SHIFT: Final = 64 - KEY_SPACE.bit_length() + 1
_MASKS: Final = np.array([(1 << 8 * count) - 1 for count in range(9)], dtype=np.uint64)


def point_of(key: str | bytes) -> int:
    """Hash one routing key to a point of the key space; `points_of` does the same for a column.

    >>> 0 <= point_of("auction 7") < KEY_SPACE, point_of("auction 7") == point_of(b"auction 7")
    (True, True)
    """
    return int(points_of(pa.array([key]))[0])


def check_key(key: object) -> None:
    """Raise unless the value is a valid routing key: text, bytes or None.

    >>> check_key("auction 7")
    >>> check_key(7)
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: key = 7: is not a valid routing key; give a string or bytes
    """
    if key is not None and not isinstance(key, (str, bytes)):
        raise InvalidArgument("key", key, "is not a valid routing key", fix=_FIX)
    if isinstance(key, str):
        try:
            key.encode()
        except UnicodeEncodeError:
            raise InvalidArgument("key", key, "contains a lone surrogate", fix=_FIX) from None


def points_of(keys: pa.Array | pa.ChunkedArray | Sequence[RoutingKey]) -> Points:
    """Hash routing keys to points of the key space; all null keys get the same random point.

    >>> points_of(["a", "b", "a"]).tolist() == [point_of("a"), point_of("b"), point_of("a")]
    True
    >>> points_of([1, 2])
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: key = 'int64': is not a valid type for routing keys; give a string \
or bytes
    """
    column = _binary(keys)
    count = len(column)
    _, offsets_buffer, data_buffer = column.buffers()
    if count == 0 or offsets_buffer is None:
        return np.zeros(count, dtype=np.int64)
    bounds = np.frombuffer(offsets_buffer, dtype=np.int64)[column.offset : column.offset + count + 1]
    starts, lengths = bounds[:-1], np.diff(bounds)
    size = 0 if data_buffer is None else data_buffer.size
    padded = np.zeros(size + 16, dtype=np.uint8)
    if data_buffer is not None:
        padded[:size] = np.frombuffer(data_buffer, dtype=np.uint8)
    # a strided view: word i is the eight bytes that begin at byte i
    words = np.ndarray(size + 8, dtype="<u8", buffer=padded.data, strides=(1,))
    hashes = lengths.astype(np.uint64) * np.uint64(_K0)
    longest = int(lengths.max())
    for done in range(0, longest, 8):
        rows = slice(None) if lengths.min() > done else np.flatnonzero(lengths > done)
        left = np.minimum(lengths[rows] - done, 8)
        word = words[starts[rows] + done] & _MASKS[left]
        mixed = hashes[rows] ^ (word * np.uint64(_K1))
        hashes[rows] = ((mixed << np.uint64(29)) | (mixed >> np.uint64(35))) * np.uint64(_K2)
    for factor in _FINISH:
        hashes ^= hashes >> np.uint64(33)
        hashes *= np.uint64(factor)
    hashes ^= hashes >> np.uint64(33)
    points = (hashes >> np.uint64(_SHIFT)).astype(np.int64)
    if column.null_count:
        points[column.is_null().to_numpy(zero_copy_only=False)] = any_point()
    return points


def any_point() -> int:
    """A random point of the key space.

    >>> 0 <= any_point() < KEY_SPACE
    True
    """
    return random.randrange(KEY_SPACE)  # noqa: S311 - spreads load, guards nothing


def _binary(keys: pa.Array | pa.ChunkedArray | Sequence[RoutingKey]) -> pa.Array:
    try:
        column = keys if isinstance(keys, (pa.Array, pa.ChunkedArray)) else pa.array(keys)
    except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError):
        reason = "mixes types, or contains a lone surrogate"
        raise InvalidArgument("key", keys, reason, fix="give only strings, or only bytes") from None
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if pa.types.is_null(kind):
        return pa.nulls(len(column), pa.large_binary())
    known = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    if not any(check(kind) for check in known):
        raise InvalidArgument("key", str(kind), "is not a valid type for routing keys", fix=_FIX)
    # 64-bit offsets first: more than 2 GiB of text cannot be combined with 32-bit offsets
    column = column.cast(pa.large_binary())
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


class Routing:
    """Maps points of the key space to the active segments of one epoch.

    >>> from slackwater.streams.segments.epochs import Segment, even_ranges
    >>> epochs = Epochs([[Segment(number, 0, *bounds) for number, bounds in enumerate(even_ranges(2))]])
    >>> routing = Routing(epochs)
    >>> [(segment, rows.tolist()) for segment, rows in routing.split(np.array([5, KEY_SPACE - 1, 6]))]
    [(0, [0, 2]), (1, [1])]
    """

    def __init__(self, epochs: Epochs) -> None:
        self.epoch = len(epochs) - 1
        self._lows = np.array([segment.low for segment in epochs.active], dtype=np.int64)
        self._ids = np.array([segment.id for segment in epochs.active], dtype=np.int64)

    def segments(self, points: Points) -> npt.NDArray[np.int64]:
        """The segment of each point."""
        return self._ids[np.searchsorted(self._lows, points, side="right") - 1]

    def split(self, points: Points) -> list[tuple[int, npt.NDArray[np.int64]]]:
        """Row indices by segment, in their order; segments without rows are left out, ids ascend."""
        if len(self._ids) == 1:
            return [(int(self._ids[0]), np.arange(len(points)))] if len(points) else []
        owners = self.segments(points)
        order = np.argsort(owners, kind="stable")
        found, starts = np.unique(owners[order], return_index=True)
        return list(zip(found.tolist(), np.split(order, starts[1:]), strict=True))
