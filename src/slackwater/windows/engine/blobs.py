"""Serialization of frames to blobs, the values in which an operator's state is stored.

The state store reads and writes whole values, so an operator keeps one small index and many blobs, and reads
only the blobs that a batch can touch. A blob is a frame as bytes (`frame_bytes`), compressed by LZ4 because
transferring a byte to the store costs more than compressing it. Like the index, a blob begins with a version
and ends with a checksum, so that truncated or changed bytes are detected.

    version (1 byte) | frame | CRC-32 (4 bytes, big-endian)

In version 1, the frame is an Arrow IPC stream.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import MutableMapping
from typing import Final

import msgspec
import polars as pl

from slackwater.errors import CorruptState, UnsupportedStateVersion
from slackwater.windows.engine.frame_bytes import read_frame, write_frame

VERSION: Final = 2
_ARROW_VERSION: Final = 1
_CHECKSUM: Final = 4

BlobStore = MutableMapping[str, bytes]
"""A store of blobs by name; a ``dict`` is enough."""


def encode(frame: pl.DataFrame) -> bytes:
    """Serialize a frame.

    >>> decode(encode(pl.DataFrame({"ts": [1, 2]})), "example").rows()
    [(1,), (2,)]
    """
    body = bytes((VERSION,)) + write_frame(frame)
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
    if body[0] not in (_ARROW_VERSION, VERSION):
        raise UnsupportedStateVersion(what, body[0], (_ARROW_VERSION, VERSION))
    try:
        return read_frame(body[1:]) if body[0] == VERSION else pl.read_ipc_stream(io.BytesIO(body[1:]))
    except (pl.exceptions.PolarsError, msgspec.MsgspecError, OSError) as error:
        raise CorruptState(what, f"its content is not a frame ({error})") from None
