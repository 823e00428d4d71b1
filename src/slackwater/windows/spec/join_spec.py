"""The specification of the time-bounded join: `JoinSpec`."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

import polars as pl

from slackwater.errors import InvalidArgument
from slackwater.time import DurationLike, check_int64, duration
from slackwater.windows.spec.operator_spec import REACH, SIDES, Late, Side
from slackwater.windows.spec.spec_checks import check_choice, join_kind
from slackwater.windows.spec.two_sided_spec import JoinIdle, TwoSidedSpec

JoinHow = Literal["inner", "left", "right", "full", "semi", "anti"]


@dataclass(frozen=True, kw_only=True)
class JoinSpec(TwoSidedSpec):
    """The configuration of a `JoinOperator`: a time-bounded join of two streams (rules J1 to J7).

    Two rows match if their ``on`` columns are equal and ``left − before ≤ right ≤ left + after``, both
    inclusive. Both sides are buffered, and the watermark of the *other* side bounds each buffer: a row is
    removed once no future row can match it. There is no clock: by default a silent side keeps the rows of the
    other one buffered until it sends a watermark or ends.

    Args:
        before: how many microseconds earlier than the left row the right row may be.
        after: how many microseconds later. A bound may be negative if the range is not empty:
            ``before=-2, after=5`` matches right rows two to five microseconds later.
        how: which sides are padded with nulls where nothing matched (``"left"``, ``"right"``, ``"full"``), or
            which left rows are emitted, without columns of the right side: those with a match, at their first
            match (``"semi"``), or those without one, once no match is possible any more (``"anti"``).
        condition: a further condition for a match: a boolean Polars expression over the columns of a pair,
            under their names in the output of an inner join, or the same as SQL text. Null does not match.
            The expression must be deterministic.
        right_keys: further watermark keys of the right side, each with its event-time column.

    The other settings are those of `TwoSidedSpec`.

    Raises:
        InvalidArgument: a value is invalid, or the bounds exclude every match.

    >>> import slackwater as sw
    >>> sw.JoinSpec(on=("auction",), before=0, after=10, how="left").after
    10
    >>> sw.JoinSpec(on=("auction",), before=-5, after=2)
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: after = 2: ends before the range begins at 5; before + after must \
not be negative
    """

    equal_times: ClassVar = "before=0, after=0"
    before: int
    after: int
    how: JoinHow = "inner"
    condition: pl.Expr | str | None = field(default=None, compare=False)
    right_keys: tuple[tuple[str, str], ...] = ()
    predicate: pl.Expr | None = field(init=False, default=None, compare=False)
    """The condition as an expression."""
    condition_text: str = field(init=False, default="")
    """The condition as text, by which specifications are compared: expressions have no equality."""

    def __post_init__(self) -> None:
        super().__post_init__()
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
        check_choice("how", self.how, get_args(JoinHow))
        if self.condition is not None:
            object.__setattr__(self, "predicate", _expression(self.condition))
            object.__setattr__(self, "condition_text", str(self.predicate))

    def pads(self, side: Side) -> bool:
        """Whether rows of that side are emitted with nulls when nothing matched them.

        Args:
            side: "left" or "right".

        >>> import slackwater as sw
        >>> sw.JoinSpec(on=(), before=0, after=0, how="left").pads("right")
        False
        """
        return self.how in (side, "full")

    def tracks(self, side: Side) -> bool:
        """Whether the operator has to remember which rows of that side have a match.

        Args:
            side: "left" or "right".

        >>> import slackwater as sw
        >>> sw.JoinSpec(on=(), before=0, after=0, how="semi").tracks("left")
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

    def keys(self, side: Side) -> tuple[tuple[str, str], ...]:
        """The further watermark keys of a side that are forwarded, each with its event-time column."""
        return self.left_keys if side == "left" else self.right_keys

    @property
    def signature(self) -> str:
        """The settings that saved state depends on; state with another signature is rejected.

        >>> import slackwater as sw
        >>> sw.JoinSpec(on=("k",), before=0, after=5).signature
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
    how: JoinHow | str = "inner",
    left_time: str = "ts",
    right_time: str = "ts",
    late: Late = "count",
    idle: JoinIdle = "hold",
    condition: pl.Expr | str | None = None,
) -> JoinSpec:
    """Create the `JoinSpec` of a time-bounded join, with its bounds as durations.

    Args:
        on: the key columns, which both sides have.
        before: how much earlier than the left row the right row may be.
        after: how much later than the left row the right row may be.
        how: which sides are padded with nulls where nothing matched, or ``"semi"`` or ``"anti"``; also in the
            other spellings that Spark accepts, such as ``"leftOuter"``.
        left_time: the event-time column of the left side.
        right_time: the event-time column of the right side.
        late: whether late rows are only counted or also returned.
        idle: whether an idle side holds the other one back or counts as being as far as the other side.
        condition: a further condition for a match, as a Polars expression or SQL text.

    >>> import slackwater as sw
    >>> sw.time_bounded_join("auction", before="0 seconds", after="10 seconds").after
    10000000
    """
    return JoinSpec(
        on=on,
        before=duration(before, name="before"),
        after=duration(after, name="after"),
        how=join_kind(how, get_args(JoinHow)),
        left_time=left_time,
        right_time=right_time,
        late=late,
        idle=idle,
        condition=condition,
    )


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
