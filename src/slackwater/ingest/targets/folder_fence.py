"""Fencing tokens in a target folder: a run that was replaced cannot change files any more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from slackwater._durable_files import file_lock
from slackwater.ingest.job_errors import RunReplaced
from slackwater.tables.folder_records import record_number

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
        if token is not None and not record_number(folder, _FENCES, job, token):
            raise RunReplaced(job)
        yield
