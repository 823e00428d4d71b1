"""Numbers that only rise, in a hidden file of a folder: one for each job that writes to the folder."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Final

from slackwater._durable_files import fsync_path
from slackwater.progress.completeness import Completeness

COMPLETENESS: Final = "_completeness"
"""The file with the time up to which each job has read everything."""


def recorded_numbers(folder: Path, name: str) -> dict[str, int]:
    """The numbers in a file, by job; empty if there is no file."""
    try:
        content = (folder / name).read_bytes()
    except FileNotFoundError:
        return {}
    numbers: dict[str, int] = json.loads(content)
    return numbers


def record_number(folder: Path, name: str, job: str, number: int) -> bool:
    """Record a number as the highest one of a job; return False if there is a higher one.

    The caller holds a lock of the folder. The file is replaced in one step, and survives a crash.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     [record_number(Path(folder), "_fences", "orders", number) for number in (5, 7, 7, 5)]
    [True, True, True, False]
    """
    numbers = recorded_numbers(folder, name)
    if numbers.get(job, number) > number:
        return False
    if numbers.get(job) == number:
        return True
    fresh = folder / f"{name}-{uuid.uuid4().hex}"
    fresh.write_text(json.dumps({**numbers, job: number}), encoding="utf-8")
    fsync_path(fresh)
    fresh.replace(folder / name)
    fsync_path(folder)
    return True


def folder_completeness(folder: Path) -> dict[str, Completeness]:
    """The completeness that each job states in a folder, by identity; empty if none does.

    >>> folder_completeness(Path("/no/such/folder"))
    {}
    """
    return {
        f"ingest:{job}": Completeness(until) for job, until in recorded_numbers(folder, COMPLETENESS).items()
    }
