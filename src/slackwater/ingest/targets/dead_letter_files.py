"""Dead letters in files: one JSON object in each line, in a file that readers of the target do not see."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pyarrow as pa

from slackwater._durable_files import fsync_path
from slackwater.ingest.targets.replacement import Slice
from slackwater.tables.object_store import ObjectStore
from slackwater.time import format_instant, instant

DEAD_LETTERS: Final = "_dead_letters.jsonl"
"""The name of the file; names that begin with _ are hidden from Spark."""


def write_letters(
    path: Path, before: Path | None, letters: pa.Table, slice_: Slice, job: str, time_column: str | None
) -> None:
    """Write the dead letters of a unit: those of other slices from the file ``before``, and new ones.

    Without letters no file is written.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.ingest.targets.rejected_rows import LETTERS
    >>> from slackwater.ingest.units import unit_of
    >>> letter = pa.table([["is odd"], ['{"price":1.9}'], [5]], schema=LETTERS)
    >>> with TemporaryDirectory() as folder:
    ...     for _ in range(2):
    ...         path, slice_ = Path(folder, "a"), Slice(unit_of({"site": 7}), 0, 0, 10)
    ...         write_letters(path, path, letter, slice_, "orders", "at")
    ...     [(line["time"], line["row"]) for line in map(json.loads, path.read_text().splitlines())]
    [('1970-01-01T00:00:00.000005Z', {'price': 1.9})]
    """
    kept = [] if before is None or not before.exists() else before.read_text(encoding="utf-8").splitlines()
    lines = [line for line in kept if not _is_replaced(json.loads(line), slice_, job, time_column)]
    untimed = {_key(json.loads(line)) for line in lines if json.loads(line)["time"] is None}
    for letter in letters.to_pylist():
        new = _as_object(letter, slice_, job)
        if new["time"] is not None or _key(new) not in untimed:
            lines.append(json.dumps(new, ensure_ascii=False))
    if lines:
        path.write_text("\n".join([*lines, ""]), encoding="utf-8")
        fsync_path(path)
    else:
        path.unlink(missing_ok=True)


def write_letter_object(
    store: ObjectStore,
    key: str,
    before: bytes | None,
    letters: pa.Table,
    slice_: Slice,
    job: str,
    time_column: str | None,
) -> bool:
    """Do the same in an object store: write an object, or delete it if there are no letters.

    Returns:
        Whether there are letters.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.ingest.targets.rejected_rows import joined_letters
    >>> from slackwater.ingest.units import WHOLE
    >>> from slackwater.tables.object_store import object_store
    >>> with TemporaryDirectory() as folder:
    ...     store = object_store(f"file://{folder}")
    ...     write_letter_object(store, "a", None, joined_letters([]), Slice(WHOLE, 0, 0, 10), "orders", "at")
    False
    """
    if before is None and not letters.num_rows:
        return False
    with TemporaryDirectory() as folder:
        path, old = Path(folder, DEAD_LETTERS), Path(folder, "before")
        old.write_bytes(before or b"")
        write_letters(path, old, letters, slice_, job, time_column)
        if path.exists():
            store.write(key, path)
            return True
    store.delete([key])
    return False


def _as_object(letter: dict[str, Any], slice_: Slice, job: str) -> dict[str, Any]:
    return {
        "job": job,
        "unit": slice_.unit.as_dict(),
        "partition": format_instant(slice_.start),
        "low": format_instant(slice_.low),
        "high": format_instant(slice_.high),
        "time": None if letter["time"] is None else format_instant(letter["time"]),
        "reason": letter["reason"],
        "row": json.loads(letter["content"]),
    }


def _key(letter: dict[str, Any]) -> str:
    return json.dumps([letter["job"], letter["partition"], letter["reason"], letter["row"]])


def _is_replaced(letter: dict[str, Any], slice_: Slice, job: str, time_column: str | None) -> bool:
    """Whether a slice is read again that contains the row of a letter."""
    if letter["job"] != job:
        return False
    if time_column is None:
        return instant(letter["partition"]) == slice_.start
    if letter["time"] is None:  # the row may be in any part of the range that was read
        return slice_.low <= instant(letter["low"]) and instant(letter["high"]) <= slice_.high
    return slice_.low <= instant(letter["time"]) < slice_.high
