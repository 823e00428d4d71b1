"""Frames as bytes, for state and for buffers: Arrow IPC, with integers in as few bytes as their range needs.

The integers of a frame are mostly close together: times of one batch, keys, counts. A column whose values
differ by less than 2**32 is written as differences from its lowest value, in one, two or four bytes. That
takes a quarter of the time of compressing eight bytes for each value, and the result is smaller.

Text is written as offsets and bytes. In Polars' own layout, values point into shared buffers: nested text
would contain the buffers of all rows from which those of the frame were selected.

    length of the list (4 bytes, big-endian) | list of narrow columns (MessagePack) | Arrow IPC stream, LZ4
"""

from __future__ import annotations

import io
from typing import Final, Literal

import msgspec
import polars as pl

_LENGTH: Final = 4
_ROWS_WORTH_NARROWING: Final = 2_000
"""With fewer rows, finding the extremes of columns takes longer than compressing them."""
_TYPES: Final = ((1 << 8, pl.UInt8()), (1 << 16, pl.UInt16()), (1 << 32, pl.UInt32()))


class _Narrow(msgspec.Struct, array_like=True, frozen=True):
    """A column that is written as differences from its lowest value."""

    name: str
    lowest: int
    unit: Literal["ns", "us", "ms"] | None = None
    """The unit of a time; None for an integer."""
    zone: str | None = None
    """The time zone of a time, if it has one."""

    def restored(self, differences: pl.Series) -> pl.Series:
        """The column as it was."""
        values = differences.cast(pl.Int64()) + self.lowest
        return values if self.unit is None else values.cast(pl.Datetime(self.unit, self.zone))


_listed: Final = msgspec.msgpack.Decoder(list[_Narrow])


def write_frame(frame: pl.DataFrame) -> bytes:
    """Serialize a frame.

    >>> read_frame(write_frame(pl.DataFrame({"at": [5, None], "name": ["x", "y"]}))).rows()
    [(5, 'x'), (None, 'y')]
    """
    narrow: list[_Narrow] = []
    if frame.height >= _ROWS_WORTH_NARROWING:
        frame = frame.clone()
        # Each expression over a frame has a fixed cost, which is higher than that of a small frame.
        for index, column in enumerate(frame.get_columns()):
            found = _narrowed(column)
            if found is not None:
                narrow.append(found[0])
                frame.replace_column(index, found[1])
    listed = msgspec.msgpack.encode(narrow)
    buffer = io.BytesIO()
    buffer.write(len(listed).to_bytes(_LENGTH, "big"))
    buffer.write(listed)
    frame.write_ipc_stream(buffer, compression="lz4", compat_level=pl.CompatLevel.oldest())
    return buffer.getvalue()


def read_frame(data: bytes | memoryview) -> pl.DataFrame:
    """Deserialize a frame that `write_frame` serialized.

    Raises:
        polars.exceptions.PolarsError, OSError: The data is not an Arrow stream.
        msgspec.MsgspecError: The list of narrow columns is invalid.
    """
    start = _LENGTH + int.from_bytes(data[:_LENGTH], "big")
    narrow = _listed.decode(data[_LENGTH:start])
    frame = pl.read_ipc_stream(io.BytesIO(data[start:]))
    for one in narrow:
        frame.replace_column(frame.get_column_index(one.name), one.restored(frame[one.name]))
    return frame


def _narrowed(column: pl.Series) -> tuple[_Narrow, pl.Series] | None:
    """A column as differences from its lowest value; None if it is written as it is."""
    kind = column.dtype
    if kind != pl.Int64 and not isinstance(kind, pl.Datetime):
        return None
    values = column if kind == pl.Int64 else column.cast(pl.Int64())
    lowest, highest = values.min(), values.max()
    if not isinstance(lowest, int) or not isinstance(highest, int):  # only nulls
        return None
    narrow = next((each for limit, each in _TYPES if highest - lowest < limit), None)
    if narrow is None:
        return None
    unit, zone = (kind.time_unit, kind.time_zone) if isinstance(kind, pl.Datetime) else (None, None)
    return _Narrow(column.name, lowest, unit, zone), (values - lowest).cast(narrow)
