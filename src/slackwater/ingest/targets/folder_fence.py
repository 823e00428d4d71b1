"""Fencing tokens in a target folder: a run that was replaced cannot change files any more."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from slackwater._durable_files import file_lock, fsync_path
from slackwater.ingest.job_errors import RunReplaced

_LOCK: Final = "_lock"
"""The file that serializes the jobs that write to one folder."""
_FENCES: Final = "_fences"
"""The file with the highest token of each job, as JSON."""


@contextmanager
def fenced(folder: Path, job: str, token: int | None) -> Iterator[None]:
    """Hold the lock of a folder, and record the token of the run; None only locks.

    Raises:
        RunReplaced: A run of the job with a higher token has written to the folder.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     for token in (5, 7, 5):
    ...         with fenced(Path(folder), "orders", token):
    ...             pass
    Traceback (most recent call last):
    slackwater.ingest.job_errors.RunReplaced: another run has taken over job 'orders'; check its history, \
then run it again
    """
    folder.mkdir(parents=True, exist_ok=True)
    with file_lock(folder / _LOCK):
        if token is not None:
            _record(folder, job, token)
        yield


def _record(folder: Path, job: str, token: int) -> None:
    path = folder / _FENCES
    tokens: dict[str, int] = json.loads(path.read_bytes()) if path.exists() else {}
    if tokens.get(job, token) > token:
        raise RunReplaced(job)
    if tokens.get(job) == token:
        return
    fresh = folder / f"{_FENCES}-{uuid.uuid4().hex}"
    fresh.write_text(json.dumps({**tokens, job: token}), encoding="utf-8")
    fsync_path(fresh)
    fresh.replace(path)
    fsync_path(folder)
