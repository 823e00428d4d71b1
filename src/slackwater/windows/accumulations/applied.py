"""A user function that is applied to all rows of a pane, which are kept until then.

The rows are kept in columns, as an accumulation whose partials are lists, and the function is called when a
pane is emitted. Its result is the value of the pane, so a retraction contains exactly that result, even if
the function would return something else now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import polars as pl
import pyarrow as pa

from slackwater._strict_rows import rows_to_table, table_to_schema
from slackwater.errors import FunctionFailed, InvalidArgument
from slackwater.time import Range
from slackwater.windows.accumulations.base import (
    ColumnarAccumulation,
    PartialColumns,
    check_column,
)
from slackwater.windows.operator_columns import END, START, TIME, input_column, key_column

Frame = Literal["polars", "pandas"]
Function = Callable[[dict[str, Any], Range, Any], Any]

_ROWS: Final = "rows"
RETURNS: Final = " returns "
"""What separates the columns that a function reads from those that it returns, in a signature."""


@dataclass(frozen=True)
class Applied(ColumnarAccumulation):
    """The rows that ``function(key, window, rows)`` returns for all rows of a pane. **Slow.**

    Args:
        function: gets the key as a dictionary, the window as a `Range` and the rows as a DataFrame.
        columns: the columns of a row that the function gets.
        schema: the columns and types that the function returns.
        key: the key columns of the operator.
        frame: whether the function gets a Polars or a pandas DataFrame.

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
                "function",
                self.function,
                "is not a function",
                fix="give a function such as lambda key, window, rows: …",
            )
        if self.frame not in ("polars", "pandas"):
            raise InvalidArgument(
                "frame", self.frame, "is not a valid value of frame", fix="use one of polars, pandas"
            )
        for name, value in (("columns", self.columns), ("schema", self.schema)):
            if not value:
                raise InvalidArgument(name, value, "is empty", fix="name at least one column")
        for column in self.columns:
            check_column(column, "columns")

    @property
    def inputs(self) -> tuple[str, ...]:
        """The input columns that it reads."""
        return self.columns

    @property
    def can_recompute(self) -> bool:
        """Whether its value may be computed from the elements that remain after retractions."""
        return True

    @property
    def reads_time(self) -> bool:
        """Whether its value depends on the event times of the elements."""
        return True

    @property
    def signature(self) -> str:
        """The configuration that its partials depend on, and the type of its results, which panes contain.

        >>> Applied(len, ("price",), {"n": pl.Int64()}).signature
        'applied(price) returns n Int64'
        """
        columns = ", ".join(f"{name} {kind}" for name, kind in self.schema.items())
        return f"{self.name}({', '.join(self.inputs)}){RETURNS}{columns}"

    @property
    def dtype(self) -> pl.DataType:
        """The type of the value of a pane: a list of rows."""
        return pl.List(pl.Struct(dict(self.schema)))

    def add(self, partials: PartialColumns) -> Sequence[pl.Expr]:
        """Collect elements to a list of rows."""
        values = (pl.col(input_column(name)) for name in self.columns)
        return [pl.struct(pl.col(TIME), *values).alias(partials.name(_ROWS))]

    def merge(self, partials: PartialColumns) -> Sequence[pl.Expr]:
        """Concatenate lists of rows."""
        rows = partials.column(_ROWS).explode()
        return [rows.filter(rows.struct.field(TIME).is_not_null())]

    def output(self, partials: PartialColumns) -> pl.Expr:
        """The results of the function, one per pane."""
        keys = [pl.col(key_column(number)) for number in range(len(self.key))]
        panes = pl.struct(partials.column(_ROWS).alias(_ROWS), START, END, *keys)
        return panes.map_batches(self._results, return_dtype=self.dtype)

    def _results(self, panes: pl.Series) -> pl.Series:
        name, fields = panes.name, panes.struct.unnest()
        lists = fields[_ROWS]
        nothing = pl.Series(dtype=lists.dtype.inner)  # type: ignore[attr-defined]  # it is a list
        results = [
            self._result(
                dict(zip(self.key, keys, strict=True)), Range(start, end), nothing if rows is None else rows
            )
            for rows, (start, end, *keys) in zip(lists, fields.drop(_ROWS).iter_rows(), strict=True)
        ]
        return pl.Series(name, results, dtype=self.dtype)

    def _result(self, key: dict[str, Any], window: Range, rows: pl.Series) -> pl.Series:
        # Sorted by event time, independent of the order of arrival.
        ordered = rows.struct.unnest().sort(TIME, maintain_order=True)
        frame = ordered.select(pl.col(input_column(name)).alias(name) for name in self.columns)
        given = frame if self.frame == "polars" else frame.to_pandas()
        try:
            return self._checked(self.function(key, window, given)).to_struct()
        except Exception as error:
            name = getattr(self.function, "__name__", repr(self.function))
            cause = str(error) if isinstance(error, FunctionFailed) else f"{type(error).__name__}: {error}"
            raise FunctionFailed(f"{name}() failed on key {key} in window {window}: {cause}") from error

    def _checked(self, result: Any) -> pl.DataFrame:
        """The result as a frame with the declared columns and types; raises if a value would be cut."""
        expected = f"return a DataFrame or a list of dictionaries with {', '.join(self.schema)}"
        rows: list[Any] | None = None
        if type(result).__module__.partition(".")[0] == "pandas" or isinstance(result, pl.DataFrame):
            names = set(result.columns)
        elif not isinstance(result, Iterable) or isinstance(result, (str, bytes, Mapping)):
            raise FunctionFailed(f"it returned {type(result).__name__}, not rows; {expected}")
        else:
            rows = list(result)
            if odd := next((row for row in rows if not isinstance(row, Mapping)), None):
                raise FunctionFailed(f"it returned a row that is a {type(odd).__name__}; {expected}")
            names = {name for row in rows for name in row} if rows else set(self.schema)
        if names != set(self.schema):
            raise FunctionFailed(f"it returned the columns {', '.join(sorted(map(str, names)))}; {expected}")
        declared = pl.DataFrame(schema=self.schema).to_arrow().schema
        if rows is not None:
            made = rows_to_table(rows, declared, what="a result")
        elif isinstance(result, pl.DataFrame):
            made = table_to_schema(result.to_arrow(), declared, what="a result")
        else:
            made = table_to_schema(
                pa.Table.from_pandas(result, preserve_index=False), declared, what="a result"
            )
        return pl.DataFrame(made, schema=self.schema)
