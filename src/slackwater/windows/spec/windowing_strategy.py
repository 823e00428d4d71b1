"""The settings that windows of one and of two inputs have in common.

They are where in event time elements belong (window), when a pane is emitted (trigger), how long late
elements are accepted (allowed lateness), and what a pane contains (mode).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Final, Literal, Self, get_args

from slackwater.errors import InvalidArgument
from slackwater.progress.values import DEFAULT_KEY
from slackwater.windows.assigners import Calendar, Global, Inherited, Sessions, Window
from slackwater.windows.spec.operator_spec import Late, OperatorSpec
from slackwater.windows.spec.spec_checks import check_choice, check_lateness, check_type, set_names
from slackwater.windows.triggers import (
    DEFAULT_TRIGGER,
    Trigger,
    can_fire,
    describe,
    fires_early,
    waits_for_end,
)

Mode = Literal["discarding", "accumulating", "accumulating_and_retracting"]
OnTime = Literal["always", "if_non_empty"]
Closing = Literal["always", "if_non_empty"]
Timestamp = Literal["end_of_window", "earliest", "latest"]
DropLate = Literal["by_window", "by_element"]
Idle = Literal["hold", "close"]
OnChange = Literal["null", "since_change"]

WINDOW_COLUMNS: Final = ("window_start", "window_end")
"""The columns of a pane that hold the bounds of its window."""
PANE_FIELDS: Final = (
    "timing", "index", "on_time_index", "is_first", "is_last", "retraction", "timestamp",
)  # fmt: skip
"""The columns of a pane that describe the pane itself."""
PANE_COLUMNS: Final = (*WINDOW_COLUMNS, *PANE_FIELDS)
"""The columns of a pane in addition to its keys and values."""


def _trigger_like(given: object) -> str:
    """The trigger that a value of another type probably stands for."""
    if isinstance(given, str | timedelta):
        return f"a trigger, as in after_watermark(early=every(duration={given!r}), late=every(count=1))"
    if isinstance(given, int):
        return f"a trigger, as in after_watermark(early=every(count={given}), late=every(count=1))"
    return "a trigger, as in after_watermark()"


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
        check_type("window", self.window, Window, 'a window, as in fixed("10 seconds")')
        check_type("trigger", self.trigger, Trigger, _trigger_like(self.trigger))
        set_names(self, "key")
        choices = (
            ("mode", Mode), ("on_time", OnTime), ("closing", Closing), ("timestamp", Timestamp),
            ("drop_late", DropLate), ("late", Late), ("idle", Idle), ("on_change", OnChange),
        )  # fmt: skip
        for name, allowed in choices:
            check_choice(name, getattr(self, name), get_args(allowed))
        self._check_combination()

    @classmethod
    def from_strategy(cls, strategy: WindowingStrategy, **settings: Any) -> Self:
        """A specification with the common settings of another one, some of them replaced or added.

        Args:
            strategy: where the common settings are taken from.
            settings: the remaining fields of the specification, and common settings to replace.

        >>> from slackwater.windows import WindowSpec, count, fixed
        >>> strategy = WindowingStrategy(window=fixed("10 seconds"), key="auction", mode="discarding")
        >>> WindowSpec.from_strategy(strategy, accumulations={"bids": count()}, event_time="ts").mode
        'discarding'
        """
        common = {each.name: getattr(strategy, each.name) for each in fields(WindowingStrategy)}
        return cls(**(common | settings))

    @classmethod
    def from_arguments(cls, spec: Self | None, settings: Mapping[str, Any]) -> Self:
        """The specification that a constructor was given, as one value or as keyword arguments.

        Args:
            spec: the whole specification; None if it is given as keyword arguments.
            settings: the keyword arguments.
        """
        if spec is None:
            return cls(**settings)
        check_type("spec", spec, cls, f"a {cls.__name__}")
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
    def ttl(self) -> int | None:
        """How long the state of a key is kept after its latest element; None if keys do not expire."""
        return self.window.ttl if isinstance(self.window, Global) else None

    @property
    def time_limits(self) -> tuple[int, int] | None:
        """The first and the last event time that has a window, if not every time has one."""
        return self.window.limits if isinstance(self.window, Calendar) else None

    @property
    def gap_column(self) -> str | None:
        """The column with the session gap of each row, if there is one."""
        return self.window.column if isinstance(self.window, Sessions) else None

    @property
    def retracts(self) -> bool:
        """Whether the output contains retractions of earlier panes."""
        return self.mode == "accumulating_and_retracting"

    @property
    def fires_early(self) -> bool:
        """Whether panes can be emitted before their window is complete."""
        return fires_early(self.trigger)

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
        if self.ttl is not None:  # a key that has expired begins anew
            return False
        if not can_fire(self.trigger):
            return True
        return self.allowed_lateness == 0 and waits_for_end(self.trigger)

    def _check_combination(self) -> None:
        check_lateness("allowed_lateness", self.allowed_lateness)
        if self.ttl is not None and self.allowed_lateness is None:
            raise InvalidArgument(
                "ttl",
                self.ttl,
                "cannot be combined with unlimited allowed lateness",
                fix="use a finite allowed lateness, also in the operator before this one",
            )
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
