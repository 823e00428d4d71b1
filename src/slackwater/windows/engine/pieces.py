"""Output in pieces: frames of bounded size, so that memory does not grow with the number of output rows."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import Final, Generic, TypeVar

import polars as pl

from slackwater.errors import InvalidArgument

PIECE_ROWS: Final = 131_072
"""The maximum number of rows of a piece: large enough that the cost per piece does not matter."""
PIECE_BYTES: Final = 32 * 1024 * 1024
"""The maximum size of a piece in memory, unless a single row is larger."""

Result = TypeVar("Result")


class Pieces(Generic[Result]):
    """The output rows of a step in pieces, and the result of the step after the last piece.

    >>> def step() -> Generator[pl.DataFrame, None, str]:
    ...     yield pl.DataFrame({"n": [1, 2]})
    ...     return "done"
    >>> pieces = Pieces(step())
    >>> [piece.height for piece in pieces], pieces.result
    ([2], 'done')
    """

    def __init__(self, emitting: Generator[pl.DataFrame, None, Result]) -> None:
        self._emitting = emitting
        self._results: list[Result] = []

    def __iter__(self) -> Iterator[pl.DataFrame]:
        self._results.append((yield from self._emitting))

    @property
    def result(self) -> Result:
        """The result of the step; available after the last piece."""
        return self._results[0]


def check_piece_rows(rows: int) -> int:
    """Return the maximum number of rows of a piece, if it is valid.

    >>> check_piece_rows(0)
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: piece_rows = 0: must be at least 1; use the default
    """
    if rows < 1:
        raise InvalidArgument("piece_rows", rows, "must be at least 1", fix="use the default")
    return rows


def rows_per_piece(*frames: pl.DataFrame, rows: int = PIECE_ROWS, size: int = PIECE_BYTES) -> int:
    """The number of rows of a piece whose rows consist of a row of each frame.

    >>> rows_per_piece(pl.DataFrame({"n": [1, 2]}), rows=100, size=80)
    10
    """
    width = sum(frame.estimated_size() / frame.height for frame in frames if frame.height)
    return max(1, min(rows, int(size / width))) if width else rows


def bounded_pieces(
    frames: Iterable[pl.DataFrame], *, rows: int = PIECE_ROWS, size: int = PIECE_BYTES
) -> Iterator[pl.DataFrame]:
    """Combine small frames and split large ones; the columns of the frames may differ.

    >>> frames = [pl.DataFrame({"n": [1]}), pl.DataFrame({"n": [2, 3, 4, 5]})]
    >>> [piece["n"].to_list() for piece in bounded_pieces(frames, rows=2)]
    [[1, 2], [3, 4], [5]]
    """
    waiting: list[pl.DataFrame] = []
    space = 1.0
    for frame in frames:
        limit = rows_per_piece(frame, rows=rows, size=size)
        start = 0
        while start < frame.height:
            part = frame.slice(start, max(1, int(space * limit)))
            start += part.height
            waiting.append(part)
            space -= part.height / limit
            if space * limit < 1:
                yield _combined(waiting)
                waiting, space = [], 1.0
    if waiting:
        yield _combined(waiting)


def _combined(frames: list[pl.DataFrame]) -> pl.DataFrame:
    return frames[0] if len(frames) == 1 else pl.concat(frames, how="diagonal_relaxed")
