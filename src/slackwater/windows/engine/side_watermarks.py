"""The watermarks of an operator with two inputs."""

from __future__ import annotations

from collections.abc import Mapping

from slackwater.errors import InvalidArgument, WatermarkRegression
from slackwater.progress.values import DEFAULT_KEY
from slackwater.time import check_int64
from slackwater.windows.spec.operator_spec import SIDES, Side


def advance_sides(
    known: Mapping[Side, int], watermarks: Mapping[str, int], operator: str, key: str = DEFAULT_KEY
) -> dict[Side, int]:
    """The watermarks of both sides after an update; raises if one decreases.

    Args:
        known: the watermarks before the update, by side; a side without one has no watermark yet.
        watermarks: the new watermarks; a side may be left out.
        operator: the name of the operator in errors.
        key: the watermark key in errors.

    >>> advance_sides({"left": 3}, {"left": 5, "right": 4}, "join")
    {'left': 5, 'right': 4}
    """
    if unknown := sorted(watermarks.keys() - set(SIDES)):
        raise InvalidArgument(
            "watermarks", unknown[0], f"is not a side of a {operator}", fix='use "left" or "right"'
        )
    advanced = dict(known)
    for side in SIDES:
        if side in watermarks:
            watermark = check_int64(watermarks[side], f"watermarks[{side!r}]")
            if side in known and watermark < known[side]:
                raise WatermarkRegression(f"the {side} side of the {operator}", key, known[side], watermark)
            advanced[side] = watermark
    return advanced
