"""Frames with a row per key that are divided by key: reading and changing the rows of a few keys.

A window with many keys is stored in parts (see `slackwater.windows.engine.window_state`), so that a batch
reads and writes the parts of its keys, and the clock or the watermark those of the keys that are due. The
functions work on undivided frames as well.
"""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from slackwater.windows.engine import window_state
from slackwater.windows.engine.frames import match, stack
from slackwater.windows.engine.key_hash import PART, with_part
from slackwater.windows.engine.window_state import KeyPart, KeyTimes, WindowState

FEW_OF: float = 32
"""If a step needs less than one of so many rows, a frame is divided."""
MANY_OF: float = 16
"""If a step needs at least one of so many rows, a frame is not divided any more."""

Measure = Callable[[pl.DataFrame], KeyTimes]
"""When the keys of a frame are due."""


def is_divided(state: WindowState, name: str | None) -> bool:
    """Whether a frame is divided."""
    return name in state.divisions


def is_few(needed: int, rows: int) -> bool:
    """Whether a step needs so few rows of a frame that the frame is worth dividing."""
    return rows > window_state.ROWS_WORTH_DIVIDING and needed * FEW_OF < rows


def whole_if_many(state: WindowState, name: str | None, needed: int) -> str | None:
    """The name of a frame, which is not divided any more if a step needs many of its rows."""
    if name not in state.divisions or needed * MANY_OF < state.divisions[name].rows:
        return name
    return state.write(state.read(name), replaces=name)


def rows_due(state: WindowState, name: str | None, is_due: Callable[[KeyTimes], bool]) -> int:
    """The number of rows in the parts that are due; 0 for a frame that is not divided."""
    parts = state.divisions[name].parts if name in state.divisions else []
    return sum(part.rows for part in parts if is_due(part.times))


def read_keys(state: WindowState, name: str, keys: pl.DataFrame, columns: list[str]) -> pl.DataFrame:
    """The rows of some keys, whose columns are ``columns``."""
    if name in state.divisions:
        parts = state.divisions[name].parts
        wanted = with_part(keys.select(columns), len(parts))[PART].unique().sort()
        blobs = [parts[number].blob for number in wanted]
        found = [state.read(blob) for blob in blobs if blob is not None]
        frame = stack(found) if found else state.read(state.divisions[name].blobs[0]).clear()
    else:
        frame = state.read(name)
    return match(frame, keys.select(columns).unique(), columns, "semi")


def read_due(state: WindowState, name: str, is_due: Callable[[KeyTimes], bool]) -> pl.DataFrame:
    """The rows of the parts that are due, of which at least one must be."""
    parts = state.divisions[name].parts
    return stack(state.read(part.blob) for part in parts if part.blob is not None and is_due(part.times))


def change_keys(
    state: WindowState,
    name: str,
    columns: list[str],
    removed: pl.DataFrame,
    added: pl.DataFrame | None,
    measure: Measure | None = None,
) -> str | None:
    """Replace the rows of some keys in a divided frame; its name, or None if no rows remain.

    Args:
        state: the state with the frame.
        name: the frame.
        columns: the key columns.
        removed: the keys whose rows are removed.
        added: the rows that are added.
        measure: when the keys of changed parts are due; nothing is due without it.
    """
    division = state.divisions[name]
    count = len(division.parts)
    gone = with_part(removed.select(columns).unique(), count).partition_by(PART, as_dict=True)
    new = {} if added is None else with_part(added, count).partition_by(PART, as_dict=True, include_key=False)
    for number in {*gone, *new}:
        part = division.parts[number[0]]
        frames = [] if part.blob is None else [state.read(part.blob)]
        if number in gone:
            frames = [match(frame, gone[number], columns, "anti") for frame in frames]
        frames = [frame for frame in (*frames, *([new[number]] if number in new else [])) if frame.height]
        state.delete(part.blob)
        frame = stack(frames) if frames else None
        blob = None if frame is None else state.write(frame)
        times = KeyTimes() if frame is None or measure is None else measure(frame)
        division.parts[number[0]] = KeyPart(blob, 0 if frame is None else frame.height, times)
    if not division.rows:
        state.delete(name)
        return None
    if division.rows > count * window_state.ROWS_WORTH_DIVIDING:
        name = state.write(state.read(name), replaces=name, divides=True) or name
        measure_parts(state, name, measure)
    return name


def measure_parts(state: WindowState, name: str | None, measure: Measure | None) -> None:
    """Set when the keys of a divided frame are due; does nothing for another one."""
    if name is None or name not in state.divisions or measure is None:
        return
    for part in state.divisions[name].parts:
        part.times = KeyTimes() if part.blob is None else measure(state.read(part.blob))


def times_of(state: WindowState, name: str) -> KeyTimes:
    """When the keys of a divided frame are due."""
    return KeyTimes.earliest(part.times for part in state.divisions[name].parts)
