"""Specifications of the operators: `WindowSpec`, `CogroupSpec` and `JoinSpec`.

A specification is the whole configuration of an operator as a frozen value. It is validated once, when it is
built; it is hashable, can be pickled to a worker, and answers questions about the operator (``can_fold``,
``fires_once``, …), so that no other layer has to derive the answers from which options were set. The
operators in `slackwater.windows.engine` take a specification and process batches.

`WindowingStrategy` holds what windows of one and of two inputs have in common: where in event time elements
belong (window), when a pane is emitted (trigger), how long late elements are accepted (allowed lateness), and
what a pane contains (mode).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Final, Literal, Self, get_args

import polars as pl

from slackwater.errors import InvalidArgument
from slackwater.progress.values import DEFAULT_KEY
from slackwater.time import DurationLike, check_int64, duration
from slackwater.windows.accumulations.base import ColumnarAccumulation, check_column
from slackwater.windows.assigners import Global, Inherited, Sessions, Window
from slackwater.windows.checks import check_choice as _check_choice
from slackwater.windows.checks import check_lateness
from slackwater.windows.checks import check_type as _check_type
from slackwater.windows.triggers import DEFAULT_TRIGGER, Trigger, can_fire, describe, waits_for_end

Mode = Literal["discarding", "accumulating", "accumulating_and_retracting"]
OnTime = Literal["always", "if_non_empty"]
Closing = Literal["always", "if_non_empty"]
Timestamp = Literal["end_of_window", "earliest", "latest"]
DropLate = Literal["by_window", "by_element"]
Late = Literal["count", "emit"]
Idle = Literal["hold", "close"]
OnChange = Literal["null", "since_change"]
JoinHow = Literal["inner", "left", "right", "full", "semi", "anti"]
JoinIdle = Literal["hold", "proceed"]
CogroupHow = Literal["cogroup", "inner", "left", "right", "full"]
Side = Literal["left", "right"]

SIDES: Final[tuple[Side, Side]] = ("left", "right")
WINDOW_COLUMNS: Final = ("window_start", "window_end")
"""The columns of a pane that hold the bounds of its window."""
PANE_FIELDS: Final = (
    "timing", "index", "on_time_index", "is_first", "is_last", "retraction", "timestamp",
)  # fmt: skip
"""The columns of a pane that describe the pane itself."""
PANE_COLUMNS: Final = (*WINDOW_COLUMNS, *PANE_FIELDS)
"""The columns of a pane in addition to its keys and values."""
COGROUP_LATE_COLUMNS: Final = ("event_time", "side", "reason", *WINDOW_COLUMNS)
"""The columns of a late row of a cogroup in addition to its keys and the columns it carries."""
REACH: Final = 2**62
"""Times and bounds of a join stay within ±146,000 years of 1970, so that their sums never overflow."""


class OperatorSpec:
    """The questions that every specification answers; these are the answers of an operator without windows.

    >>> JoinSpec(on=("auction",), before=0, after=5).can_fold
    False
    """

    @property
    def can_fold(self) -> bool:
        """Whether rows can be aggregated to partials before the operator's step, where there is no state."""
        return False

    @property
    def fires_once(self) -> bool:
        """Whether a key never gets a second pane for a window."""
        return False

    @property
    def retracts(self) -> bool:
        """Whether the output contains retractions of earlier panes."""
        return False

    @property
    def takes_retractions(self) -> bool:
        """Whether rows of the input can be retractions of earlier rows."""
        return False

    @property
    def inherits(self) -> bool:
        """Whether the operator keeps the windows of the incoming panes."""
        return False

    @property
    def gap_column(self) -> str | None:
        """The column with the session gap of each row, if there is one."""
        return None


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
class WindowingStrategy(OperatorSpec):
    """The settings that `WindowSpec` and `CogroupSpec` have in common.

    Args:
        window: where in event time elements belong.
        key: the key columns; a single name, or several.
        trigger: when a pane is emitted.
        mode: whether a pane contains only what is new since the last pane (``"discarding"``), everything so
            far (``"accumulating"``), or everything so far after a retraction of the last pane
            (``"accumulating_and_retracting"``).
        allowed_lateness: microseconds after its end for which a window accepts elements; None for no limit.
        on_time: whether the pane at the end of the window is emitted even if nothing is new.
        closing: whether a last pane is emitted even if nothing is new.
        timestamp: the output timestamp of a pane: the end of the window minus 1, or the earliest or latest
            event time of the elements that are new in the pane.
        drop_late: whether an element is late for one window or for all of its windows.
        late: whether late rows are only counted or also returned.
        idle: what happens to open windows when all inputs become idle: they stay open and hold the
            watermark (``"hold"``), or they fire and close (``"close"``).
        only_updated: suppress a pane whose values equal those of the last one.
        allow_data_loss: permit a trigger that can finish, after which its window drops all elements.
        watermark_key: the key of the watermark that drives the windows.
        on_change: the value of an accumulation that was added to a running query, in a pane with elements
            from before the change: null, or the value of the elements since the change.

    Raises:
        InvalidArgument: a value is invalid, or a combination is not supported.

    >>> from slackwater.windows import fixed, sessions
    >>> WindowingStrategy(window=fixed("10 seconds"), key="auction").key
    ('auction',)
    >>> WindowingStrategy(window=sessions("30 minutes"), key=())
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: key = (): session windows need a key; name at least one key column
    """

    window: Window
    key: Sequence[str]
    trigger: Trigger = DEFAULT_TRIGGER
    mode: Mode = "accumulating"
    allowed_lateness: int | None = 0
    on_time: OnTime = "always"
    closing: Closing = "if_non_empty"
    timestamp: Timestamp = "end_of_window"
    drop_late: DropLate = "by_window"
    late: Late = "count"
    idle: Idle = "hold"
    only_updated: bool = False
    allow_data_loss: bool = False
    watermark_key: str = DEFAULT_KEY
    on_change: OnChange = "null"

    def __post_init__(self) -> None:
        _check_type("window", self.window, Window, 'a window, as in fixed("10 seconds")')
        _check_type("trigger", self.trigger, Trigger, "a trigger, as in after_watermark()")
        _set_names(self, "key")
        choices = (
            ("mode", Mode), ("on_time", OnTime), ("closing", Closing), ("timestamp", Timestamp),
            ("drop_late", DropLate), ("late", Late), ("idle", Idle), ("on_change", OnChange),
        )  # fmt: skip
        for name, allowed in choices:
            _check_choice(name, getattr(self, name), get_args(allowed))
        self._check_combination()

    @classmethod
    def from_strategy(cls, strategy: WindowingStrategy, **settings: Any) -> Self:
        """A specification with the common settings of another one, some of them replaced or added.

        Args:
            strategy: where the common settings are taken from.
            settings: the remaining fields of the specification, and common settings to replace.

        >>> from slackwater.windows import count, fixed
        >>> strategy = WindowingStrategy(window=fixed("10 seconds"), key="auction", mode="discarding")
        >>> WindowSpec.from_strategy(strategy, accumulations={"bids": count()}, event_time="ts").mode
        'discarding'
        """
        common = {each.name: getattr(strategy, each.name) for each in fields(WindowingStrategy)}
        return cls(**(common | settings))

    @classmethod
    def from_arguments(cls, spec: Self | None, settings: Mapping[str, Any]) -> Self:
        """The specification that a constructor was given, as one value or as keyword arguments."""
        if spec is None:
            return cls(**settings)
        _check_type("spec", spec, cls, f"a {cls.__name__}")
        if settings:
            raise InvalidArgument(
                "settings",
                sorted(settings),
                "are given in addition to a specification",
                fix="use dataclasses.replace(spec, …) to change a setting",
            )
        return spec

    @property
    def inherits(self) -> bool:
        """Whether the operator keeps the windows of the incoming panes."""
        return isinstance(self.window, Inherited)

    @property
    def gap_column(self) -> str | None:
        """The column with the session gap of each row, if there is one."""
        return self.window.column if isinstance(self.window, Sessions) else None

    @property
    def retracts(self) -> bool:
        """Whether the output contains retractions of earlier panes."""
        return self.mode == "accumulating_and_retracting"

    @property
    def fires_once(self) -> bool:
        """Whether a key never gets a second pane for a window.

        Every pane then has index 0 and on-time index 0, and is both the first and the last of its window.
        This holds if the trigger cannot fire before the window is complete and the step that completes the
        window also purges it, or if the trigger cannot fire at all, so that only the purge emits a pane.

        >>> from slackwater.windows import every, fixed
        >>> WindowingStrategy(window=fixed("10 seconds"), key=()).fires_once
        True
        >>> WindowingStrategy(window=fixed("10 seconds"), key=(), allowed_lateness=5).fires_once
        False
        >>> WindowingStrategy(window=fixed("10 seconds"), key=(), trigger=every(count=1)).fires_once
        False
        """
        if not can_fire(self.trigger):
            return True
        return self.allowed_lateness == 0 and waits_for_end(self.trigger)

    def _check_combination(self) -> None:
        check_lateness("allowed_lateness", self.allowed_lateness)
        if isinstance(self.window, Sessions) and not self.key:
            raise InvalidArgument("key", (), "session windows need a key", fix="name at least one key column")
        if self.idle == "close" and (self.allowed_lateness is None or isinstance(self.window, Global)):
            raise InvalidArgument(
                "idle",
                self.idle,
                "cannot close windows that stay open until the end of the input",
                fix="give the window an end and a finite allowed lateness",
            )
        if self.only_updated and self.mode == "discarding":
            raise InvalidArgument(
                "only_updated",
                self.only_updated,
                "cannot compare discarding panes, because each contains different elements",
                fix='use mode="accumulating"',
            )
        if self.trigger.can_finish and not self.allow_data_loss:
            raise InvalidArgument(
                "trigger",
                describe(self.trigger),
                "can finish, and a finished trigger drops all later elements of its window",
                fix="wrap it in repeatedly(…), give after_watermark a late=…, or set allow_data_loss=True",
            )


@dataclass(frozen=True, kw_only=True)
class WindowSpec(WindowingStrategy):
    """The configuration of a `WindowedOperator`: windows, a trigger and accumulations over a keyed stream.

    Args:
        accumulations: the values of a pane, by column name.
        event_time: the column with the event time of a row, in microseconds since 1970.
        retractions: the boolean column that marks rows which retract an earlier row, if there is one.
        key: the key columns; none by default.

    The other settings are those of `WindowingStrategy`.

    >>> from slackwater.windows import count, fixed
    >>> spec = WindowSpec(window=fixed("10 seconds"), accumulations={"bids": count()}, event_time="ts")
    >>> spec.can_fold, spec.fires_once
    (True, True)
    >>> WindowSpec(window=fixed("10 seconds"), accumulations={}, event_time="ts")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: accumulations = {}: is empty; give at least one, as in {"n": count()}
    """

    accumulations: Mapping[str, ColumnarAccumulation]
    event_time: str
    retractions: str | None = None
    key: Sequence[str] = ()

    def __post_init__(self) -> None:
        _check_type("accumulations", self.accumulations, Mapping, 'a mapping, as in {"n": count()}')
        _check_type("event_time", self.event_time, str, 'a column name, as in event_time="ts"')
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
        _check_distinct(
            "name",
            (*self.key, *self.accumulations),
            PANE_COLUMNS,
            "is used twice in the panes; rename the key column or the accumulation",
        )

    @property
    def can_fold(self) -> bool:
        """Whether rows can be aggregated to partials before the step, where the watermark is not known.

        This is not possible where elements have to be handled one by one: session windows, lateness by
        element, late rows that are emitted, and output timestamps that depend on the watermark.

        >>> from slackwater.windows import count, sessions
        >>> counts = {"accumulations": {"n": count()}, "key": ("auction",), "event_time": "ts"}
        >>> WindowSpec(window=sessions("30 minutes"), **counts).can_fold
        False
        """
        return self.prevents_folding is None

    @property
    def prevents_folding(self) -> str | None:
        """The setting because of which `can_fold` is False; None if it is True."""
        if isinstance(self.window, Sessions):
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

        >>> from slackwater.windows import count, fixed
        >>> spec = WindowSpec(window=fixed("10 seconds"), accumulations={"n": count()}, event_time="ts")
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


@dataclass(frozen=True, kw_only=True)
class CogroupSpec(WindowingStrategy):
    """The configuration of a `MergeOperator`: two keyed streams in the same windows.

    Args:
        left: the columns to carry from the left side.
        right: the columns to carry from the right side.
        left_time: the event-time column of the left side.
        right_time: the event-time column of the right side.
        how: ``"cogroup"`` gives two lists of rows per pane; the others give one row per pair.
        retractions: the boolean column that marks rows which retract an earlier row of their side, if there
            is one; a batch without this column contains no retractions.

    The other settings are those of `WindowingStrategy`.

    >>> from slackwater.windows import fixed
    >>> spec = CogroupSpec(
    ...     window=fixed("10 seconds"),
    ...     key="id",
    ...     left="name",
    ...     right=("name", "price"),
    ...     how="inner",
    ...     left_time="ts",
    ...     right_time="ts",
    ... )
    >>> spec.value_columns
    ('name', 'name_right', 'price')
    """

    left: Sequence[str]
    right: Sequence[str]
    left_time: str
    right_time: str
    how: CogroupHow = "cogroup"
    retractions: str | None = None
    carried_names: Mapping[tuple[Side, str], str] = field(init=False, repr=False, compare=False)
    """The name in the output of each carried column; a cogroup keeps the names of each side apart."""

    def __post_init__(self) -> None:
        _check_choice("how", self.how, get_args(CogroupHow))
        _set_names(self, "left")
        _set_names(self, "right")
        super().__post_init__()
        if self.inherits:
            raise InvalidArgument(
                "window",
                self.window,
                "cannot be inherited, because the two inputs have no common windows",
                fix='use a window such as fixed("10 seconds")',
            )
        if self.gap_column is not None:
            raise InvalidArgument(
                "gap",
                self.gap_column,
                "cannot be a column of a cogroup, whose inputs have different columns",
                fix='use one gap for all rows: sessions("30 minutes")',
            )
        if self.takes_retractions and self.mode == "discarding":
            raise InvalidArgument(
                "mode",
                self.mode,
                "cannot process retractions, because a retraction may take back a row of an earlier pane",
                fix='use mode="accumulating" or "accumulating_and_retracting"',
            )
        reserved = (*PANE_COLUMNS, *(SIDES if self.how == "cogroup" else ()))
        _check_distinct("key", self.key, reserved, "is used twice in the panes; rename the column")
        if self.late == "emit":
            problem = "is used twice in the late rows; rename the column"
            _check_distinct("key", self.key, COGROUP_LATE_COLUMNS, problem)
        object.__setattr__(self, "carried_names", self._named_carried())

    @property
    def takes_retractions(self) -> bool:
        """Whether rows of the input can be retractions of earlier rows."""
        return self.retractions is not None

    @property
    def carried(self) -> dict[Side, Sequence[str]]:
        """The columns that each side carries."""
        return {"left": self.left, "right": self.right}

    @property
    def times(self) -> dict[Side, str]:
        """The event-time column of each side."""
        return {"left": self.left_time, "right": self.right_time}

    @property
    def value_columns(self) -> tuple[str, ...]:
        """The columns of a pane that hold its values: two lists, or the carried columns of a pair."""
        return SIDES if self.how == "cogroup" else tuple(self.carried_names.values())

    @property
    def pane_columns(self) -> tuple[str, ...]:
        """All columns of a pane, in order."""
        return (*self.key, *WINDOW_COLUMNS, *self.value_columns, *PANE_FIELDS)

    @property
    def signature(self) -> str:
        """The settings that saved state depends on, in addition to those of its windows."""
        return f"{self.how} key={self.key!r} left={self.left!r} right={self.right!r}"

    def _named_carried(self) -> Mapping[tuple[Side, str], str]:
        joins = self.how != "cogroup"
        taken: set[str] = set()
        if joins:
            taken = {*self.key, *PANE_COLUMNS, *(COGROUP_LATE_COLUMNS if self.late == "emit" else ())}
        names: dict[tuple[Side, str], str] = {}
        for side, columns in self.carried.items():
            for name in columns:
                chosen = f"{name}_right" if joins and side == "right" and name in taken else name
                if (side, name) in names or chosen in taken:
                    where = "rows" if not joins else "late rows" if _is_late_only(chosen) else "pairs"
                    raise InvalidArgument(
                        side, name, f"is used twice in the {where}", fix="rename the column"
                    )
                names[side, name] = chosen
                if joins:
                    taken.add(chosen)
        return names


@dataclass(frozen=True, kw_only=True)
class JoinSpec(OperatorSpec):
    """The configuration of a `JoinOperator`: a time-bounded join of two streams (rules J1 to J7).

    Two rows match if their ``on`` columns are equal and ``left − before ≤ right ≤ left + after``, both
    inclusive. Both sides are buffered, and the watermark of the *other* side bounds each buffer: a row is
    removed once no future row can match it. There is no clock: by default a silent side keeps the rows of the
    other one buffered until it sends a watermark or ends.

    Args:
        on: the key columns, which both sides have.
        before: how many microseconds earlier than the left row the right row may be.
        after: how many microseconds later. A bound may be negative if the range is not empty:
            ``before=-2, after=5`` matches right rows two to five microseconds later.
        how: which sides are padded with nulls where nothing matched (``"left"``, ``"right"``, ``"full"``), or
            which left rows are emitted, without columns of the right side: those with a match, at their first
            match (``"semi"``), or those without one, once no match is possible any more (``"anti"``).
        left_time: the event-time column of the left side.
        right_time: the event-time column of the right side.
        suffixes: appended to the columns that both sides have and that are not keys.
        late: whether late rows are only counted or also returned.
        idle: whether an idle side holds the other one back (``"hold"``) or counts as being as far as the
            other side (``"proceed"``), so that rows that it sends later below that are late.
        condition: a further condition for a match: a boolean Polars expression over the columns of a pair,
            under their names in the output of an inner join, or the same as SQL text. Null does not match.
            The expression must be deterministic.
        left_retractions: the boolean column that marks left rows which retract an equal earlier row.
        right_retractions: the same for the right side.
        left_lateness: microseconds that rows of the left side may be behind its watermark; None for no limit.
        right_lateness: the same for the right side.
        left_keys: further watermark keys of the left side, each with its event-time column.
        right_keys: the same for the right side.

    Raises:
        InvalidArgument: a value is invalid, or the bounds exclude every match.

    >>> JoinSpec(on=("auction",), before=0, after=10, how="left").after
    10
    >>> JoinSpec(on=("auction",), before=-5, after=2)
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: after = 2: ends before the range begins at 5; before + after must \
not be negative
    """

    on: tuple[str, ...]
    before: int
    after: int
    how: JoinHow = "inner"
    left_time: str = "ts"
    right_time: str = "ts"
    suffixes: tuple[str, str] = ("_left", "_right")
    late: Late = "count"
    idle: JoinIdle = "hold"
    condition: pl.Expr | str | None = field(default=None, compare=False)
    left_retractions: str | None = None
    right_retractions: str | None = None
    left_lateness: int | None = 0
    right_lateness: int | None = 0
    left_keys: tuple[tuple[str, str], ...] = ()
    right_keys: tuple[tuple[str, str], ...] = ()
    predicate: pl.Expr | None = field(init=False, default=None, compare=False)
    """The condition as an expression."""
    condition_text: str = field(init=False, default="")
    """The condition as text, by which specifications are compared: expressions have no equality."""

    def __post_init__(self) -> None:
        _check_type("on", self.on, tuple, 'a tuple of column names, as in on=("auction",)')
        for name in ("before", "after"):
            bound = check_int64(getattr(self, name), name)
            if not -REACH < bound < REACH:
                raise InvalidArgument(name, bound, "is longer than 146,000 years", fix="use a shorter bound")
        if self.before + self.after < 0:
            raise InvalidArgument(
                "after",
                self.after,
                f"ends before the range begins at {-self.before}",
                fix="before + after must not be negative",
            )
        _check_choice("how", self.how, get_args(JoinHow))
        _check_choice("late", self.late, get_args(Late))
        _check_choice("idle", self.idle, get_args(JoinIdle))
        for side in SIDES:
            check_lateness(f"{side}_lateness", self.lateness(side))
        if self.left_time in self.on or self.right_time in self.on:
            raise InvalidArgument(
                "on",
                self.on,
                "contains an event-time column",
                fix="use before=0, after=0 to match equal event times",
            )
        if self.condition is not None:
            object.__setattr__(self, "predicate", _expression(self.condition))
            object.__setattr__(self, "condition_text", str(self.predicate))

    def pads(self, side: Side) -> bool:
        """Whether rows of that side are emitted with nulls when nothing matched them.

        >>> JoinSpec(on=(), before=0, after=0, how="left").pads("right")
        False
        """
        return self.how in (side, "full")

    def tracks(self, side: Side) -> bool:
        """Whether the operator has to remember which rows of that side have a match.

        >>> JoinSpec(on=(), before=0, after=0, how="semi").tracks("left")
        True
        """
        return self.pads(side) or (side == "left" and self.selects_left)

    @property
    def selects_left(self) -> bool:
        """Whether the output consists of left rows, without columns of the right side."""
        return self.how in ("semi", "anti")

    @property
    def forwarding(self) -> tuple[Side, ...]:
        """The sides whose watermarks are forwarded: those that have columns in the output."""
        return ("left",) if self.selects_left else SIDES

    @property
    def takes_retractions(self) -> bool:
        """Whether rows of a side can be retractions of earlier rows."""
        return self.left_retractions is not None or self.right_retractions is not None

    @property
    def retracts(self) -> bool:
        """Whether the output contains retractions: it does if a side does."""
        return self.takes_retractions

    @property
    def output_retractions(self) -> str | None:
        """The output column that marks retractions: the name that the first side with retractions uses."""
        return self.left_retractions if self.left_retractions is not None else self.right_retractions

    def retractions(self, side: Side) -> str | None:
        """The column of a side that marks retractions."""
        return self.left_retractions if side == "left" else self.right_retractions

    def lateness(self, side: Side) -> int | None:
        """How far rows of a side may be behind its watermark; None for no limit."""
        return self.left_lateness if side == "left" else self.right_lateness

    def keys(self, side: Side) -> tuple[tuple[str, str], ...]:
        """The further watermark keys of a side, each with its event-time column."""
        return self.left_keys if side == "left" else self.right_keys

    @property
    def times(self) -> dict[Side, str]:
        """The event-time column of each side."""
        return {"left": self.left_time, "right": self.right_time}

    @property
    def signature(self) -> str:
        """The settings that saved state depends on; state with another signature is rejected.

        >>> JoinSpec(on=("k",), before=0, after=5).signature
        "inner join on ('k',), ts - 0 <= ts <= ts + 5"
        """
        further = "".join(
            f", {name} {value}"
            for name, value in (
                ("where", self.condition_text),
                ("left retractions", self.left_retractions),
                ("right retractions", self.right_retractions),
                ("left keys", self.left_keys),
                ("right keys", self.right_keys),
            )
            if value
        )
        return (
            f"{self.how} join on {self.on}, "
            f"{self.left_time} - {self.before} <= {self.right_time} <= {self.left_time} + {self.after}"
            f"{further}"
        )

    def identity(self) -> str:
        """The former name of `signature`."""
        warnings.warn("JoinSpec.identity() is deprecated; use JoinSpec.signature", DeprecationWarning, 2)
        return self.signature


def time_bounded_join(
    *on: str,
    before: DurationLike,
    after: DurationLike,
    how: JoinHow = "inner",
    left_time: str = "ts",
    right_time: str = "ts",
    late: Late = "count",
    idle: JoinIdle = "hold",
    condition: pl.Expr | str | None = None,
) -> JoinSpec:
    """A `JoinSpec` with its bounds written as durations.

    Args:
        on: the key columns, which both sides have.
        before: how much earlier than the left row the right row may be.
        after: how much later than the left row the right row may be.
        how: which sides are padded with nulls where nothing matched.
        left_time: the event-time column of the left side.
        right_time: the event-time column of the right side.
        late: whether late rows are only counted or also returned.
        idle: whether an idle side holds the other one back or counts as being as far as the other side.
        condition: a further condition for a match, as a Polars expression or SQL text.

    >>> time_bounded_join("auction", before="0 seconds", after="10 seconds").after
    10000000
    """
    return JoinSpec(
        on=on,
        before=duration(before, name="before"),
        after=duration(after, name="after"),
        how=how,
        left_time=left_time,
        right_time=right_time,
        late=late,
        idle=idle,
        condition=condition,
    )


def longest_lateness(several: Iterable[int | None]) -> int | None:
    """The longest of several latenesses, of which None has no limit; 0 if there are none.

    >>> longest_lateness([0, 5]), longest_lateness([5, None]), longest_lateness([])
    (5, None, 0)
    """
    known = list(several)
    return None if None in known else max((one for one in known if one is not None), default=0)


def _expression(condition: object) -> pl.Expr:
    if isinstance(condition, str):
        try:
            return pl.sql_expr(condition)
        except pl.exceptions.PolarsError as error:
            raise InvalidArgument(
                "condition",
                condition,
                f"is not a valid SQL expression ({error})",
                fix='write a comparison of columns, as in "price_right >= price_left"',
            ) from None
    if not isinstance(condition, pl.Expr):
        raise InvalidArgument(
            "condition",
            condition,
            f"has type {type(condition).__name__}",
            fix='give a Polars expression or SQL text, as in "price_right >= price_left"',
        )
    return condition


def _set_names(spec: object, name: str) -> None:
    """Store a field of column names as a tuple, also if a single name or a list was given."""
    given = getattr(spec, name)
    _check_type(name, given, Sequence, f'column names, as in {name}=("auction",)')
    names = (given,) if isinstance(given, str) else tuple(given)
    for column in names:
        check_column(column, name)
    object.__setattr__(spec, name, names)


def _check_distinct(argument: str, names: Sequence[str], reserved: Iterable[str], problem: str) -> None:
    for number, name in enumerate(names):
        if name in names[:number] or name in reserved:
            raise InvalidArgument(argument, name, problem)


def _is_late_only(name: str) -> bool:
    """Whether only late rows have a column of this name, not panes."""
    return name in COGROUP_LATE_COLUMNS and name not in PANE_COLUMNS
