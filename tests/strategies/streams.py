"""Random histories of segments, and positions in them."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import strategies as st

from slackwater.streams.segments.epochs import KEY_SPACE, Epochs, Segment
from slackwater.streams.segments.positions import Position

_STEPS = 8
"""Boundaries are eighths of the key space, so that ranges often share one."""
_EIGHTH = KEY_SPACE // _STEPS


@st.composite
def histories(draw: st.DrawFn) -> Epochs:
    """The segments of a stream that was scaled up to five times."""
    epochs = Epochs([[Segment(n, 0, low, high) for n, (low, high) in enumerate(draw(partitions(0, _STEPS)))]])
    for _ in range(draw(st.integers(0, 5))):
        first = draw(st.integers(0, len(epochs.active) - 1))
        last = draw(st.integers(first, min(first + 2, len(epochs.active) - 1)))
        sealed = epochs.active[first : last + 1]
        ranges = draw(partitions(sealed[0].low // _EIGHTH, sealed[-1].high // _EIGHTH))
        epochs = epochs.scale([segment.id for segment in sealed], ranges)
    return epochs


@st.composite
def partitions(draw: st.DrawFn, low: int, high: int) -> list[tuple[int, int]]:
    """Split ``[low, high)``, in eighths, at random boundaries."""
    inner = draw(st.sets(st.integers(low + 1, high - 1), max_size=3)) if high - low > 1 else set()
    bounds = [bound * _EIGHTH for bound in (low, *sorted(inner), high)]
    return list(pairwise(bounds))


def positions(epochs: Epochs) -> st.SearchStrategy[Position]:
    """Positions with any segments of the history and small offsets."""
    return st.dictionaries(st.sampled_from(sorted(epochs.segments)), st.integers(-1, 5)).map(Position.of)
