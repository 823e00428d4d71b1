"""Serialization of frames to blobs, the values in which an operator's state is stored.

The state store reads and writes whole values, so an operator keeps one small index and many blobs, and reads
only the blobs that a batch can touch. A blob is a frame in Arrow's IPC stream format, compressed by LZ4
because transferring a byte to the store costs more than compressing it. Like the index, it begins with a
version and ends with a checksum, so that truncated or changed bytes are detected.

    version (1 byte) | Arrow IPC stream | CRC-32 (4 bytes, big-endian)

In version 2, columns of 64-bit integers whose values fit into fewer bits are stored with those, under a name
with a prefix. Most counts, keys and values are small, and compressing and reading them takes as long as their
bytes. Frames without such columns, and small ones, are written as version 1.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import MutableMapping
from typing import Final

import polars as pl

from slackwater.errors import CorruptState, UnsupportedStateVersion

VERSION: Final = 2
_PLAIN_VERSION: Final = 1
_CHECKSUM: Final = 4
_NARROWED: Final = "int64:"
"""The prefix of a column that was stored with fewer bits."""
_WORTH_NARROWING: Final = 1000
"""Frames with fewer rows are stored as they are."""
_NARROW_TYPES: Final[dict[int, type[pl.DataType]]] = {8: pl.Int8, 16: pl.Int16, 32: pl.Int32}
"""The integer types with fewer than 64 bits, by their number of bits."""

BlobStore = MutableMapping[str, bytes]
"""A store of blobs by name; a ``dict`` is enough."""


def encode(frame: pl.DataFrame) -> bytes:
    """Serialize a frame.

    >>> decode(encode(pl.DataFrame({"ts": [1, 2]})), "example").rows()
    [(1,), (2,)]
    """
    narrow = _narrowed(frame)
    buffer = io.BytesIO()
    buffer.write(bytes((_PLAIN_VERSION if narrow is frame else VERSION,)))
    narrow.write_ipc_stream(buffer, compression="lz4")
    body = buffer.getvalue()
    return body + zlib.crc32(body).to_bytes(_CHECKSUM, "big")


def decode(data: bytes, what: str) -> pl.DataFrame:
    """Deserialize a frame that `encode` serialized; ``what`` names the blob in errors.

    >>> decode(encode(pl.DataFrame({"ts": [1, 2]}))[:-1], "left rows of a join")
    Traceback (most recent call last):
    slackwater.errors.CorruptState: cannot load the saved left rows of a join: its checksum does not match \
its content; restore an intact copy, or start without saved state
    """
    if len(data) <= 1 + _CHECKSUM:
        raise CorruptState(what, f"it has only {len(data)} bytes")
    body = memoryview(data)[:-_CHECKSUM]
    if zlib.crc32(body).to_bytes(_CHECKSUM, "big") != data[-_CHECKSUM:]:
        raise CorruptState(what, "its checksum does not match its content")
    if body[0] not in (_PLAIN_VERSION, VERSION):
        raise UnsupportedStateVersion(what, body[0], (_PLAIN_VERSION, VERSION))
    try:
        frame = pl.read_ipc_stream(io.BytesIO(body[1:]))
        return frame if body[0] == _PLAIN_VERSION else _widened(frame)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise CorruptState(what, f"its content is not an Arrow stream ({error})") from None


def _narrowed(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with integers in fewer bits, if all values of a column fit; the frame itself if none does."""
    if frame.height < _WORTH_NARROWING:
        return frame
    lists = [name for name, kind in frame.schema.items() if kind == pl.List(pl.Int64)]
    plain = [name for name, kind in frame.schema.items() if kind == pl.Int64]
    values = {**{name: pl.col(name) for name in plain}, **{name: pl.col(name).explode() for name in lists}}
    if not values:
        return frame
    lowest = frame.select(value.min() for value in values.values()).row(0)
    highest = frame.select(value.max() for value in values.values()).row(0)
    narrow: dict[str, pl.Expr] = {}
    for name, low, high in zip(values, lowest, highest, strict=True):
        kind = None if low is None else _narrowest(low, high)
        if kind is not None:
            column = pl.col(name).cast(pl.List(kind) if name in lists else kind)
            narrow[name] = column.alias(_NARROWED + name)
    if not narrow:
        return frame
    return frame.select(narrow.get(name, pl.col(name)) for name in frame.columns)


def _narrowest(low: int, high: int) -> type[pl.DataType] | None:
    """The narrowest type for values between two bounds; None if they need 64 bits."""
    for bits, kind in _NARROW_TYPES.items():
        limit = 1 << (bits - 1)
        if -limit <= low and high < limit:
            return kind
    return None


def _widened(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with all integers in 64 bits, under their own names."""
    return frame.select(
        pl.col(name)
        .cast(pl.List(pl.Int64) if isinstance(kind, pl.List) else pl.Int64)
        .alias(name.removeprefix(_NARROWED))
        if name.startswith(_NARROWED)
        else pl.col(name)
        for name, kind in frame.schema.items()
    )
