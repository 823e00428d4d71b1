"""Rows of buffers that their producers numbered, before and after the shuffle.

A map task cannot know which chunks have arrived before; only a bucket has the history. So every row carries
the index of its chunk in the header of its shipment, and the bucket drops the rows of chunks that it has
already processed.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Final

import polars as pl

from slackwater.spark.wire.buffers import Chunk, MapHeader, Number, Shipment, unpack_in_order

ORIGIN: Final = "header:origin"
"""This and the following columns contain the header of the chunk that a row belongs to."""
SEQUENCE: Final = "header:sequence"
CHUNK: Final = "header:chunk"
LAST: Final = "header:last"
WATERMARK: Final = "header:watermark"
EMPTY: Final = "header:empty"
"""Whether the row is a header without data."""
ROW: Final = "header:row"
"""The number of the row in its chunk, if the producer numbers rows."""
CHUNK_INDEX: Final = "header:index"
"""The index of the row's chunk in the header of its shipment; null if the row has no usable header."""

_NUMBER: Final = [ORIGIN, SEQUENCE, CHUNK, LAST]


def extract_chunks(frame: pl.DataFrame, usable: pl.Expr) -> tuple[pl.DataFrame, list[Chunk]]:
    """Replace the header columns by the index of each row's chunk; return the rows and the chunks.

    ``usable`` is true for rows with a usable event time.

    >>> rows = pl.DataFrame({"at": [3, None], "header:origin": ["a", "a"], "header:sequence": [1, 1]})
    >>> rows = rows.with_columns(
    ...     **{"header:chunk": 1, "header:last": True, "header:watermark": pl.lit(9), "header:empty": False}
    ... )
    >>> rest, chunks = extract_chunks(rows, pl.col("at").is_not_null())
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
    indices = chunks.select(*_NUMBER, pl.int_range(pl.len()).alias(CHUNK_INDEX))
    indexed = frame.join(indices, on=_NUMBER, how="left", maintain_order="left")
    rows = indexed.filter(~pl.col(EMPTY)).drop(*_NUMBER, WATERMARK, EMPTY)
    return rows, [Chunk(*row) for row in chunks.rows()]


def new_rows(
    buffers: Sequence[tuple[MapHeader, bytes | None]],
    shipments: Sequence[Shipment],
    repeated: Set[Number],
) -> tuple[pl.DataFrame | None, int]:
    """The rows of chunks that have not arrived before, each row once; and the number of dropped rows.

    The indices in the rows of a buffer refer to the chunks of the shipment with the same task and part.

    >>> from slackwater.spark.wire.buffers import pack
    >>> payload = pack(pl.DataFrame({"n": [1, 2], CHUNK_INDEX: [0, 1]}))
    >>> chunks = [Chunk("a", 1, 1, True, None, 0), Chunk("a", 2, 1, True, None, 0)]
    >>> shipment = Shipment(0, 0, 0, [], [], 0, chunks)
    >>> rows, dropped = new_rows([(shipment, payload)], [shipment], {("a", 1, 1, True)})
    >>> rows.rows(), dropped
    ([(2,)], 1)
    """
    chunks = {(shipment.task, shipment.part): shipment.chunks for shipment in shipments}
    ids: dict[Number, int] = {}
    frames: list[pl.DataFrame] = []
    received = 0
    for header, frame in unpack_in_order(buffers):
        received += frame.height
        frames.append(_without_repeated(frame, chunks[header.task, header.part], repeated, ids))
    if not frames:
        return None, 0
    rows = pl.concat(frames, how="vertical_relaxed")
    if ROW in rows.columns:
        rows = _deduplicated(rows).drop(CHUNK_INDEX, ROW)
    return rows, received - rows.height


def _without_repeated(
    frame: pl.DataFrame, chunks: Sequence[Chunk], repeated: Set[Number], ids: dict[Number, int]
) -> pl.DataFrame:
    """Drop the rows of repeated chunks; number the other chunks across buffers in ``ids``."""
    known = [None if chunk.number in repeated else ids.setdefault(chunk.number, len(ids)) for chunk in chunks]
    seen_before = [index for index, chunk_id in enumerate(known) if chunk_id is None]
    if seen_before:
        # Rows without a header have a null index and are kept.
        frame = frame.filter(~pl.col(CHUNK_INDEX).is_in(seen_before).fill_null(value=False))
    if ROW not in frame.columns:
        return frame.drop(CHUNK_INDEX)
    across = pl.col(CHUNK_INDEX).replace_strict(list(range(len(known))), known, return_dtype=pl.Int64)
    return frame.with_columns(across.alias(CHUNK_INDEX))


def _deduplicated(rows: pl.DataFrame) -> pl.DataFrame:
    """The first of several rows with the same number in one chunk; rows without a number are all kept."""
    known = pl.col(CHUNK_INDEX).is_not_null() & pl.col(ROW).is_not_null()
    return rows.filter(pl.struct(CHUNK_INDEX, ROW).is_first_distinct() | ~known)
