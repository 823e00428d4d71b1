"""Serialization of frames to blobs, the values in which an operator's state is stored.

The state store reads and writes whole values, so an operator keeps one small index and many blobs, and reads
only the blobs that a batch can touch. A blob is a frame in Arrow's IPC stream format, compressed by LZ4
because transferring a byte to the store costs more than compressing it. Text is written as offsets and bytes.
In Polars' own layout, values point into shared buffers: nested text would contain the buffers of all rows
from which those of the frame were selected. Like the index, a blob begins with a version and ends with a
checksum, so that truncated or changed bytes are detected.

    version (1 byte) | Arrow IPC stream | CRC-32 (4 bytes, big-endian)
"""

from __future__ import annotations

import io
import zlib
from collections.abc import MutableMapping
from typing import Final

import polars as pl

from slackwater.errors import CorruptState, UnsupportedStateVersion

VERSION: Final = 1
_CHECKSUM: Final = 4

BlobStore = MutableMapping[str, bytes]
"""A store of blobs by name; a ``dict`` is enough."""


def encode(frame: pl.DataFrame) -> bytes:
    """Serialize a frame.

    >>> decode(encode(pl.DataFrame({"ts": [1, 2]})), "example").rows()
    [(1,), (2,)]
    """
    buffer = io.BytesIO()
    buffer.write(bytes((VERSION,)))
    frame.write_ipc_stream(buffer, compression="lz4", compat_level=pl.CompatLevel.oldest())
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
    if body[0] != VERSION:
        raise UnsupportedStateVersion(what, body[0], (VERSION,))
    try:
        return pl.read_ipc_stream(io.BytesIO(body[1:]))
    except (pl.exceptions.PolarsError, OSError) as error:
        raise CorruptState(what, f"its content is not an Arrow stream ({error})") from None
