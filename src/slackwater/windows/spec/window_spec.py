"""The specification of windows, a trigger and accumulations over a keyed stream: `WindowSpec`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from slackwater.errors import InvalidArgument
from slackwater.windows.accumulations.base import ColumnarAccumulation
from slackwater.windows.assigners import Sessions
from slackwater.windows.spec.spec_checks import check_distinct, check_type
from slackwater.windows.spec.windowing_strategy import (
    PANE_COLUMNS,
    PANE_FIELDS,
    WINDOW_COLUMNS,
    WindowingStrategy,
)
from slackwater.windows.triggers import describe


@dataclass(frozen=True)
class NamedAccumulations(Mapping[str, ColumnarAccumulation]):
    """The accumulations of an operator by the name of their output column: ordered, immutable, hashable.

    >>> from slackwater.windows import count, sum
    >>> named = NamedAccumulations((("bids", count()), ("total", sum("price"))))
    >>> list(named), named["total"]
    (['bids', 'total'], Sum(column='price'))
    """

    pairs: tuple[tuple[str, ColumnarAccumulation], ...]

    def __getitem__(self, name: str) -> ColumnarAccumulation:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)

    @cached_property
    def _by_name(self) -> dict[str, ColumnarAccumulation]:
        return dict(self.pairs)

    def __hash__(self) -> int:
        # By signature: an accumulation may hold a value without a hash, such as the initial list of a fold.
        return hash(tuple((name, accumulation.signature) for name, accumulation in self.pairs))


@dataclass(frozen=True, kw_only=True)
class WindowSpec(WindowingStrategy):
    """The configuration of a `WindowedOperator`: windows, a trigger and accumulations over a keyed stream.

    Args:
        accumulations: the values of a pane, by column name.
        event_time: the column with the event time of a row, in microseconds since 1970.
        retractions: the boolean column that marks rows which retract an earlier row, if there is one.
        key: the key columns; none by default.

    The other settings are those of `WindowingStrategy`.

    >>> import slackwater as sw
    >>> spec = sw.WindowSpec(
    ...     window=sw.fixed("10 seconds"), accumulations={"bids": sw.count()}, event_time="ts"
    ... )
    >>> spec.can_fold, spec.fires_once
    (True, True)
    >>> sw.WindowSpec(window=sw.fixed("10 seconds"), accumulations={}, event_time="ts")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: accumulations = {}: is empty; give at least one, as in {"n": count()}
    """

    accumulations: Mapping[str, ColumnarAccumulation]
    event_time: str
    retractions: str | None = None
    key: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_type("accumulations", self.accumulations, Mapping, 'a mapping, as in {"n": count()}')
        check_type("event_time", self.event_time, str, 'a column name, as in event_time="ts"')
        object.__setattr__(self, "accumulations", NamedAccumulations(tuple(self.accumulations.items())))
        super().__post_init__()
        self._check_accumulations()
        if self.gap_column is not None and self.takes_retractions:
            raise InvalidArgument(
                "gap",
                self.gap_column,
                "cannot be a column if the input contains retractions, which must have the gap of their row",
                fix='use one gap for all rows: sessions("30 minutes")',
            )
        check_distinct(
            "name",
            (*self.key, *self.accumulations),
            PANE_COLUMNS,
            "is already the name of another column of the panes; rename the key column or the accumulation",
        )

    @property
    def can_fold(self) -> bool:
        """Whether rows can be aggregated to partials before the step, where the watermark is not known.

        This is not possible where elements have to be handled one by one: session windows, keys that expire,
        lateness by element, late rows that are emitted, and output timestamps that depend on the watermark.

        >>> import slackwater as sw
        >>> counts = {"accumulations": {"n": sw.count()}, "key": ("auction",), "event_time": "ts"}
        >>> sw.WindowSpec(window=sw.sessions("30 minutes"), **counts).can_fold
        False
        """
        return self.prevents_folding is None

    @property
    def prevents_folding(self) -> str | None:
        """The setting because of which `can_fold` is False; None if it is True."""
        if isinstance(self.window, Sessions) or self.ttl is not None:
            return f"window={self.window}"
        for name, foldable in (("timestamp", "end_of_window"), ("drop_late", "by_window"), ("late", "count")):
            if getattr(self, name) != foldable:
                return f"{name}={getattr(self, name)!r}"
        return None

    @property
    def takes_retractions(self) -> bool:
        """Whether rows of the input can be retractions of earlier rows."""
        return self.retractions is not None

    @property
    def inputs(self) -> tuple[str, ...]:
        """The columns that the accumulations read, each once."""
        read = (name for accumulation in self.accumulations.values() for name in accumulation.inputs)
        return tuple(dict.fromkeys(read))

    @property
    def value_columns(self) -> tuple[str, ...]:
        """The columns of a pane that hold its values: one per accumulation."""
        return tuple(self.accumulations)

    @property
    def pane_columns(self) -> tuple[str, ...]:
        """All columns of a pane, in order.

        >>> import slackwater as sw
        >>> spec = sw.WindowSpec(
        ...     window=sw.fixed("10 seconds"), accumulations={"n": sw.count()}, event_time="ts"
        ... )
        >>> spec.pane_columns[:4]
        ('window_start', 'window_end', 'n', 'timing')
        """
        return (*self.key, *WINDOW_COLUMNS, *self.value_columns, *PANE_FIELDS)

    @property
    def signature(self) -> str:
        """The settings that saved state of version 1 contains, as text."""
        values = (f"{name}={accumulation.signature}" for name, accumulation in self.accumulations.items())
        return (
            f"{self.window} {describe(self.trigger)} {self.mode} {self.timestamp} "
            f"updated={self.only_updated} signed={self.takes_retractions} keys={self.key!r} "
            f"{' '.join(values)}"
        )

    def _check_accumulations(self) -> None:
        if not self.accumulations:
            raise InvalidArgument(
                "accumulations", {}, "is empty", fix='give at least one, as in {"n": count()}'
            )
        for name, accumulation in self.accumulations.items():
            if not isinstance(accumulation, ColumnarAccumulation):
                raise InvalidArgument(
                    name, accumulation, "is not an accumulation", fix='use count(), sum("price"), …'
                )
            if self.takes_retractions and not accumulation.can_subtract:
                self._check_recomputable(name, accumulation)

    def _check_recomputable(self, name: str, accumulation: ColumnarAccumulation) -> None:
        """Raise if an accumulation that cannot subtract cannot be computed from the remaining elements."""
        if not accumulation.can_recompute:
            raise InvalidArgument(
                name,
                accumulation.name,
                "cannot subtract elements, but the input contains retractions",
                fix=f"use {accumulation.retractable_alternative}",
            )
        if self.mode == "discarding":
            raise InvalidArgument(
                name,
                accumulation.name,
                "cannot process retractions in discarding mode, because a retraction may take back an "
                "element of an earlier pane",
                fix='use mode="accumulating" or "accumulating_and_retracting"',
            )
