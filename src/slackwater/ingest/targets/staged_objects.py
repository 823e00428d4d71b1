"""Staged objects: tasks upload them, and their names tell which run they belong to.

The next run of the job removes those of runs that were killed.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from slackwater.ingest.sources.extracted_rows import Batches
from slackwater.ingest.targets.parquet_writer import write_parquet
from slackwater.ingest.targets.replacement import StageTask
from slackwater.tables.object_store import ObjectStore

_MARK: Final = re.compile(r"-([0-9a-f]{16})-(\d+)-[0-9a-f]{32}")


@dataclass(frozen=True)
class RunMark:
    """The job and the fencing token of a run, in the names of the objects that it writes.

    >>> earlier, current = RunMark("orders", 5), RunMark("orders", 6)
    >>> current.is_of_earlier_run(f"a{earlier.suffix()}"), current.is_of_earlier_run(f"a{current.suffix()}")
    (True, False)
    >>> RunMark("returns", 6).is_of_earlier_run(f"a{earlier.suffix()}")
    False
    """

    job: str
    token: int | None

    @property
    def _digest(self) -> str:
        return hashlib.sha256(self.job.encode()).hexdigest()[:16]

    def suffix(self, name: str | None = None) -> str:
        """The end of a key, unique by a name of 32 hexadecimal digits."""
        return f"-{self._digest}-{self.token or 0}-{name or uuid.uuid4().hex}"

    def is_of_earlier_run(self, key: str) -> bool:
        """Whether an earlier run of the same job wrote an object."""
        found = _MARK.search(key)
        return found is not None and found[1] == self._digest and int(found[2]) < (self.token or 0)


def uploading(store: ObjectStore, key_of: Callable[[str], str]) -> StageTask:
    """Make the function that uploads the rows of a task as a Parquet file; it is sent to the executors.

    >>> import pyarrow as pa
    >>> from slackwater.tables.object_store import object_store
    >>> with TemporaryDirectory() as folder:
    ...     store = object_store(f"file://{folder}")
    ...     _ = uploading(store, "{}.parquet".format)(iter([pa.record_batch({"id": [1]})]), "a")
    ...     store.keys(".")
    ['a.parquet']
    """

    def stage(batches: Batches, name: str) -> tuple[int, bytes | None]:
        first = next(batches, None)
        if first is None:
            return 0, None
        with temporary_file() as path:
            write_parquet(path, first, batches)
            store.write(key_of(name), path)
            return path.stat().st_size, None

    return stage


@contextmanager
def temporary_file() -> Iterator[Path]:
    """The path of a file that is removed at the end."""
    with TemporaryDirectory() as folder:
        yield Path(folder, "rows.parquet")
