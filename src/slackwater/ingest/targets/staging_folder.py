"""Staging folders, where tasks write files until they are swapped in."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote


@contextmanager
def staging_folder(parent: Path, job: str) -> Iterator[Path]:
    """Create a new folder for the files of one replacement; it is removed at the end.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as parent:
    ...     with staging_folder(Path(parent), "orders") as folder:
    ...         _ = folder.joinpath("a").write_text("x")
    ...     folder.exists()
    False
    """
    folder = _folder_of(parent, job) / uuid.uuid4().hex
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_staging_folders(parent: Path, job: str) -> None:
    """Remove the staging folders of a run that was killed; a job has one run at a time.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as parent, staging_folder(Path(parent), "orders") as folder:
    ...     remove_staging_folders(Path(parent), "orders")
    ...     folder.exists()
    False
    """
    shutil.rmtree(_folder_of(parent, job), ignore_errors=True)


def _folder_of(parent: Path, job: str) -> Path:
    """The folder of a job, which is always inside the parent: no name of a job becomes ``..``.

    >>> _folder_of(Path("target/_staging"), "..").as_posix()
    'target/_staging/%2E%2E'
    """
    return parent / quote(job, safe="").replace(".", "%2E")
