"""Rows of buffers that their producers numbered, before and after the shuffle.

A map task cannot know which chunks have arrived before; only a bucket has the history. So every row carries
the index of its chunk in the header of its shipment, and the bucket drops the rows of chunks that it has
already processed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from slackwater.spark.wire.buffers import MapHeader, Number, OriginChunk, Run, Shipment, unpack_in_order
from slackwater.spark.wire.wire_columns import TIME

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
ANNOUNCED: Final = "header:rows"
"""The number of rows of the whole chunk, if the header announces it."""
FIRST_RESULT: Final = "header:first"
"""False in all results of an input row but the first, so that a row with several results counts once."""
INPUT_ROW: Final = "header:input_row"
"""The number that the producer gave to the row, which `ROW` no longer is after a row got several results."""
CHUNK_INDEX: Final = "header:index"
"""The index of the row's chunk in the header of its shipment; null if the row has no usable header."""

_NUMBER: Final = [ORIGIN, SEQUENCE, CHUNK, LAST]
_MODULUS: Final = 1_000_003
"""Keeps the sum of event times far from the limit of 64 bits."""


def extract_chunks(frame: pl.DataFrame, usable: pl.Expr) -> tuple[pl.DataFrame, list[OriginChunk]]:
    """Replace the header columns by the index of each row's chunk; return the rows and the chunks.

    ``usable`` is true for rows with a usable event time.

    >>> rows = pl.DataFrame({"at": [3, None], "header:origin": ["a", "a"], "header:sequence": [1, 1]})
    >>> rows = rows.with_columns(
    ...     **{"header:chunk": 1, "header:last": True, "header:watermark": pl.lit(9), "header:empty": False}
    ... )
    >>> rest, chunks = extract_chunks(rows, pl.col("at").is_not_null())
    >>> rest.rows(), [(chunk.number, chunk.watermark, chunk.invalid) for chunk in chunks]
    ([(3, 0), (None, 0)], [(('a', 1, 1, True), 9, 1)])
    """
    complete = pl.all_horizontal(pl.col(name).is_not_null() for name in _NUMBER)
    announced = [ANNOUNCED] if ANNOUNCED in frame.columns else []
    invalid = (~usable & ~pl.col(EMPTY)).sum().cast(pl.Int64)
    grouped = frame.filter(complete).group_by(*_NUMBER, *announced, maintain_order=True)
    chunks = grouped.agg(
        pl.col(WATERMARK).max(), invalid.alias("invalid"), *_content(frame), *_arrived(frame)
    )
    indices = chunks.select(*_NUMBER, *announced, pl.int_range(pl.len()).alias(CHUNK_INDEX))
    # Nulls match only in the announced number of rows: the other columns of a chunk are not null.
    indexed = frame.join(
        indices, on=[*_NUMBER, *announced], how="left", maintain_order="left", nulls_equal=True
    )
    rows = indexed.filter(~pl.col(EMPTY)).drop(
        *_NUMBER, *announced, WATERMARK, EMPTY, FIRST_RESULT, strict=False
    )
    if not announced:
        # Unpacked into a literal call, because there may be as many chunks as rows.
        return rows, [
            OriginChunk(origin, sequence, chunk, last, watermark, bad, None, 0, (), count, times)
            for origin, sequence, chunk, last, watermark, bad, count, times in chunks.rows()
        ]
    return rows, [_chunk(row) for row in chunks.iter_rows(named=True)]


def _content(frame: pl.DataFrame) -> list[pl.Expr]:
    """The number of rows of each chunk and the sum of their times, which an async function cannot change."""
    row = ~pl.col(EMPTY)
    if FIRST_RESULT in frame.columns:
        row = row & pl.col(FIRST_RESULT)
    times = (pl.col(TIME) % _MODULUS).filter(row).sum() if TIME in frame.columns else pl.lit(0)
    return [row.sum().cast(pl.Int64).alias("rows"), times.cast(pl.Int64).alias("times")]


def _arrived(frame: pl.DataFrame) -> list[pl.Expr]:
    """The rows of each chunk that are in the frame, if the header announces how many there are in all."""
    if ANNOUNCED not in frame.columns:
        return []
    first = pl.col(FIRST_RESULT) & ~pl.col(EMPTY)
    if INPUT_ROW not in frame.columns:
        return [first.sum().cast(pl.Int64).alias("unnumbered")]
    number = pl.col(INPUT_ROW)
    distinct = number.filter(first).drop_nulls().unique().sort()
    return [
        (first & number.is_null()).sum().cast(pl.Int64).alias("unnumbered"),
        distinct.filter(distinct.diff().fill_null(0) != 1).alias("starts"),
        distinct.filter(distinct.diff().shift(-1).fill_null(0) != 1).alias("ends"),
    ]


def _chunk(values: Mapping[str, Any]) -> OriginChunk:
    return OriginChunk(
        origin=values[ORIGIN],
        sequence=values[SEQUENCE],
        chunk=values[CHUNK],
        last=values[LAST],
        watermark=values[WATERMARK],
        invalid=values["invalid"],
        announced=values[ANNOUNCED],
        unnumbered=values["unnumbered"],
        numbered=tuple(zip(values.get("starts", ()), values.get("ends", ()), strict=True)),
        rows=values["rows"],
        times=values["times"],
    )


@dataclass(frozen=True, slots=True)
class Repeats:
    """What arrived in earlier batches: whole chunks, and numbered rows of chunks that are incomplete.

    >>> Repeats().chunks
    frozenset()
    """

    chunks: Set[Number] = frozenset()
    rows: Mapping[Number, tuple[Run, ...]] = field(default_factory=dict)


def new_rows(
    buffers: Sequence[tuple[MapHeader, bytes | None]],
    shipments: Sequence[Shipment],
    repeats: Repeats,
) -> tuple[pl.DataFrame | None, int]:
    """The rows of chunks that have not arrived before, each row once; and the number of dropped rows.

    The indices in the rows of a buffer refer to the chunks of the shipment with the same task and part.

    >>> from slackwater.spark.wire.buffers import pack
    >>> payload = pack(pl.DataFrame({"n": [1, 2], CHUNK_INDEX: [0, 1]}))
    >>> chunks = [OriginChunk("a", 1, 1, True, None, 0), OriginChunk("a", 2, 1, True, None, 0)]
    >>> shipment = Shipment(0, 0, 0, [], [], 0, chunks)
    >>> rows, dropped = new_rows([(shipment, payload)], [shipment], Repeats({("a", 1, 1, True)}))
    >>> rows.rows(), dropped
    ([(2,)], 1)
    """
    chunks = {(shipment.task, shipment.part): shipment.chunks for shipment in shipments}
    ids: dict[Number, int] = {}
    frames: list[pl.DataFrame] = []
    received = 0
    for header, frame in unpack_in_order(buffers):
        received += frame.height
        frames.append(_without_repeated(frame, chunks[header.task, header.part], repeats, ids))
    if not frames:
        return None, 0
    rows = pl.concat(frames, how="vertical_relaxed")
    if ROW in rows.columns:
        rows = _deduplicated(rows).drop(CHUNK_INDEX, ROW, INPUT_ROW, strict=False)
    return rows, received - rows.height


def _without_repeated(
    frame: pl.DataFrame, chunks: Sequence[OriginChunk], repeats: Repeats, ids: dict[Number, int]
) -> pl.DataFrame:
    """Drop rows that arrived in an earlier batch; number the other chunks across buffers in ``ids``."""
    known = [
        None if chunk.number in repeats.chunks else ids.setdefault(chunk.number, len(ids)) for chunk in chunks
    ]
    seen_before = [index for index, chunk_id in enumerate(known) if chunk_id is None]
    if seen_before:
        # Rows without a header have a null index and are kept.
        frame = frame.filter(~pl.col(CHUNK_INDEX).is_in(seen_before).fill_null(value=False))
    for index, chunk in enumerate(chunks):
        if runs := repeats.rows.get(chunk.number):
            bounds = pl.DataFrame(runs, schema={"start": pl.Int64, "end": pl.Int64}, orient="row")
            earlier = bounds.select(pl.int_ranges("start", pl.col("end") + 1).explode()).to_series()
            again = (pl.col(CHUNK_INDEX) == index) & pl.col(INPUT_ROW).is_in(earlier.implode())
            frame = frame.filter(~again.fill_null(value=False))
    if ROW not in frame.columns:
        return frame.drop(CHUNK_INDEX)
    across = pl.col(CHUNK_INDEX).replace_strict(list(range(len(known))), known, return_dtype=pl.Int64)
    return frame.with_columns(across.alias(CHUNK_INDEX))


def _deduplicated(rows: pl.DataFrame) -> pl.DataFrame:
    """The first of several rows with the same number in one chunk; rows without a number are all kept."""
    known = pl.col(CHUNK_INDEX).is_not_null() & pl.col(ROW).is_not_null()
    return rows.filter(pl.struct(CHUNK_INDEX, ROW).is_first_distinct() | ~known)
