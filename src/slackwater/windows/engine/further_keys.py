"""Further watermark keys of a side, in addition to the one that drives the join (rule J6 for several keys).

A join forwards each of them, held at the earliest time of that key among the buffered rows of the side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from slackwater._suggestions import available
from slackwater.errors import InvalidArgument, WatermarkRegression
from slackwater.time import check_int64
from slackwater.windows.engine.join_buffers import KeyState, SideBuffer
from slackwater.windows.spec.operator_spec import Side

Keys = tuple[tuple[str, str], ...]


def received_keys(
    side: Side, keys: Keys, states: tuple[KeyState, ...], watermarks: Mapping[str, int]
) -> tuple[KeyState, ...]:
    """The keys of a side with the watermarks that it sent in a step; raises if one decreases.

    >>> [key] = received_keys("left", (("paid", "paid_at"),), (), {"paid": 5})
    >>> key.received, key.forwarded
    (5, None)
    """
    names = [key for key, _ in keys]
    if unknown := sorted(watermarks.keys() - set(names)):
        raise InvalidArgument(
            "key_watermarks",
            unknown[0],
            f"is not a further watermark key of the {side} side",
            fix=available(unknown[0], names, lead="use one of ") if names else f"add it to {side}_keys",
        )
    received = []
    for name, state in zip(names, states or (KeyState(),) * len(names), strict=True):
        value = state.received
        if name in watermarks:
            value = check_int64(watermarks[name], name)
            if state.received is not None and value < state.received:
                raise WatermarkRegression(f"the {side} side of the join", name, state.received, value)
        received.append(KeyState(value, state.forwarded))
    return tuple(received)


def forwarded_keys(
    received: tuple[KeyState, ...], buffers: Sequence[tuple[SideBuffer, int | None]]
) -> tuple[KeyState, ...]:
    """The keys with the watermark that is forwarded: held at the earliest buffered row, never lower.

    Args:
        received: the keys with the watermarks that the side sent.
        buffers: the buffers with rows of the side, each with the time below which its rows are not needed.
    """
    keys = []
    for number, one in enumerate(received):
        at = one.received
        if at is not None:
            holds = [buffer.hold(number, freed) for buffer, freed in buffers]
            at = min([at, *(hold for hold in holds if hold is not None)])
            at = at if one.forwarded is None else max(at, one.forwarded)
        keys.append(KeyState(one.received, at))
    return tuple(keys)


def advanced_keys(keys: Keys, before: tuple[KeyState, ...], after: tuple[KeyState, ...]) -> dict[str, int]:
    """The keys whose forwarded watermark has advanced.

    >>> advanced_keys((("paid", "paid_at"),), (KeyState(5, None),), (KeyState(5, 3),))
    {'paid': 3}
    """
    return {
        key: new.forwarded
        for (key, _), old, new in zip(keys, before, after, strict=True)
        if new.forwarded is not None and new.forwarded != old.forwarded
    }
