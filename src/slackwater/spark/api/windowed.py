"""A stream in windows: when panes are emitted, and what they contain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from pyspark.sql.types import StructType

from slackwater.spark.api.builders import aggregated, applied, check_accumulations, cogrouped
from slackwater.spark.api.computed_columns import with_computed_columns
from slackwater.spark.api.dataflow import Keep
from slackwater.spark.api.explain import window_text
from slackwater.spark.api.pane_output import PaneDataflow
from slackwater.spark.api.panes import Panes
from slackwater.spark.api.stream import Stream
from slackwater.spark.api.stream_operations import StreamOperations, elements_of
from slackwater.time import DurationLike, Range, duration
from slackwater.windows import ColumnarAccumulation, Trigger
from slackwater.windows.spec.cogroup_spec import CogroupHow
from slackwater.windows.spec.operator_spec import longest_lateness
from slackwater.windows.spec.spec_checks import join_kind
from slackwater.windows.spec.windowing_strategy import (
    Closing,
    DropLate,
    Idle,
    Mode,
    OnChange,
    OnTime,
    Timestamp,
    WindowingStrategy,
)
from slackwater.windows.triggers import inherited_trigger


@dataclass(frozen=True)
class Windowed:
    """A stream in windows, with the settings that decide what is emitted and when; see `Stream.window`.

    Each setting is checked when it is made, so that an invalid combination raises on its line.

    >>> import slackwater as sw
    >>> windowed = Windowed(stream=None, strategy=WindowingStrategy(window=sw.fixed("10 seconds"), key=()))
    >>> windowed.allowed_lateness("1 minute").discarding().strategy.allowed_lateness
    60000000
    >>> windowed.allowed_lateness("-1 minute")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: allowed_lateness = -60000000: must not be negative; use 0, or None \
for no limit
    """

    stream: Stream
    strategy: WindowingStrategy
    inherits_lateness: bool = True
    """Whether the allowed lateness is that of the inputs, because none was chosen."""
    inherits_trigger: bool = True
    """Whether the trigger follows from the inputs, because none was chosen."""
    inherits_mode: bool = True
    """Whether the mode is the default one, because none was chosen."""

    def __repr__(self) -> str:
        return f"Windowed[{window_text(self.strategy.window)}, {self.strategy.mode}] of {self.stream}"

    def trigger(self, trigger: Trigger, *, allow_data_loss: bool = False) -> Windowed:
        """Choose when panes are emitted; by default once, when the watermark passes the end of the window.

        An operator over panes of another one inherits its trigger: if that one emits early panes, this one
        emits an early pane with every batch that brings some. Set a trigger to choose otherwise, for example
        ``after_watermark(late=every(count=1))`` for no early panes.

        Args:
            trigger: The trigger, such as ``after_watermark(early=every(count=100))``.
            allow_data_loss: Allow a trigger that can finish, after which further rows are dropped.
        """
        strategy = replace(self.strategy, trigger=trigger, allow_data_loss=allow_data_loss)
        return replace(self, strategy=strategy, inherits_trigger=False)

    def allowed_lateness(self, lateness: DurationLike | None) -> Windowed:
        """Choose how long after its end a window still accepts rows.

        The default is 0 for rows of a DataFrame. Panes of another operator may be late themselves: there the
        default is the allowed lateness of that operator, the longest one if there are several, so that no
        late pane and no retraction is dropped.

        Args:
            lateness: A duration, or None for no limit.
        """
        limit = None if lateness is None else duration(lateness, name="allowed_lateness")
        return replace(self, strategy=replace(self.strategy, allowed_lateness=limit), inherits_lateness=False)

    def discarding(self) -> Windowed:
        """Emit panes that contain only what is new since the previous pane."""
        return self._with_mode("discarding")

    def accumulating(self) -> Windowed:
        """Emit panes that contain everything so far. This is the default."""
        return self._with_mode("accumulating")

    def accumulating_and_retracting(self) -> Windowed:
        """Emit panes that contain everything so far, and retract the previous pane."""
        return self._with_mode("accumulating_and_retracting")

    def on_time(self, when: OnTime) -> Windowed:
        """Choose whether the on-time pane is emitted even if it contains nothing new.

        Args:
            when: ``"always"`` (the default) or ``"if_non_empty"``.
        """
        return self._with(replace(self.strategy, on_time=when))

    def closing(self, when: Closing) -> Windowed:
        """Choose whether a last pane is emitted when the window closes, even if it contains nothing new.

        Args:
            when: ``"always"`` or ``"if_non_empty"`` (the default).
        """
        return self._with(replace(self.strategy, closing=when))

    def drop_late(self, how: DropLate) -> Windowed:
        """Choose how late rows are recognized.

        Args:
            how: ``"by_window"`` (the default) drops a row from each window that has closed; ``"by_element"``
                also drops it from all windows if its event time is more than the allowed lateness behind
                the watermark.
        """
        return self._with(replace(self.strategy, drop_late=how))

    def idle(self, choice: Idle) -> Windowed:
        """Choose what happens to open windows when all inputs have become idle.

        Args:
            choice: With ``"hold"`` (the default) they stay open, and the operator does not forward IDLE
                before they have fired. With ``"close"`` they fire and close at once, as if the watermark
                had passed them; rows that arrive later for them are late.
        """
        return self._with(replace(self.strategy, idle=choice))

    def timestamp(self, which: Timestamp) -> Windowed:
        """Choose the output timestamp of a pane, which is its event time in the next operator.

        Args:
            which: ``"end_of_window"`` (the default) is the end of the window minus one microsecond.
                ``"earliest"`` and ``"latest"`` are the earliest and latest event time of the rows that are
                new in the pane and were not behind the watermark when they arrived.
        """
        return self._with(replace(self.strategy, timestamp=which))

    def only_updated(self) -> Windowed:
        """Skip panes whose values equal those of the previous pane."""
        return self._with(replace(self.strategy, only_updated=True))

    def on_change(self, value: OnChange) -> Windowed:
        """Choose the value of an accumulation that is added to a running query, in windows that are open.

        Args:
            value: ``"null"`` (the default) in every pane with rows from before the change, or
                ``"since_change"`` for the value of the rows since the change.
        """
        return self._with(replace(self.strategy, on_change=value))

    def agg(
        self,
        *unnamed: object,
        late: Keep = "count",
        invalid: Keep = "count",
        **accumulations: ColumnarAccumulation,
    ) -> Panes:
        """Aggregate the rows of each window.

        Args:
            *unnamed: Not supported: values have names, as in ``agg(bids=count())``.
            late: Whether rows that arrived too late are only counted (``"count"``) or also emitted
                (``"emit"``), as rows of kind ``late`` with their own values.
            invalid: The same for rows without a usable event time, as rows of kind ``invalid``.
            **accumulations: The values of the panes by name, such as ``total=sum("price")``; a column may be
                an expression, as in ``sum(F.col("price") * 2)``.

        Raises:
            InvalidArgument: A setting, a name or an accumulation is invalid.
        """
        check_accumulations(accumulations, unnamed)
        stream, plain = with_computed_columns(self.stream, accumulations)
        return self._panes(aggregated(stream, self.strategy, plain, late=late, invalid=invalid))

    def apply(
        self,
        function: Callable[[dict[str, Any], Range, Any], Any],
        schema: StructType | str,
        *,
        columns: Sequence[str] | None = None,
        frame: Literal["polars", "pandas"] = "polars",
    ) -> Panes:
        """Compute the rows of each pane with a function over all rows of the pane. **The slow path.**

        Every row is kept until its window closes, and every pane is a call in Python: use `agg` where an
        accumulation can do the work. A retraction repeats what the function returned before; the function is
        not called again. Late rows are counted.

        Args:
            function: Called as ``function(key, window, rows)`` with the key as a dict, the window as a
                `Range` of microseconds, and the rows as a DataFrame in the order of their event times. It
                returns a Polars or pandas DataFrame or a list of dicts, possibly empty.
            schema: The columns that the function returns, as a StructType or a DDL string such as
                ``"best bigint, bidder string"``.
            columns: The columns of the rows that are passed to the function; all but the key if omitted.
            frame: Whether the rows are passed as a Polars or a pandas DataFrame.

        Raises:
            InvalidArgument: A setting, a column or the schema is invalid.

        >>> import slackwater as sw
        >>> spark = sw.session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
        >>> bids = spark.sql("select timestamp'2024-01-01 00:00:05Z' as at, 7 as auction, 30 as price")
        >>> windowed = sw.stream(bids, event_time="at", watermark=sw.lag("5 seconds")).window(
        ...     sw.fixed("10 seconds")
        ... )
        >>> def spread(key, window, rows):
        ...     return [{"spread": rows["price"].max() - rows["price"].min()}]
        >>> windowed.apply(spread, "spread int").schema.names
        ['window', 'spread', 'pane']
        """
        dataflow = applied(self.stream, self.strategy, function, schema, columns=columns, frame=frame)
        return self._panes(dataflow)

    def cogroup(
        self,
        other: StreamOperations,
        *,
        left: Sequence[str],
        right: Sequence[str],
        how: CogroupHow | str = "cogroup",
        late: Keep = "count",
        invalid: Keep = "count",
    ) -> Panes:
        """Combine the rows of two streams with equal keys in the same windows.

        The lower of the two watermarks counts, and no window fires by the watermark until both are known.

        Args:
            other: The right side. Both streams need the same key, or no key. They may have different
                watermark keys; the panes have that of this stream.
            left: The columns of this stream in the panes.
            right: The columns of the other stream in the panes.
            how: With ``"cogroup"`` a pane has two lists of rows, ``left`` and ``right``. With ``"inner"``,
                ``"left"``, ``"right"`` or ``"full"`` it has one row per pair; a column of the right side
                whose name is already used gets the suffix ``_right``.
            late: Whether rows that arrived too late are only counted (``"count"``) or also emitted
                (``"emit"``), as rows of kind ``late`` in which the other side is empty or null.
            invalid: The same for rows without a usable event time, as rows of kind ``invalid``.

        Raises:
            InvalidArgument: The streams cannot be combined, or a setting or a column is invalid.
        """
        elements, strategy = elements_of("other", other), self.strategy
        if self.inherits_lateness:
            longest = longest_lateness((strategy.allowed_lateness, elements.lateness))
            strategy = replace(strategy, allowed_lateness=longest)
        if self.inherits_trigger:
            early = self.stream.fires_early or elements.fires_early
            strategy = replace(strategy, trigger=inherited_trigger(early=early))
        carried = {"left": left, "right": right}
        kind = join_kind(how, get_args(CogroupHow))
        dataflow = cogrouped(self.stream, elements, strategy, **carried, how=kind, late=late, invalid=invalid)
        return self._panes(dataflow)

    def _with(self, strategy: WindowingStrategy) -> Windowed:
        return replace(self, strategy=strategy)

    def _with_mode(self, mode: Mode) -> Windowed:
        return replace(self, strategy=replace(self.strategy, mode=mode), inherits_mode=False)

    def _panes(self, dataflow: PaneDataflow) -> Panes:
        # Early panes that the user did not ask for here must not be counted twice by the next operator.
        inherits = self.inherits_trigger and dataflow.spec.fires_early
        dataflow = replace(dataflow, inherits_trigger=inherits)
        return Panes(dataflow, retracts_as_input=inherits and self.inherits_mode)
