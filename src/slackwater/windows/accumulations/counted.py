"""Elements stored with a count, for accumulations that cannot subtract but may be computed again.

If the input contains retractions, `Counted` takes the place of such an accumulation. Its partial is a counted
multiset: the distinct elements (the input columns, and the event time if the accumulation reads it) as
parallel lists, with the number of elements minus retractions of each. An element whose count is 0 is
dropped. The value of a pane is that of the plain accumulation over the elements that remain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from slackwater.windows.accumulations.base import ColumnarAccumulation, PartialColumns
from slackwater.windows.columns import TIME, WEIGHT, input_column

_COUNT: Final = "counted:count"
_TIME: Final = "counted:time"
_RETRACTED: Final = "counted:retracted"
GROUP: Final = "counted:group"
"""The number of the partial that an element belongs to."""


@dataclass(frozen=True, slots=True)
class CountedElements:
    """The columns of a counted multiset: parallel lists of distinct elements and of their counts.

    >>> stored = CountedElements(PartialColumns("best", retractable=True), ("price",), reads_time=False)
    >>> batch = pl.DataFrame({"in:price": [7, 9, 9, 7], WEIGHT: [1, 1, -1, 1]})
    >>> partial = stored.settle(batch.group_by(pl.lit(0)).agg(stored.add()))
    >>> stored.elements(partial)["in:price"].to_list()
    [7, 7]
    """

    partials: PartialColumns
    inputs: tuple[str, ...]
    reads_time: bool

    @property
    def _sources(self) -> Mapping[str, str]:
        """The columns of elements, by the name of the column that stores their lists."""
        columns = map(input_column, self.inputs)
        sources = {self.partials.name(f"counted:{column}"): column for column in columns}
        if self.reads_time:
            sources[self.partials.name(_TIME)] = TIME
        return {**sources, self.partials.name(_COUNT): WEIGHT}

    def add(self) -> list[pl.Expr]:
        """Aggregations from the elements of a group to lists."""
        return [pl.col(column).alias(name) for name, column in self._sources.items()]

    def merge(self) -> list[pl.Expr]:
        """Aggregations from the lists of several partials to one."""
        return [pl.col(name).explode() for name in self._sources]

    def settle(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Combine equal elements in each partial, and drop those whose count is 0."""
        longest = frame[self.partials.name(_COUNT)].list.len().max()
        return frame if longest in (None, 1) else self._with_lists(frame, self._netted(self._long(frame)))

    def _long(self, frame: pl.DataFrame) -> pl.DataFrame:
        """One row per stored element, with the row of its partial; null for a partial without elements."""
        names = list(self._sources)
        return frame.select(names).with_row_index(GROUP).explode(names)

    def _netted(self, elements: pl.DataFrame) -> pl.DataFrame:
        count = self.partials.name(_COUNT)
        *values, _ = self._sources
        sums = elements.group_by(GROUP, *values).agg(pl.col(count).sum())
        return sums.filter(pl.col(count) != 0)

    def _with_lists(self, frame: pl.DataFrame, elements: pl.DataFrame) -> pl.DataFrame:
        names = list(self._sources)
        lists = aligned(elements.group_by(GROUP).agg(names), frame.height)
        return frame.with_columns(lists.select(names).get_columns())

    def elements(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The elements that remain, each as often as it is counted; `GROUP` is the row of its partial."""
        rows = self._without_retracted(self._long(frame)).rename(self._sources)
        rows = rows.filter(pl.col(WEIGHT) > 0)
        if rows.select((pl.col(WEIGHT) > 1).any()).item():
            repeated = rows.select(pl.int_range(pl.len()).repeat_by(WEIGHT).explode()).to_series()
            rows = rows[repeated].with_columns(pl.lit(1, pl.Int64()).alias(WEIGHT))
        return rows

    def _without_retracted(self, elements: pl.DataFrame) -> pl.DataFrame:
        """Subtract retractions; only elements that equal one are looked at, because most equal none."""
        count = self.partials.name(_COUNT)
        *values, _ = self._sources
        retracted = elements.filter(pl.col(count) < 0).select(GROUP, *values).unique()
        if retracted.is_empty():
            return elements
        retracted = retracted.with_columns(pl.lit(value=True).alias(_RETRACTED))
        found = elements.join(retracted, on=[GROUP, *values], how="left", nulls_equal=True)
        others = found.filter(pl.col(_RETRACTED).is_null()).drop(_RETRACTED)
        return pl.concat([others, self._netted(found.filter(_RETRACTED))])

    def upgraded(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The frame with empty lists in the place of columns that it does not have."""
        missing = [name for name in self._sources if name not in frame.columns]
        return frame.with_columns(pl.lit(None, pl.List(pl.Null())).alias(name) for name in missing)


@dataclass(frozen=True, slots=True)
class Counted(ColumnarAccumulation):
    """An accumulation over input with retractions, computed from the elements that remain.

    Elements with the same event time are in ascending order of their values, because the order of their
    arrival does not survive a retraction.

    >>> from slackwater.windows import Max
    >>> best, partials = Counted(Max("price")), PartialColumns("best", retractable=True)
    >>> batch = pl.DataFrame({"in:price": [7, 9, 9], WEIGHT: [1, 1, -1]})
    >>> partial = batch.group_by(pl.lit(0)).agg(best.add(partials))
    >>> best.prepare(partial, partials).select(best.output(partials)).item()
    7
    """

    plain: ColumnarAccumulation

    @property
    def inputs(self) -> tuple[str, ...]:
        """The input columns that it reads."""
        return self.plain.inputs

    def add(self, partials: PartialColumns) -> Sequence[pl.Expr]:
        """Aggregate elements to a partial."""
        return self._stored(partials).add()

    def merge(self, partials: PartialColumns) -> Sequence[pl.Expr]:
        """Merge partials to one."""
        return self._stored(partials).merge()

    def settle(self, frame: pl.DataFrame, partials: PartialColumns) -> pl.DataFrame:
        """Combine equal elements in each partial, to store it for longer."""
        return self._stored(partials).settle(frame)

    def prepare(self, frame: pl.DataFrame, partials: PartialColumns) -> pl.DataFrame:
        """Add the partials of the plain accumulation, from which `output` computes the value."""
        elements = self._stored(partials).elements(frame)
        if self.plain.reads_order:
            time = [TIME] if self.plain.reads_time else []
            elements = elements.sort(*time, *map(input_column, self.inputs))
        plain = elements.group_by(GROUP).agg(self.plain.add(_plain(partials)))
        return frame.with_columns(aligned(plain, frame.height).drop(GROUP).get_columns())

    def output(self, partials: PartialColumns) -> pl.Expr:
        """The value of a pane, from a partial that `prepare` returned."""
        return self.plain.output(_plain(partials))

    def overflowed(self, partials: PartialColumns) -> pl.Expr | None:
        """Whether the value, from a partial that `prepare` returned, does not fit into its type."""
        return self.plain.overflowed(_plain(partials))

    def _stored(self, partials: PartialColumns) -> CountedElements:
        return CountedElements(partials, self.inputs, self.plain.reads_time)


def aligned(groups: pl.DataFrame, height: int) -> pl.DataFrame:
    """The rows of groups in the order of their numbers up to ``height``; null for groups without a row.

    >>> aligned(pl.DataFrame({GROUP: [2, 0], "n": [5, 7]}, schema_overrides={GROUP: pl.UInt32}), 3)[
    ...     "n"
    ... ].to_list()
    [7, None, 5]
    """
    numbers = pl.DataFrame({GROUP: pl.int_range(height, dtype=pl.UInt32, eager=True)})
    return numbers.join(groups, on=GROUP, how="left", maintain_order="left")


def _plain(partials: PartialColumns) -> PartialColumns:
    return PartialColumns(partials.accumulation, retractable=False)
