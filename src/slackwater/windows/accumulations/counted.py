"""Elements stored with a count, for accumulations that cannot subtract but may be computed again.

If the input contains retractions, `Counted` takes the place of such an accumulation. Its partial is a counted
multiset: the distinct elements (the input columns, and the event time if the accumulation reads it) as
parallel lists, with the number of elements minus retractions of each. An element whose count is 0 is
dropped. The value of a pane is that of the plain accumulation over the elements that remain.

A minimum or maximum needs its elements only if a retraction reaches it. So partials are merged without their
lists, with the extreme of the elements and that of the retractions instead.

The lists of a batch are built, stored and read in half of the time if they have the smallest type that holds
their integers, and if the first integer of an element stores its sign too: an element of 7 as 14, its
retraction as 15. A partial without counts has such lists, a partial whose counts are ``Int8`` has lists
without signs; the integers of both were ``Int64``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from slackwater.windows.accumulations.base import ColumnarAccumulation, PartialColumns
from slackwater.windows.accumulations.selections import EXTREME, Extreme
from slackwater.windows.operator_columns import ADDED, REMAINING, TIME, WEIGHT, input_column

_COUNT: Final = "counted:count"
_TIME: Final = "counted:time"
_EXTREME: Final = "extreme"
"""The extreme of all elements, including those that are retracted."""
_RETRACTED: Final = "retracted"
"""The extreme of the retractions."""
GROUP: Final = "counted:group"
"""The number of the partial that an element belongs to."""

_BOTH: Final = "counted:both"
"""The number of a partial and an element of it as one integer."""

_NARROW: Final = pl.List(pl.Int8())
"""The type of the counts of a partial with narrow lists without signs."""
_INTEGERS: Final = {6: pl.Int8(), 14: pl.Int16(), 30: pl.Int32(), 62: pl.Int64()}
"""Types by the number of bits that are left for an integer and its sign."""

PartsOf = Callable[[pl.DataFrame], pl.DataFrame]
"""Returns the partials with elements that some rows were merged from; each has the `GROUP` of its row."""


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
    def sources(self) -> Mapping[str, str]:
        """The columns of elements, by the name of the column that stores their lists."""
        columns = map(input_column, self.inputs)
        sources = {self.partials.name(f"counted:{column}"): column for column in columns}
        if self.reads_time:
            sources[self.partials.name(_TIME)] = TIME
        return {**sources, self.partials.name(_COUNT): WEIGHT}

    def add(self) -> list[pl.Expr]:
        """Aggregations from the elements of a group to lists."""
        return [pl.col(column).alias(name) for name, column in self.sources.items()]

    def add_narrow(self, elements: pl.DataFrame) -> list[pl.Expr]:
        """Aggregations from the `narrow` columns of the elements of a group to lists."""
        *values, weight = self.sources.values()
        first = self._with_sign(elements)
        if first is None:
            columns = {column: _narrow(column) for column in (*values, weight)}
        else:
            columns = {column: _signed(column) if column == first else _narrow(column) for column in values}
        names = {column: name for name, column in self.sources.items()}
        return [pl.col(narrow).alias(names[column]) for column, narrow in columns.items()]

    def _with_sign(self, elements: pl.DataFrame) -> str | None:
        """The column of elements whose `narrow` column stores the sign too; None if there is none."""
        *values, _ = self.sources.values()
        first = next((column for column in values if elements.schema[column].is_integer()), None)
        return None if first is None or _signed(first) not in elements.columns else first

    def numbers(self, elements: pl.DataFrame) -> list[pl.Expr]:
        """The number of elements, and that minus retractions, from the lists of `add_narrow`.

        Empty if the lists have no signs.

        Args:
            elements: the elements of the lists, with `narrow` columns.
        """
        first = self._with_sign(elements)
        if first is None:
            return []
        lists = pl.col(next(name for name, column in self.sources.items() if column == first))
        added = lists.list.len().cast(pl.Int64)
        retracted = lists.list.eval(pl.element() & 1).list.sum().cast(pl.Int64)
        return [added.alias(ADDED), (added - 2 * retracted).alias(REMAINING)]

    def narrow(self, elements: pl.DataFrame) -> list[pl.Series]:
        """The columns of elements in the smallest types that hold them, under other names.

        None if an integer column is not ``Int64``, because `widened` could not restore its type.

        >>> stored = CountedElements(PartialColumns("best", retractable=True), ("price",), reads_time=False)
        >>> stored.narrow(pl.DataFrame({"in:price": [7, 900], WEIGHT: [1, -1]}))[0].to_list()
        [14, 1801]
        """
        columns = [elements[column] for column in self.sources.values()]
        if any(each.dtype.is_integer() and each.dtype != pl.Int64 for each in columns):
            return []
        *values, weight = columns
        first = next((each for each in values if each.dtype.is_integer()), None)
        kind = None if first is None else _type_with_sign(first)
        others = [each for each in values if kind is None or each is not first]
        narrow = [each.shrink_dtype() if each.dtype.is_integer() else each for each in others]
        if first is None or kind is None:
            return [each.alias(_narrow(each.name)) for each in (*narrow, weight.cast(pl.Int8))]
        signed = first.cast(kind) * 2 + (weight < 0).cast(kind)
        return [signed.alias(_signed(first.name)), *(each.alias(_narrow(each.name)) for each in narrow)]

    def widened(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Partials whose lists have the types of the elements again."""
        *values, count = self.sources
        if not frame.schema.keys() >= set(values):
            return frame
        integers = [name for name in values if _inner(frame, name).is_integer()]
        wide = pl.List(pl.Int64())
        if count not in frame.columns:
            signed, *others = integers
            sign = pl.element() & 1
            return frame.with_columns(
                pl.col(signed).list.eval(pl.element() // 2).cast(wide),
                pl.col(others).cast(wide),
                pl.col(signed).list.eval(1 - 2 * sign.cast(pl.Int64)).alias(count),
            )
        if frame.schema[count] != _NARROW:
            return frame
        return frame.with_columns(pl.col(*integers, count).cast(wide))

    def merge(self, present: Collection[str] | None = None) -> list[pl.Expr]:
        """Aggregations from the lists of several partials to one; ``present`` are the columns they have."""
        names = [name for name in self.sources if present is None or name in present]
        return [pl.col(name).explode() for name in names]

    def settle(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Combine equal elements in each partial, and drop those whose count is 0."""
        longest = frame[self.partials.name(_COUNT)].list.len().max()
        if longest in (None, 1):
            return frame
        names = list(self.sources)
        lists = self.netted(self._long(frame), GROUP).group_by(GROUP).agg(names)
        return frame.with_columns(aligned(lists, frame.height).select(names).get_columns())

    def _long(self, frame: pl.DataFrame, groups: pl.Series | None = None) -> pl.DataFrame:
        """One row per stored element, with the row of its partial; null for a partial without elements."""
        names = list(self.sources)
        if groups is None:
            return frame.select(names).with_row_index(GROUP).explode(names)
        return frame.select(groups.alias(GROUP), *names).explode(names)

    def netted(self, elements: pl.DataFrame, *by: str) -> pl.DataFrame:
        """Combine equal elements of each group, and drop those whose count is 0."""
        *values, count = self.sources
        sums = elements.group_by(*by, *values).agg(pl.col(count).sum())
        return sums.filter(pl.col(count) != 0)

    def elements(self, frame: pl.DataFrame, groups: pl.Series | None = None) -> pl.DataFrame:
        """The elements that remain, each as often as it is counted.

        Args:
            frame: the partials.
            groups: the number of the group that each partial belongs to; its row if omitted.

        Returns:
            The elements, with the number of their group in `GROUP`.
        """
        rows = self._without_retracted(self._long(frame, groups)).rename(self.sources)
        rows = rows.filter(pl.col(WEIGHT) > 0)
        if rows.select((pl.col(WEIGHT) > 1).any()).item():
            repeated = rows.select(pl.int_range(pl.len()).repeat_by(WEIGHT).explode()).to_series()
            rows = rows[repeated].with_columns(pl.lit(1, pl.Int64()).alias(WEIGHT))
        return rows

    def distinct(self, frame: pl.DataFrame, groups: pl.Series) -> pl.DataFrame:
        """The elements that remain, each at least once, if most groups have a retraction; see `elements`.

        Args:
            frame: the partials, also those of `add_narrow` if they have signs.
            groups: the number of the group that each partial belongs to.
        """
        *values, count = self.sources
        if count in frame.columns or len(values) > 1:
            elements = self._long(self.widened(frame), groups)
        else:  # signs are cheaper to separate from long columns than in lists
            long, signed = frame.select(groups.alias(GROUP), *values).explode(values), pl.col(*values)
            sign = (1 - 2 * (signed & 1)).cast(pl.Int64).alias(count)
            elements = long.with_columns((signed // 2).cast(pl.Int64), sign)
        found = self._remaining_integers(elements)
        found = self.netted(elements, GROUP).filter(pl.col(count) > 0) if found is None else found
        return found.rename({name: self.sources[name] for name in values})

    def _remaining_integers(self, elements: pl.DataFrame) -> pl.DataFrame | None:
        """Elements whose count is above 0; only those with a retraction are counted. None if impossible.

        A group and an integer are combined to one integer, which takes a third of the time of `netted`.
        """
        value, *others, count = self.sources
        if others or elements.schema[value] != pl.Int64 or elements.is_empty():
            return None
        values = elements[value]
        low, high, last = values.min(), values.max(), elements[GROUP].max()
        if values.null_count() or not (
            isinstance(low, int) and isinstance(high, int) and isinstance(last, int)
        ):
            return None
        span = high - low + 1
        if span * (last + 1) >= 2**62:
            return None
        both = (elements[GROUP].cast(pl.Int64) * span + (values - low)).alias(_BOTH)
        is_affected = both.is_in(both.filter(elements[count] < 0).implode())
        counts = pl.DataFrame([both, elements[count]]).filter(is_affected).group_by(_BOTH).agg(pl.sum(count))
        kept = both.filter(~is_affected).append(counts.filter(pl.col(count) > 0)[_BOTH])
        group, rest = (pl.col(_BOTH) // span).cast(elements.schema[GROUP]), pl.col(_BOTH) % span + low
        return kept.to_frame().select(group.alias(GROUP), rest.alias(value))

    def _without_retracted(self, elements: pl.DataFrame) -> pl.DataFrame:
        """Subtract retractions; only groups that have one are looked at."""
        count = self.partials.name(_COUNT)
        affected = elements.filter(pl.col(count) < 0)[GROUP].unique()
        if affected.is_empty():
            return elements
        is_affected = elements[GROUP].is_in(affected.implode())
        return pl.concat([elements.filter(~is_affected), self.netted(elements.filter(is_affected), GROUP)])

    def upgraded(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The frame with empty lists in the place of columns that it does not have."""
        missing = [name for name in self.sources if name not in frame.columns]
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

    def add_narrow(self, elements: pl.DataFrame, partials: PartialColumns) -> Sequence[pl.Expr]:
        """Aggregate elements with `narrow` columns to a partial."""
        return self._stored(partials).add_narrow(elements)

    def narrow(self, elements: pl.DataFrame, partials: PartialColumns) -> list[pl.Series]:
        """The columns that `add_narrow` reads; empty if the elements cannot have them."""
        return self._stored(partials).narrow(elements)

    def numbers(self, elements: pl.DataFrame, partials: PartialColumns) -> list[pl.Expr]:
        """The number of elements, and that minus retractions, from a partial with signs; else empty."""
        return self._stored(partials).numbers(elements)

    def widened(self, frame: pl.DataFrame, partials: PartialColumns) -> pl.DataFrame:
        """Partials of `add_narrow` as those of `add`; others as they are."""
        return self._stored(partials).widened(frame)

    def merge(self, partials: PartialColumns, present: Collection[str] | None = None) -> Sequence[pl.Expr]:
        """Merge partials to one; ``present`` are the columns that they have, if not all."""
        return self._stored(partials).merge(present)

    def without_elements(self, frame: pl.DataFrame, partials: PartialColumns) -> pl.DataFrame:
        """Partials without their elements, but with their extremes for a minimum or maximum."""
        names = [name for name in self.elements_of(partials) if name in frame.columns]
        rest = frame.drop(names)
        if not isinstance(self.plain, Extreme):
            return rest
        lists = frame.select(names)
        if len(names) == 1:
            return rest.with_columns(_signed_extremes(self.plain, lists.to_series(), partials))
        # Without a retraction, no element was subtracted; a partial of an earlier release may not know.
        retracted = (frame[REMAINING] != frame[ADDED]).fill_null(value=True)
        return rest.with_columns(self._extremes(self.plain, lists, partials, retracted))

    def merge_extremes(self, partials: PartialColumns) -> Sequence[pl.Expr]:
        """Merge partials without elements to one."""
        if not isinstance(self.plain, Extreme):
            return ()
        return [self.plain.select(partials.column(name)) for name in (_EXTREME, _RETRACTED)]

    @staticmethod
    def _extremes(
        plain: Extreme, lists: pl.DataFrame, partials: PartialColumns, has_retraction: pl.Series | None = None
    ) -> list[pl.Series]:
        value, count = lists.columns
        numbered = lists.with_row_index(GROUP)
        if has_retraction is not None and 2 * int(has_retraction.sum()) < lists.height:
            numbered = numbered.filter(has_retraction)
        taken_back = numbered.explode(value, count).filter(pl.col(count) < 0)
        if _inner(lists, value).is_float():
            elements = lists.select(value).with_row_index(GROUP).explode(value)
            extreme = _by_row(plain, elements, value, lists.height)
        else:
            extreme = lists.select(plain.select_in_lists(pl.col(value))).to_series()
        retracted = _by_row(plain, taken_back, value, lists.height)
        return [extreme.alias(partials.name(_EXTREME)), retracted.alias(partials.name(_RETRACTED))]

    def elements_of(self, partials: PartialColumns) -> list[str]:
        """The columns of a partial that hold its elements."""
        return list(self._stored(partials).sources)

    def settle(self, frame: pl.DataFrame, partials: PartialColumns) -> pl.DataFrame:
        """Combine equal elements in each partial, to store it for longer."""
        return self._stored(partials).settle(frame)

    def compact(self, parts: pl.DataFrame, by: Sequence[str], partials: PartialColumns) -> pl.DataFrame:
        """Merge the elements of each group of partials, without those whose count is 0."""
        stored = self._stored(partials)
        names = list(stored.sources)
        return stored.netted(parts.select(*by, *names).explode(names), *by).group_by(by).agg(names)

    def prepare(
        self, frame: pl.DataFrame, partials: PartialColumns, parts: PartsOf | None = None
    ) -> pl.DataFrame:
        """Add the partials of the plain accumulation, from which `output` computes the value.

        Args:
            frame: the partials, one row for each value.
            partials: the names of their columns.
            parts: returns the partials with the elements of some rows, if those in the frame were merged
                without their elements.
        """
        if not isinstance(self.plain, Extreme):
            plain = self._recomputed(frame.with_row_index(GROUP), partials, parts)
            return frame.with_columns(aligned(plain, frame.height).drop(GROUP).get_columns())
        if partials.name(_EXTREME) not in frame.columns:
            lists = frame.select(self.elements_of(partials))
            frame = frame.with_columns(self._extremes(self.plain, lists, partials))
        extreme, retracted = (partials.column(name) for name in (_EXTREME, _RETRACTED))
        is_reached = (~self.plain.is_beyond(extreme, retracted)).fill_null(value=False)
        name = _plain(partials).name(EXTREME)
        value = frame.select(extreme.alias(name)).to_series()
        numbers = frame.select(is_reached.arg_true()).to_series()
        if numbers.len():
            reached = frame[numbers].with_columns(numbers.alias(GROUP))
            found = self._recomputed(reached, partials, parts)
            found = reached.select(GROUP).join(found, on=GROUP, how="left", maintain_order="left")
            value = value.scatter(numbers, found[name])
        return frame.with_columns(value)

    def _recomputed(
        self, rows: pl.DataFrame, partials: PartialColumns, parts: PartsOf | None
    ) -> pl.DataFrame:
        """The partials of the plain accumulation over the elements of some rows, which have a number."""
        stored = self._stored(partials)
        if parts is not None:
            rows = parts(rows)
        if isinstance(self.plain, Extreme):
            elements = stored.distinct(rows, rows[GROUP])
        else:
            elements = stored.elements(rows if parts is None else stored.widened(rows), rows[GROUP])
        if self.plain.reads_order:
            time = [TIME] if self.plain.reads_time else []
            elements = elements.sort(*time, *map(input_column, self.inputs))
        return elements.group_by(GROUP).agg(self.plain.add(_plain(partials)))

    def output(self, partials: PartialColumns) -> pl.Expr:
        """The value of a pane, from a partial that `prepare` returned."""
        return self.plain.output(_plain(partials))

    def overflowed(self, partials: PartialColumns) -> pl.Expr | None:
        """Whether the value, from a partial that `prepare` returned, does not fit into its type."""
        return self.plain.overflowed(_plain(partials))

    def _stored(self, partials: PartialColumns) -> CountedElements:
        return CountedElements(partials, self.inputs, self.plain.reads_time)


def _narrow(column: str) -> str:
    return f"narrow:{column}"


def _signed(column: str) -> str:
    return f"signed:{column}"


def _signed_extremes(plain: Extreme, lists: pl.Series, partials: PartialColumns) -> list[pl.Series]:
    """The extreme of each list of integers with signs, and the same again if it is retracted.

    Other retractions need not be known. If the extreme is retracted as often as it was added, another
    element takes its place; retractions of lesser elements change nothing.
    """
    # The sign is flipped for a minimum, so that a retraction is the extreme of it and its element.
    ordered = lists if plain.is_greatest else lists.list.eval(pl.element() ^ 1)
    signed = pl.select(plain.select_in_lists(pl.lit(ordered))).to_series()
    extreme, sign = (signed // 2).cast(pl.Int64), signed & 1
    is_retracted = sign == (1 if plain.is_greatest else 0)
    retracted = extreme.zip_with(is_retracted, extreme.clear(1))
    return [extreme.alias(partials.name(_EXTREME)), retracted.alias(partials.name(_RETRACTED))]


def _type_with_sign(column: pl.Series) -> pl.DataType | None:
    """The smallest type that holds integers and a sign each; None if there is none."""
    low, high = column.min(), column.max()
    if column.null_count() or not isinstance(low, int) or not isinstance(high, int):
        return None  # the sign of a null would be lost
    return next((kind for bits, kind in _INTEGERS.items() if -(1 << bits) <= low <= high < 1 << bits), None)


def _inner(frame: pl.DataFrame, name: str) -> pl.DataType:
    """The type of the elements of a column of lists; its own type if it has none."""
    dtype = frame.schema[name]
    return pl.Null() if not isinstance(dtype, pl.List) else dtype.inner  # type: ignore[return-value]  # an instance


def _by_row(plain: Extreme, elements: pl.DataFrame, value: str, height: int) -> pl.Series:
    """The extreme of the elements of each row; null for rows without elements."""
    if elements.is_empty():
        return elements[value].clear(height)
    found = elements.group_by(GROUP).agg(plain.select(pl.col(value)))
    return elements[value].clear(height).scatter(found[GROUP], found[value])


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
