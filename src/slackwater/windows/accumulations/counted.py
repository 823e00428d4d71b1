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
        names = list(self._sources)
        count = self.partials.name(_COUNT)
        *values, _ = names
        longest = frame[count].list.len().max()
        if longest is None or (longest == 1 and not frame[count].explode().eq(0).any()):
            return frame
        settled = (
            frame.select(names)
            .with_row_index(GROUP)
            .explode(names)
            .group_by(GROUP, *values, maintain_order=True)
            .agg(pl.col(count).sum())
            .filter(pl.col(count) != 0)
            .group_by(GROUP, maintain_order=True)
            .agg(names)
        )
        groups = pl.DataFrame({GROUP: pl.int_range(frame.height, dtype=pl.UInt32, eager=True)})
        lists = groups.join(settled, on=GROUP, how="left", maintain_order="left")
        return frame.with_columns(lists.select(names).get_columns())

    def elements(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The elements that remain, each as often as it is counted; `GROUP` is the row of its partial."""
        sources = self._sources
        rows = frame.select(list(sources)).with_row_index(GROUP).explode(list(sources)).rename(sources)
        rows = rows.filter(pl.col(WEIGHT) > 0)
        if rows.select((pl.col(WEIGHT) > 1).any()).item():
            repeated = rows.select(pl.int_range(pl.len()).repeat_by(WEIGHT).explode()).to_series()
            rows = rows[repeated]
        return rows.with_columns(pl.lit(1, pl.Int64()).alias(WEIGHT))

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
    >>> partial = best.settle(batch.group_by(pl.lit(0)).agg(best.add(partials)), partials)
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
        """Combine equal elements in each partial; call it after `add` and after `merge`."""
        return self._stored(partials).settle(frame)

    def prepare(self, frame: pl.DataFrame, partials: PartialColumns) -> pl.DataFrame:
        """Add the partials of the plain accumulation, from which `output` computes the value."""
        elements = self._stored(partials).elements(frame)
        order = [*([TIME] if self.plain.reads_time else []), *map(input_column, self.inputs)]
        plain = (
            elements.sort(GROUP, *order)
            .group_by(GROUP, maintain_order=True)
            .agg(self.plain.add(_plain(partials)))
        )
        groups = pl.DataFrame({GROUP: pl.int_range(frame.height, dtype=pl.UInt32, eager=True)})
        aligned = groups.join(plain, on=GROUP, how="left", maintain_order="left").drop(GROUP)
        return frame.with_columns(aligned.get_columns())

    def output(self, partials: PartialColumns) -> pl.Expr:
        """The value of a pane, from a partial that `prepare` returned."""
        return self.plain.output(_plain(partials))

    def _stored(self, partials: PartialColumns) -> CountedElements:
        return CountedElements(partials, self.inputs, self.plain.reads_time)


def _plain(partials: PartialColumns) -> PartialColumns:
    return PartialColumns(partials.accumulation, retractable=False)
