"""A run that replaces one slice of a table on an object store, and that is killed at one of its requests.

`main` is the function of a process: it writes the rows of one generation, its token, in three files, and
kills the process before the request with a given number.
"""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Callable
from typing import Any, Final

import deltalake
import pyarrow as pa

from slackwater.ingest.targets.delta_objects_target import DeltaObjectsTarget
from slackwater.ingest.targets.manifest_target import ManifestTarget
from slackwater.ingest.targets.rejected_rows import joined_letters
from slackwater.ingest.targets.replacement import Slice, StagedRows
from slackwater.ingest.units import unit_of
from slackwater.tables.object_store import ObjectStore, object_store

UNIT: Final = unit_of({"shop": "a/b"})
SLICE: Final = Slice(UNIT, 0, 10, 20)
TIMES: Final = pa.timestamp("us", "UTC")
FILES: Final = 3
_REQUESTS: Final = ("read", "write", "replace", "keys", "delete", "local_file")


def target_of(kind: str, url: str, token: int) -> Any:
    """A target of a run with this token."""
    made = DeltaObjectsTarget if kind == "delta" else ManifestTarget
    target: Any = made(object_store(url), time_column="at", watermark_column=None, zone="UTC", job="orders")
    target.fence(token)
    return target


def replace(target: Any, slice_: Slice, generation: int) -> None:
    """Do what a run does, with three tasks."""
    target.pass_fence()
    target.remove_leftovers()
    identity = slice_.identity("at") if isinstance(target, DeltaObjectsTarget) else {}
    staged = []
    for number in range(FILES):
        at = slice_.low + number * (slice_.high - slice_.low) // FILES
        arrays = {"at": pa.array([at], TIMES), "generation": pa.array([generation])}
        marks = {name: pa.array([value]) for name, value in identity.items()}
        rows = pa.record_batch({**arrays, **marks})
        name = uuid.uuid4().hex
        size, _ = target.stage_task(None, slice_)(iter([rows]), name)
        staged.append(StagedRows(name, 1, size, None, None))
    columns = {"at": TIMES, "generation": pa.int64(), **dict.fromkeys(identity, pa.string())}
    assert target.swap(None, staged, columns, slice_, joined_letters([])) == 0


def main(kind: str, url: str, token: int, request: int, variables: dict[str, str]) -> None:
    """Write one generation, or die."""
    os.environ.update(variables)
    left = request

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **options)

        return call

    store: type[ObjectStore] = type(object_store(url))
    for name in _REQUESTS:
        setattr(store, name, counted(getattr(store, name)))
    deltalake.write_deltalake = counted(deltalake.write_deltalake)
    replace(target_of(kind, url, token), SLICE, token)
