"""Buffers: the rows that cross a shuffle, with their headers and payloads.

A buffer is one Spark row: the id of the bucket it goes to, a header, and a payload of columns (a frame as
bytes), or no payload. Rows are grouped by a small bucket id instead of the user's key, so that the number
of calls into a stateful operator does not depend on the number of keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
import pyarrow as pa
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from slackwater.progress.values import DEFAULT_KEY, Origin

if TYPE_CHECKING:
    import polars as pl

BUFFER: Final = StructType(
    [
        StructField("bucket", IntegerType(), nullable=False),
        StructField("header", BinaryType(), nullable=False),
        StructField("payload", BinaryType()),
    ]
)
"""A buffer that is sent to an operator."""
EMITTED: Final = StructType([*BUFFER.fields, StructField("report", StringType())])
"""A buffer that an operator emits, with the progress report of its bucket."""

NO_HEADER: Final = b""
"""The header of an emitted buffer that contains only rows; one buffer of a bucket has its header."""

_ARROW: Final = pa.schema(
    [
        pa.field("bucket", pa.int32(), nullable=False),
        pa.field("header", pa.binary(), nullable=False),
        pa.field("payload", pa.binary()),
    ]
)


class Peak(msgspec.Struct, array_like=True):
    """The highest event time among some rows of an origin, and the number of these rows."""

    time: int
    rows: int


class Observation(msgspec.Struct, array_like=True):
    """The event times that a map task saw for one origin and watermark key.

    The peaks are in descending order; there are none if no row had an event time for this key.
    """

    origin: Origin
    peaks: list[Peak]
    key: str = DEFAULT_KEY
    bins: list[int] = []
    """For a policy that learns its lag: how far rows are behind the first peak, as bins of `OriginDelays`."""
    rows: list[int] = []
    """The number of rows in each bin."""


class OriginDelays(msgspec.Struct, array_like=True):
    """How far the rows of an origin in a map task are behind the latest of them: numbers of rows by bin."""

    origin: Origin
    peak: int
    """The latest event time."""
    bins: list[int]
    rows: list[int]


class InvalidRows(msgspec.Struct, array_like=True):
    """Rows of an origin in a map task without a usable event time: their number, and one of them."""

    origin: Origin | None
    rows: int
    time: int | None
    """The event time of that row; None if it has none."""
    key: dict[str, str] | None
    """Its key as text; None if keys are left out."""


class OriginChunk(msgspec.Struct, array_like=True, frozen=True):
    """A buffer that its producer numbered, as a map task saw it."""

    origin: Origin
    sequence: int
    chunk: int
    last: bool
    watermark: int | None
    invalid: int
    """The number of its rows without a usable event time."""
    announced: int | None = None
    """The number of rows of the whole chunk, if its header contains it."""
    unnumbered: int = 0
    """How many rows without a row number the task saw."""
    numbered: tuple[Run, ...] = ()
    """The numbers of the rows that the task saw, as inclusive runs."""
    rows: int = 0
    """How many rows of the chunk the task saw. This and the next field distinguish a copy from other rows."""
    times: int = 0
    """The sum of their event times, each modulo a constant."""

    @property
    def number(self) -> Number:
        """The identity of the chunk."""
        return self.origin, self.sequence, self.chunk, self.last


Number = tuple[Origin, int, int, bool]
Run = tuple[int, int]


class Tick(msgspec.Struct, array_like=True, tag="tick"):
    """The header of a buffer from the clock source."""

    now: int
    run: int
    """The time at which the query was started; it changes with every restart."""
    end: bool
    """Whether the stream ends with this batch."""
    back: int = 0
    """By how much the clock was set back so far, in all."""
    tables: dict[str, int] = {}
    """The times up to which tables are complete, if they drive the watermark."""


class Result(msgspec.Struct, array_like=True, tag="result"):
    """The header of a buffer that an operator emits: the progress of one of its buckets after a batch."""

    bucket: int
    now: int
    run: int
    end: bool
    idle: bool
    watermarks: dict[str, int]
    """The watermarks that advanced in this batch."""
    back: int = 0
    """As in `Tick`."""


class Shipment(msgspec.Struct, array_like=True, tag="shipment"):
    """The header of a buffer from a map task; every bucket gets the same header."""

    input: int
    """The index of the operator's input that the rows belong to."""
    task: int
    part: int
    observations: list[Observation]
    """Event times observed in the rows of a source."""
    results: list[Result]
    """Progress of the buckets of an upstream operator."""
    invalid: int
    """The number of rows in the task, over all buckets, without a usable event time or header."""
    chunks: list[OriginChunk] = []
    """The chunks that the rows belong to, if producers number their buffers."""
    kinds: dict[str, str] | None = None
    """The types of the folded columns, if the payload contains partials instead of rows."""
    fallbacks: int = 0
    """How many rows in the task, over all buckets, got the result of a fallback of `map_async`."""
    delays: list[OriginDelays] = []
    """The delays of the rows, over all buckets; only in the buffer for the bucket that reports them."""
    invalid_rows: list[InvalidRows] = []
    """A sample of the rows that ``invalid`` counts; also only in the buffer for that bucket."""


class Rejects(msgspec.Struct, array_like=True, tag="rejects"):
    """The header of a buffer whose payload contains rows without a usable event time."""

    input: int
    task: int
    part: int


class Failures(msgspec.Struct, array_like=True, tag="failures"):
    """The header of a buffer whose payload describes rows for which an async function failed."""

    input: int
    task: int
    part: int


Header = Tick | Shipment | Rejects | Failures | Result
MapHeader = TypeVar("MapHeader", Shipment, Rejects, Failures)
"""The header of a buffer that a map task sent."""

_header: Final[msgspec.msgpack.Decoder[Header]] = msgspec.msgpack.Decoder(Header)
_result: Final = msgspec.msgpack.Decoder(Result)


def read_header(data: bytes) -> Header:
    """Decode the header of a buffer.

    >>> read_header(write_header(Tick(5, 1, False)))
    Tick(now=5, run=1, end=False, back=0, tables={})
    """
    return _header.decode(data)


def read_result(data: bytes) -> Result:
    """Decode the header of a buffer that an operator emitted.

    >>> read_result(write_header(Result(3, 5, 1, False, False, {"default": 4}))).watermarks
    {'default': 4}
    """
    return _result.decode(data)


def write_header(header: Header) -> bytes:
    """Encode a header.

    >>> read_header(write_header(Rejects(0, 0, 1)))
    Rejects(input=0, task=0, part=1)
    """
    return msgspec.msgpack.encode(header)


def pack(frame: pl.DataFrame) -> bytes:
    """Encode a frame as a payload.

    >>> import polars as pl
    >>> unpack(pack(pl.DataFrame({"a": [1]}))).rows()
    [(1,)]
    """
    # The clock does not need it, and starts faster without it.
    from slackwater.windows.engine.frame_bytes import write_frame

    return write_frame(frame)


def unpack(payload: bytes) -> pl.DataFrame:
    """Decode a payload.

    >>> import polars as pl
    >>> unpack(pack(pl.DataFrame({"a": ["x"]}))).columns
    ['a']
    """
    from slackwater.windows.engine.frame_bytes import read_frame  # see above

    return read_frame(payload)


def buffer_batch(buffers: Iterable[tuple[int, Header, bytes | None]]) -> pa.RecordBatch:
    """Encode buffers as an Arrow batch with the schema `BUFFER`.

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


def unpack_in_order(
    buffers: Sequence[tuple[MapHeader, bytes | None]],
) -> list[tuple[MapHeader, pl.DataFrame]]:
    """Decode the payloads of map tasks in the order of tasks and parts.

    Spark delivers the rows of a group in any order; the results must not depend on it.

    >>> import polars as pl
    >>> first, second = (pack(pl.DataFrame({"a": [number]})) for number in (1, 2))
    >>> buffers = [(Rejects(0, 1, 0), second), (Rejects(0, 0, 0), first), (Rejects(0, 2, 0), None)]
    >>> [frame.item() for _, frame in unpack_in_order(buffers)]
    [1, 2]
    """
    ordered = sorted(buffers, key=lambda buffer: (buffer[0].task, buffer[0].part))
    return [(header, unpack(payload)) for header, payload in ordered if payload is not None]
