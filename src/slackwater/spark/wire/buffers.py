"""Buffers as rows of Spark: what crosses a shuffle, and to which bucket.

A buffer is one row: the bucket it goes to, a header, and a payload of columns (Arrow's IPC stream), or
none. Grouping rows by a small bucket number instead of the user's key makes the number of calls into a
stateful operator independent of the number of keys.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

import msgspec
import polars as pl
import pyarrow as pa
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from slackwater.progress.values import DEFAULT_KEY, Origin

BUFFER: Final = StructType(
    [
        StructField("bucket", IntegerType(), nullable=False),
        StructField("header", BinaryType(), nullable=False),
        StructField("payload", BinaryType()),
    ]
)
"""A buffer on its way to an operator."""
EMITTED: Final = StructType([*BUFFER.fields, StructField("report", StringType())])
"""A buffer that an operator emits; the report says how far its bucket is."""

_ARROW: Final = pa.schema(
    [
        pa.field("bucket", pa.int32(), nullable=False),
        pa.field("header", pa.binary(), nullable=False),
        pa.field("payload", pa.binary()),
    ]
)


class Peak(msgspec.Struct, array_like=True):
    """The highest event time of some rows of an origin, and how many rows they are."""

    time: int
    rows: int


class Observation(msgspec.Struct, array_like=True):
    """What a map task saw of one origin, highest times first; empty if it told no time of this key."""

    origin: Origin
    peaks: list[Peak]
    key: str = DEFAULT_KEY


class Chunk(msgspec.Struct, array_like=True, frozen=True):
    """What a map task saw of a buffer that its producer numbered."""

    origin: Origin
    sequence: int
    chunk: int
    last: bool
    watermark: int | None
    invalid: int
    """How many of its rows had no usable event time."""

    @property
    def number(self) -> Number:
        """What tells it from all others."""
        return self.origin, self.sequence, self.chunk, self.last


Number = tuple[Origin, int, int, bool]


class Tick(msgspec.Struct, array_like=True, tag="tick"):
    """The header of a buffer from the clock."""

    now: int
    run: int
    """When the query was started: another one means that it was started again."""
    end: bool
    """Whether the stream ends with this batch."""


class Result(msgspec.Struct, array_like=True, tag="result"):
    """The header of a buffer that an operator emits: how far one of its buckets is after a batch."""

    bucket: int
    now: int
    run: int
    end: bool
    idle: bool
    watermarks: dict[str, int]
    """Those that have moved."""


class Shipment(msgspec.Struct, array_like=True, tag="shipment"):
    """The header of a buffer from a map task: what the task saw, the same to every bucket."""

    input: int
    """Which input of the operator it belongs to."""
    task: int
    part: int
    observations: list[Observation]
    """What the rows of a source say about time."""
    results: list[Result]
    """What the buckets of an operator say that comes before this one."""
    invalid: int
    """How many rows of the task, for all buckets, had no usable event time or header."""
    chunks: list[Chunk] = []
    """The buffers to which the rows belong, where producers numbered them."""
    kinds: dict[str, str] | None = None
    """What the columns held, if the payload are partials that the task folded, not rows."""


class Rejects(msgspec.Struct, array_like=True, tag="rejects"):
    """The header of a buffer whose payload are rows without a usable event time."""

    input: int
    task: int
    part: int


Header = Tick | Shipment | Rejects | Result

_decoder: Final[msgspec.msgpack.Decoder[Header]] = msgspec.msgpack.Decoder(Header)


def read_header(data: bytes) -> Header:
    """The header of a buffer.

    >>> read_header(msgspec.msgpack.encode(Tick(5, 1, False)))
    Tick(now=5, run=1, end=False)
    """
    return _decoder.decode(data)


_result: Final = msgspec.msgpack.Decoder(Result)


def read_result(data: bytes) -> Result:
    """The header of a buffer that an operator emitted.

    >>> read_result(write_header(Result(3, 5, 1, False, False, {"default": 4}))).watermarks
    {'default': 4}
    """
    return _result.decode(data)


def write_header(header: Header) -> bytes:
    """A header as bytes.

    >>> read_header(write_header(Rejects(0, 0, 1)))
    Rejects(input=0, task=0, part=1)
    """
    return msgspec.msgpack.encode(header)


def pack(frame: pl.DataFrame) -> bytes:
    """A frame as a payload.

    >>> unpack(pack(pl.DataFrame({"a": [1]}))).rows()
    [(1,)]
    """
    buffer = io.BytesIO()
    frame.write_ipc_stream(buffer, compression="lz4")
    return buffer.getvalue()


def unpack(payload: bytes) -> pl.DataFrame:
    """The frame of a payload.

    >>> unpack(pack(pl.DataFrame({"a": ["x"]}))).columns
    ['a']
    """
    return pl.read_ipc_stream(io.BytesIO(payload))


def buffer_batch(buffers: Iterable[tuple[int, Header, bytes | None]]) -> pa.RecordBatch:
    """Buffers as a batch of rows for Spark.

    >>> buffer_batch([(3, Tick(5, 1, False), None)]).num_rows
    1
    """
    rows = list(buffers)
    columns = [
        pa.array([bucket for bucket, _, _ in rows], pa.int32()),
        pa.array([write_header(header) for _, header, _ in rows], pa.binary()),
        pa.array([payload for _, _, payload in rows], pa.binary()),
    ]
    return pa.record_batch(columns, schema=_ARROW)


def bucket_ids(count: int, partitions: int) -> tuple[int, ...]:
    """``count`` bucket numbers of which every shuffle partition gets equally many.

    Spark puts a number into partition ``hash(number) mod partitions``, and its hash of the first few
    integers is uneven: with 0 and 1 for two partitions, both may land in one and the other idles.

    >>> bucket_ids(2, 2)
    (0, 2)
    >>> sorted(spark_hash(number) % 3 for number in bucket_ids(6, 3))
    [0, 0, 1, 1, 2, 2]
    """
    rounds = -(-count // partitions)
    room = [rounds] * partitions
    chosen: list[int] = []
    number = 0
    while len(chosen) < count:
        place = spark_hash(number) % partitions
        if room[place]:
            room[place] -= 1
            chosen.append(number)
        number += 1
    return tuple(chosen)


def spark_hash(number: int) -> int:
    """Spark's hash of an integer (32-bit Murmur 3, seed 42), as its partitioner uses it.

    >>> spark_hash(0)
    933211791
    """
    mixed = _rotate(number * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    state = (_rotate(42 ^ mixed, 13) * 5 + 0xE6546B64) & _MASK
    state ^= 4
    state = (state ^ state >> 16) * 0x85EBCA6B & _MASK
    state = (state ^ state >> 13) * 0xC2B2AE35 & _MASK
    state ^= state >> 16
    return state - (1 << 32) if state >> 31 else state


_MASK: Final = 0xFFFFFFFF


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _MASK


Sent = TypeVar("Sent", Shipment, Rejects)


def in_order(shipments: Sequence[tuple[Sent, bytes]]) -> list[tuple[Sent, pl.DataFrame]]:
    """The payloads in the order of tasks and parts: rows of a group come in any order, results must not.

    >>> [
    ...     frame.item()
    ...     for _, frame in in_order(
    ...         [
    ...             (Rejects(0, 1, 0), pack(pl.DataFrame({"a": [2]}))),
    ...             (Rejects(0, 0, 0), pack(pl.DataFrame({"a": [1]}))),
    ...         ]
    ...     )
    ... ]
    [1, 2]
    """
    ordered = sorted(shipments, key=lambda shipment: (shipment[0].task, shipment[0].part))
    return [(header, unpack(payload)) for header, payload in ordered]
