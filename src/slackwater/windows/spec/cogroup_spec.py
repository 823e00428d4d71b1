"""The specification of two keyed streams in the same windows: `CogroupSpec`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from slackwater.errors import InvalidArgument
from slackwater.windows.spec.operator_spec import SIDES, Side
from slackwater.windows.spec.spec_checks import check_choice, check_distinct, set_names
from slackwater.windows.spec.windowing_strategy import (
    PANE_COLUMNS,
    PANE_FIELDS,
    WINDOW_COLUMNS,
    WindowingStrategy,
)

CogroupHow = Literal["cogroup", "inner", "left", "right", "full"]

COGROUP_LATE_COLUMNS: Final = ("event_time", "side", "reason", *WINDOW_COLUMNS)
"""The columns of a late row of a cogroup in addition to its keys and the columns it carries."""


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

    >>> import slackwater as sw
    >>> spec = sw.CogroupSpec(
    ...     window=sw.fixed("10 seconds"),
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
        check_choice("how", self.how, get_args(CogroupHow))
        set_names(self, "left")
        set_names(self, "right")
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
        check_distinct("key", self.key, reserved, "is used twice in the panes; rename the column")
        if self.late == "emit":
            problem = "is used twice in the late rows; rename the column"
            check_distinct("key", self.key, COGROUP_LATE_COLUMNS, problem)
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


def _is_late_only(name: str) -> bool:
    """Whether only late rows have a column of this name, not panes."""
    return name in COGROUP_LATE_COLUMNS and name not in PANE_COLUMNS
