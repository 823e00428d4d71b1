"""The targets of the simulated job: what the runner writes to, and how the oracle reads it back."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from slackwater._durable_files import fsync_path
from slackwater.ingest.sources.arrow_types import INSTANTS
from slackwater.ingest.sources.spark_columns import Columns
from slackwater.ingest.targets.delta_target import DeltaTarget
from slackwater.ingest.targets.folder_target import FolderTarget
from slackwater.ingest.targets.replacement import Slice, Target
from slackwater.ingest.targets.stream_target import HIGH, LOW, READ_AT, StreamTarget
from slackwater.ingest.targets.table_target import TableTarget
from slackwater.simulation.world import START, World
from slackwater.sql.database import database_url
from slackwater.streams.log.catalog import Stream, Streams
from slackwater.streams.log.segment_files import BatchLocation
from slackwater.streams.maintenance.controller import Controller

NAME: Final = "orders"
"""The name of the job."""
SCHEMA: Final = pa.schema([("id", pa.int64()), ("at", INSTANTS)])
_COPIED: Final = "copied"
"""The folder, the table or the stream."""
_STREAM: Final = f"shop/{_COPIED}"
_COMMON: Final[dict[str, Any]] = {
    "time_column": "at", "watermark_column": None, "zone": "UTC", "job": NAME,
}  # fmt: skip


class PathWithFaults(type(Path())):  # type: ignore[misc]  # the class of paths on this system
    """A path whose operations are points at which a process may be interrupted."""

    point: Callable[[str], None]

    def mkdir(self, *arguments: Any, **options: Any) -> None:
        """Create a folder."""
        self.point("mkdir")
        super().mkdir(*arguments, **options)

    def rename(self, target: Any) -> Any:
        """Rename a file."""
        self.point("rename")
        return super().rename(target)

    def replace(self, target: Any) -> Any:
        """Rename a file over another one."""
        self.point("replace")
        return super().replace(target)

    def symlink_to(self, target: Any, target_is_directory: bool = False) -> None:
        """Create a symbolic link."""
        self.point("symlink")
        super().symlink_to(target, target_is_directory)

    def write_bytes(self, data: Any) -> int:
        """Write a file."""
        self.point("write")
        return int(super().write_bytes(data))


class Copy(Protocol):
    """A target, and what the oracle knows about it."""

    def target(self) -> Target:
        """A new target for a run."""

    def has_changed(self, changed: set[str]) -> bool:
        """Whether a transaction that changed these tables has replaced a slice."""

    def ids(self) -> list[int]:
        """The ids of all rows, in ascending order; one that is there twice is listed twice."""

    def complete_until(self) -> int | None:
        """The time before which the target claims to be complete; None if it claims nothing."""

    def start(self) -> None:
        """Start the processes that the target needs."""


@dataclass
class _CopyInFolder:
    """A target in a folder. The oracle learns of a swap when the call returns, so it does not read claims."""

    world: World

    def __post_init__(self) -> None:
        path = type("Path", (PathWithFaults,), {"point": staticmethod(self.world.point)})
        self.folder = path(self.world.data / _COPIED)
        Path(self.folder).mkdir()
        fsync_path(self.world.data)

    def has_changed(self, changed: set[str]) -> bool:
        """No transaction replaces a slice."""
        return False

    def complete_until(self) -> int | None:
        """Claims are not read."""
        return None

    def start(self) -> None:
        """There is no process."""


class FolderCopy(_CopyInFolder):
    """A folder of Parquet files."""

    def target(self) -> Target:
        """A new target for a run."""
        return FolderTarget(folder=self.folder, format="parquet", **_COMMON)

    def ids(self) -> list[int]:
        """The ids in the files of the current version."""
        link = Path(self.folder) / "rows"
        if not link.exists():
            return []
        files = [path for path in link.iterdir() if not path.name.startswith("_")]
        return sorted(one for path in files for one in pq.read_table(path).column("id").to_pylist())


@dataclass(frozen=True)
class _ObservedDelta(DeltaTarget):
    """A Delta table whose library runs without interruption: it does not flush what it writes."""

    world: World

    def _commit(self, files: list[Path], columns: Columns, slice_: Slice) -> None:
        self.world.point("commit to Delta")
        self.world.scheduler.current.process.is_protected = True
        super()._commit(files, columns, slice_)

    def _flush(self, logged: set[str]) -> None:
        super()._flush(logged)
        self.world.scheduler.current.process.is_protected = False
        self.world.point("committed to Delta")


class DeltaCopy(_CopyInFolder):
    """A Delta Lake table."""

    def target(self) -> Target:
        """A new target for a run."""
        return _ObservedDelta(folder=self.folder, world=self.world, **_COMMON)

    def ids(self) -> list[int]:
        """The ids in the files of the newest version."""
        try:
            return self._ids()
        except (OSError, ValueError) as damage:  # Arrow's errors are one of them
            self.world.violate(f"the Delta table is damaged: {damage}")
            return []

    def _ids(self) -> list[int]:
        folder = Path(self.folder)
        files: dict[str, Path] = {}
        for path in sorted(folder.glob("_delta_log/*.json")):
            for line in path.read_text(encoding="utf-8").splitlines():
                entry = json.loads(line)
                if "add" in entry:
                    files[entry["add"]["path"]] = folder / entry["add"]["path"]
                elif "remove" in entry:
                    files.pop(entry["remove"]["path"], None)
        return sorted(one for path in files.values() for one in pq.read_table(path).column("id").to_pylist())


class TableCopy:
    """A table in the database of the store."""

    def __init__(self, world: World, database: sqlite3.Connection) -> None:
        self._world = world
        self._database = database

    def target(self) -> Target:
        """A new target for a run."""
        url = database_url(f"sqlite:///{self._world.server.path}")
        return TableTarget(url=url, table=_COPIED, **_COMMON)

    def has_changed(self, changed: set[str]) -> bool:
        """Whether rows were written."""
        return _COPIED in changed

    def ids(self) -> list[int]:
        """The ids in the table."""
        if not self._has_table(_COPIED):
            return []
        rows = self._database.execute(f"SELECT id FROM {_COPIED} ORDER BY id").fetchall()  # noqa: S608 - a constant
        return [one for (one,) in rows]

    def _has_table(self, name: str) -> bool:
        known = "SELECT count(*) FROM sqlite_master WHERE name = ?"
        return bool(self._database.execute(known, [name]).fetchone()[0])

    def complete_until(self) -> int | None:
        """The time that the job has stated."""
        if not self._has_table("slackwater_completeness"):
            return None
        found = self._database.execute("SELECT max(complete_until) FROM slackwater_completeness").fetchone()
        return None if found[0] is None else int(found[0])

    def start(self) -> None:
        """There is no process."""


@dataclass(frozen=True)
class _Location:
    """Where the stream is; its store is reached through the simulated network."""

    world: World
    store: str = ""
    stream: str = _STREAM
    key: str | None = None

    def open(self) -> Stream:
        """The stream."""
        return Streams(self.world.store()).get(self.stream)


class _SimulatedStream(StreamTarget):
    """A stream target with a store that was opened before."""

    def __init__(self, world: World) -> None:
        super().__init__("", _STREAM, NAME)
        location: Any = _Location(world)
        self._options = location


class StreamCopy:
    """A stream to which every reading of a range is appended; the newest one is valid."""

    def __init__(self, world: World, database: sqlite3.Connection) -> None:
        self._world = world
        self._database = database
        self._commits = 0
        marks = [pa.field(name, INSTANTS) for name in (LOW, HIGH, READ_AT)]
        with Streams(world.store()) as streams:
            self._stream = streams.create(_STREAM, columns=pa.schema([*SCHEMA, *marks]), data=str(world.data))

    def target(self) -> Target:
        """A new target for a run."""
        return _SimulatedStream(self._world)

    def has_changed(self, changed: set[str]) -> bool:
        """Whether the writer of the job has committed under a new number."""
        if "slackwater_writers" not in changed:
            return False
        before, self._commits = self._commits, self._number()
        return self._commits > before

    def _number(self) -> int:
        found = self._database.execute("SELECT max(last_event_number) FROM slackwater_writers").fetchone()
        return int(found[0] or 0)

    def ids(self) -> list[int]:
        """The ids of valid readings; a row that was appended twice by one reading is listed twice."""
        query = "SELECT file, byte_offset, size, checksum, events FROM slackwater_appends WHERE stream = ?"
        readings: Counter[tuple[int, int]] = Counter()
        for row in self._database.execute(query, [self._stream.id]).fetchall():
            batch = self._stream.folder.read(BatchLocation(*row), self._stream.columns)
            times = batch.column(READ_AT).cast(pa.int64()).to_pylist()
            readings.update(zip(batch.column("id").to_pylist(), times, strict=True))
        newest: dict[int, int] = {}
        for one, read_at in readings:
            newest[one] = max(read_at, newest.get(one, read_at))
        return sorted(one for one, read_at in newest.items() for _ in range(readings[one, read_at]))

    def complete_until(self) -> int | None:
        """The time that the writer of the job has noted."""
        found = self._database.execute("SELECT max(time) FROM slackwater_writer_marks").fetchone()
        return None if found[0] is None or found[0] < START else int(found[0])

    def start(self) -> None:
        """Start the controller, which makes marks and collects the files of killed runs."""
        self._world.start("controller", self._control)

    def _control(self) -> None:
        controller = Controller(
            Streams(self._world.store()),
            name="controller",
            lease="25 minutes",
            poll="10 minutes",
            housekeeping="40 minutes",
        )
        controller.run()
