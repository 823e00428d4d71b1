"""A function over all rows of a pane: what no accumulation can do, at the price of keeping every row.

The rows are kept in columns, as an accumulation whose partials are lists, and the function is called when
a pane is made. What it returned is the value of the pane, so a retraction takes back exactly that, even if
the function would answer differently today.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import polars as pl

from slackwater.errors import FunctionFailed, InvalidArgument
from slackwater.time import Range
from slackwater.windows.accumulations.base import (
    TIME,
    ColumnarAccumulation,
    Parts,
    check_column,
    value_name,
)
from slackwater.windows.engine.rules import END, START

Frame = Literal["polars", "pandas"]
Function = Callable[[dict[str, Any], Range, Any], Any]

_ROWS: Final = "rows"


@dataclass(frozen=True)
class Applied(ColumnarAccumulation):
    """What ``function(key, window, rows)`` makes of all rows of a pane, as a list of rows. **Slow.**

    ``key`` are the names of the key columns of the operator, ``columns`` what the function sees of a row,
    ``schema`` what it returns.

    >>> def spread(key, window, rows):
    ...     return [{"spread": rows["price"].max() - rows["price"].min()}]
    >>> Applied(spread, ("price",), {"spread": pl.Int64()}).inputs
    ('price',)
    """

    function: Function
    columns: tuple[str, ...]
    schema: Mapping[str, pl.DataType]
    key: tuple[str, ...] = ()
    frame: Frame = "polars"

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise InvalidArgument(
                "function", self.function, "is not a function", fix="write lambda key, window, rows: …"
            )
        if self.frame not in ("polars", "pandas"):
            raise InvalidArgument("frame", self.frame, "is not known", fix="use one of polars, pandas")
        for name, value in (("columns", self.columns), ("schema", self.schema)):
            if not value:
                raise InvalidArgument(name, value, "is empty", fix="name at least one column")
        for column in self.columns:
            check_column(column, "columns")

    @property
    def inputs(self) -> tuple[str, ...]:
        """The columns of the batch that it reads."""
        return self.columns

    @property
    def dtype(self) -> pl.DataType:
        """What a pane shows: a list of rows."""
        return pl.List(pl.Struct(dict(self.schema)))

    def add(self, parts: Parts) -> Sequence[pl.Expr]:
        """Elements to a list of rows."""
        values = (pl.col(value_name(name)) for name in self.columns)
        return [pl.struct(pl.col(TIME), *values).alias(parts.name(_ROWS))]

    def merge(self, parts: Parts) -> Sequence[pl.Expr]:
        """Lists to one list."""
        rows = parts.column(_ROWS).explode()
        return [rows.filter(rows.struct.field(TIME).is_not_null())]

    def output(self, parts: Parts) -> pl.Expr:
        """What the function returns, pane by pane."""
        keys = [pl.col(f"key:{place}") for place in range(len(self.key))]
        asked = pl.struct(parts.column(_ROWS).alias(_ROWS), START, END, *keys)
        return asked.map_batches(self._answers, return_dtype=self.dtype)

    def _answers(self, asked: pl.Series) -> pl.Series:
        panes = asked.struct.unnest()
        lists = panes[_ROWS]
        nothing = pl.Series(dtype=lists.dtype.inner)  # type: ignore[attr-defined]  # it is a list
        answers = [
            self._answer(
                dict(zip(self.key, keys, strict=True)), Range(start, end), nothing if rows is None else rows
            )
            for rows, (start, end, *keys) in zip(lists, panes.drop(_ROWS).iter_rows(), strict=True)
        ]
        return pl.Series(asked.name, answers, dtype=self.dtype)

    def _answer(self, key: dict[str, Any], window: Range, rows: pl.Series) -> pl.Series:
        # In the order of event time, whatever order they came in.
        seen = rows.struct.unnest().sort(TIME, maintain_order=True)
        frame = seen.select(pl.col(value_name(name)).alias(name) for name in self.columns)
        given = frame if self.frame == "polars" else frame.to_pandas()
        try:
            return self._checked(self.function(key, window, given)).to_struct()
        except Exception as error:
            name = getattr(self.function, "__name__", repr(self.function))
            cause = str(error) if isinstance(error, FunctionFailed) else f"{type(error).__name__}: {error}"
            raise FunctionFailed(f"{name}() failed on key {key} in window {window}: {cause}") from error

    def _checked(self, answer: Any) -> pl.DataFrame:
        """The answer with the columns and types that were promised."""
        promised = f"return a DataFrame or a list of dictionaries with {', '.join(self.schema)}"
        if type(answer).__module__.partition(".")[0] == "pandas":
            made: pl.DataFrame = pl.from_pandas(answer)
        elif isinstance(answer, pl.DataFrame):
            made = answer
        elif not isinstance(answer, Iterable) or isinstance(answer, (str, bytes, Mapping)):
            raise FunctionFailed(f"it returned {type(answer).__name__}, not rows; {promised}")
        else:
            rows = list(answer)
            made = pl.DataFrame(rows, infer_schema_length=None) if rows else pl.DataFrame(schema=self.schema)
        if set(made.columns) != set(self.schema):
            raise FunctionFailed(f"it returned the columns {', '.join(made.columns)}; {promised}")
        return made.select(pl.col(name).cast(kind) for name, kind in self.schema.items())
