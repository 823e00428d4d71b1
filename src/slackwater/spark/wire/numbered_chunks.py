"""Rows of buffers that their producers numbered: told apart before the shuffle, judged after it.

A map task cannot know which buffers have come before; only a bucket has the history. So every row takes
along the place of its buffer in the header of the shipment, and the bucket drops the rows of buffers that
it has seen.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Final

import polars as pl

from slackwater.spark.wire.buffers import Chunk, Number, Rejects, Shipment, unpack

ORIGIN: Final = "header:origin"
"""These columns hold the header that a row brings along."""
SEQUENCE: Final = "header:sequence"
CHUNK: Final = "header:chunk"
LAST: Final = "header:last"
WATERMARK: Final = "header:watermark"
EMPTY: Final = "header:empty"
"""Whether the row is a header alone."""
ROW: Final = "header:row"
"""The number of the row in its buffer, where the producer tells it."""
PLACE: Final = "header:place"
"""The place of the row's buffer in the header of its shipment; null if it has no usable header."""

_NUMBER: Final = [ORIGIN, SEQUENCE, CHUNK, LAST]


def headed(frame: pl.DataFrame, usable: pl.Expr) -> tuple[pl.DataFrame, list[Chunk]]:
    """The rows without their headers but with a place among them, and the headers.

    ``usable`` says whether a row has an event time that can be used.

    >>> rows = pl.DataFrame({"at": [3, None], "header:origin": ["a", "a"], "header:sequence": [1, 1]})
    >>> rows = rows.with_columns(
    ...     **{"header:chunk": 1, "header:last": True, "header:watermark": pl.lit(9), "header:empty": False}
    ... )
    >>> rest, chunks = headed(rows, pl.col("at").is_not_null())
    >>> rest.rows(), chunks
    ([(3, 0), (None, 0)], [Chunk(origin='a', sequence=1, chunk=1, last=True, watermark=9, invalid=1)])
    """
    complete = pl.all_horizontal(pl.col(name).is_not_null() for name in _NUMBER)
    invalid = (~usable & ~pl.col(EMPTY)).sum().cast(pl.Int64)
    chunks = (
        frame.filter(complete)
        .group_by(_NUMBER, maintain_order=True)
        .agg(pl.col(WATERMARK).max(), invalid.alias("invalid"))
    )
    places = chunks.select(*_NUMBER, pl.int_range(pl.len()).alias(PLACE))
    placed = frame.join(places, on=_NUMBER, how="left", maintain_order="left")
    rows = placed.filter(~pl.col(EMPTY)).drop(*_NUMBER, WATERMARK, EMPTY)
    return rows, [Chunk(*row) for row in chunks.rows()]


def fresh_rows(
    payloads: Sequence[tuple[Sequence[Chunk], bytes]], repeated: Set[Number]
) -> tuple[pl.DataFrame | None, int]:
    """The rows of buffers that have not come before, each once; and how many rows that leaves out.

    Each payload comes with the headers that its rows point to.

    >>> from slackwater.spark.wire.buffers import pack
    >>> payload = pack(pl.DataFrame({"n": [1, 2], PLACE: [0, 1]}))
    >>> chunks = [Chunk("a", 1, 1, True, None, 0), Chunk("a", 2, 1, True, None, 0)]
    >>> rows, dropped = fresh_rows([(chunks, payload)], {("a", 1, 1, True)})
    >>> rows.rows(), dropped
    ([(2,)], 1)
    """
    names: dict[Number, int] = {}
    frames: list[pl.DataFrame] = []
    came = 0
    for chunks, payload in payloads:
        frame = unpack(payload)
        came += frame.height
        known = [
            None if chunk.number in repeated else names.setdefault(chunk.number, len(names))
            for chunk in chunks
        ]
        seen_before = [place for place, name in enumerate(known) if name is None]
        if seen_before:
            # Rows without a header have a null here, and stay.
            frame = frame.filter(~pl.col(PLACE).is_in(seen_before).fill_null(value=False))
        if ROW in frame.columns:
            name = pl.col(PLACE).replace_strict(list(range(len(known))), known, return_dtype=pl.Int64)
            frame = frame.with_columns(name.alias(PLACE))
        else:
            frame = frame.drop(PLACE)
        frames.append(frame)
    if not frames:
        return None, 0
    rows = pl.concat(frames, how="vertical_relaxed")
    if ROW in rows.columns:
        rows = _each_once(rows).drop(PLACE, ROW)
    return rows, came - rows.height


def _each_once(rows: pl.DataFrame) -> pl.DataFrame:
    """Of rows with one number in one buffer the first; rows that lack either are all different."""
    known = pl.col(PLACE).is_not_null() & pl.col(ROW).is_not_null()
    return rows.filter(pl.struct(PLACE, ROW).is_first_distinct() | ~known)


def with_chunks(
    buffers: Sequence[tuple[Shipment | Rejects, bytes | None]], shipments: Sequence[Shipment]
) -> list[tuple[Sequence[Chunk], bytes]]:
    """Payloads in the order of tasks and parts, each with the headers that its rows point to.

    >>> shipment = Shipment(0, 1, 0, [], [], 0, [Chunk("a", 1, 1, True, None, 1)])
    >>> [(len(chunks), payload) for chunks, payload in with_chunks([(Rejects(0, 1, 0), b"x")], [shipment])]
    [(1, b'x')]
    """
    told = {(shipment.task, shipment.part): shipment.chunks for shipment in shipments}
    ordered = sorted(buffers, key=lambda buffer: (buffer[0].task, buffer[0].part))
    return [(told[header.task, header.part], payload) for header, payload in ordered if payload is not None]
