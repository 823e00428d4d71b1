"""A summary of the saved state of an operator, made without the operator: windows, keys and bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from slackwater.progress.saved_form import SavedForm
from slackwater.windows.engine.asof_operator import INDEX as ASOF_FORM
from slackwater.windows.engine.blobs import decode
from slackwater.windows.engine.cogroup_operator import MERGE_FORM
from slackwater.windows.engine.deduplicate_operator import INDEX as DEDUPLICATE_FORM
from slackwater.windows.engine.frames import stack
from slackwater.windows.engine.join_buffers import INDEX as JOIN_FORM
from slackwater.windows.engine.join_buffers import SideState
from slackwater.windows.engine.operator_description import OperatorDescription
from slackwater.windows.engine.row_log import RowLog
from slackwater.windows.engine.window_state import INDEX_FORM, IndexLayout, WindowEntry
from slackwater.windows.operator_columns import END, START


@dataclass(frozen=True)
class WindowSummary:
    """An open window, or a group of sessions that end at about the same time."""

    start: int
    end: int
    windows: int
    """1, or the number of sessions in the group."""
    keys: int
    bytes: int
    """The size of its blobs. Sliding windows share slices, so the sum may exceed that of the operator."""


@dataclass(frozen=True)
class OperatorSummary:
    """The state of an operator in one bucket."""

    kind: str
    """``window``, ``cogroup``, ``join``, ``as-of join``, ``deduplication`` or ``unknown``."""
    description: str
    """Its settings as text."""
    watermarks: Mapping[str, int]
    """The watermark that it uses: under the watermark key, or one for each side."""
    bytes: int
    """The size of the index and of all blobs."""
    windows: list[WindowSummary] = field(default_factory=list)
    keys: int = 0
    """The number of different keys in all windows."""
    buffered: int = 0
    """The number of rows that a join or deduplication stores, some of which may not be needed any more."""


def summarize(saved: bytes, blobs: Mapping[str, bytes]) -> OperatorSummary:
    """The summary of a state that an operator saved.

    Args:
        saved: the index of the state.
        blobs: all of its blobs.

    >>> from slackwater.windows import Count, Fixed, WindowedOperator
    >>> operator = WindowedOperator(
    ...     window=Fixed(10), accumulations={"n": Count()}, key=("auction",), event_time="ts"
    ... )
    >>> state, _ = operator.step(operator.initial_state(), pl.DataFrame({"auction": [1, 2], "ts": [3, 4]}))
    >>> summary = summarize(operator.save(state), state.blobs)
    >>> summary.kind, summary.keys, [(one.start, one.end, one.keys) for one in summary.windows]
    ('window', 2, [(0, 10, 2)])
    """
    size = len(saved) + sum(map(len, blobs.values()))
    if _is(INDEX_FORM, saved):
        index = INDEX_FORM.decode(saved)
        key = index.description.watermark_key or "default"
        watermarks = {} if index.watermark is None else {key: index.watermark}
        return _windowed("window", _text(index.description), watermarks, size, index, blobs)
    if _is(MERGE_FORM, saved):
        merge = MERGE_FORM.decode(saved)
        sides = {"left": merge.left, "right": merge.right}
        watermarks = {side: at for side, at in sides.items() if at is not None}
        index = INDEX_FORM.decode(merge.windows)
        text = f"{merge.signature} {_text(index.description, inner=True)}"
        return _windowed("cogroup", text, watermarks, size, index, blobs)
    if _is(JOIN_FORM, saved):
        join = JOIN_FORM.decode(saved)
        return _buffered("join", join.join, {"left": join.left, "right": join.right}, size)
    if _is(ASOF_FORM, saved):
        asof = ASOF_FORM.decode(saved)
        return _buffered("as-of join", asof.join, {"left": asof.left, "right": asof.right}, size)
    if _is(DEDUPLICATE_FORM, saved):
        kept = DEDUPLICATE_FORM.decode(saved)
        return _buffered("deduplication", kept.operator, {"default": kept.kept}, size)
    return OperatorSummary("unknown", f"state with tag {saved[1:2].decode(errors='replace')!r}", {}, size)


def _is(form: SavedForm, saved: bytes) -> bool:  # type: ignore[type-arg]  # any layout
    return saved[1:2] == form.tag.encode()


def _buffered(kind: str, text: str, sides: Mapping[str, SideState], size: int) -> OperatorSummary:
    return OperatorSummary(
        kind=kind,
        description=text,
        watermarks={side: state.watermark for side, state in sides.items() if state.watermark is not None},
        bytes=size,
        buffered=sum(chunk.rows for state in sides.values() for chunk in state.chunks),
    )


def _windowed(
    kind: str,
    text: str,
    watermarks: Mapping[str, int],
    size: int,
    index: IndexLayout,
    blobs: Mapping[str, bytes],
) -> OperatorSummary:
    frames: dict[str, pl.DataFrame] = {}
    divisions = {division.name: division.blobs for division in index.divisions}

    def frame(name: str) -> pl.DataFrame:
        if name not in frames:
            parts = [decode(blobs[one], f"window state (blob {one})") for one in divisions.get(name, [name])]
            frames[name] = stack(parts)
        return frames[name]

    def size_of(name: str) -> int:
        return sum(len(blobs[one]) for one in divisions.get(name, [name]))

    windows: list[WindowSummary] = []
    all_keys: list[pl.DataFrame] = []
    for entry in index.windows:
        names = [] if entry.rows is None else [entry.rows]
        names += _partials(index, entry)
        sessions = None
        if index.description.has_sessions:
            log = [frame(blob.name) for blob in entry.row_log]
            key_names = [name for name in log[0].columns if name.startswith("key:")]
            sessions = RowLog([START, END, *key_names]).live_rows(log)
        found = [frame(name) for name in names] if sessions is None else [sessions]
        keys = [each.select(pl.selectors.starts_with("key:")) for each in found]
        all_keys += keys
        others = [blob.name for blob in (*entry.row_log, *entry.pane_log)]
        others += [] if entry.last_panes is None else [entry.last_panes]
        windows.append(
            WindowSummary(
                start=entry.start if sessions is None else entry.earliest_start,
                end=entry.end,
                windows=1 if sessions is None else sessions.height,
                keys=_distinct(keys),
                bytes=sum(
                    len(blobs[one]) for name in (*names, *others) for one in divisions.get(name, [name])
                ),
            )
        )
    windows.sort(key=lambda one: (one.start, one.end))
    return OperatorSummary(kind, text, watermarks, size, windows, _distinct(all_keys))


def _partials(index: IndexLayout, entry: WindowEntry) -> list[str]:
    """The blobs of the slices that a window consists of."""
    return [
        blob.name
        for part in index.slices
        if entry.start <= part.start and part.end <= entry.end
        for blob in part.blobs
    ]


def _distinct(keys: list[pl.DataFrame]) -> int:
    return pl.concat(keys, how="vertical_relaxed").n_unique() if keys else 0


def _text(description: OperatorDescription, *, inner: bool = False) -> str:
    parts = [description.window_text, description.mode, description.trigger]
    if not inner:  # the key and the accumulations of a cogroup are internal
        named = (f"{name}={signature}" for name, signature in description.accumulations.items())
        parts = [*parts[:1], f"key=({', '.join(description.key)})", *parts[1:], *named]
    return " ".join(parts)
