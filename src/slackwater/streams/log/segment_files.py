"""The files of a stream: events in columns, written once, found through the metadata store.

A flush is one Arrow file with one compressed record batch for each segment that got events. The store notes
where in the file each batch lies, how long it is and its checksum, so a reader fetches exactly the bytes it
needs and trusts nothing it did not check. A file that no record names is not part of the stream.
"""

from __future__ import annotations

import os
import uuid
import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyarrow import fs

from slackwater._durable_files import synchronise
from slackwater.errors import InvalidArgument
from slackwater.time import HOUR

POINT: Final = "slackwater_point"
"""The last column of a transaction's file: the point of each event's key, to route it at the commit."""

_SUFFIX: Final = ".arrow"
_OF_TRANSACTION: Final = f".transaction{_SUFFIX}"
_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4")


class Damaged(Exception):
    """A part that cannot be read; whoever knows whose events it holds says so."""


@dataclass(frozen=True, slots=True)
class Part:
    """Where the events of one segment lie in a file.

    >>> Part("0/a.arrow", place=8, size=100, checksum=7, events=3).events
    3
    """

    file: str
    place: int
    size: int
    checksum: int
    events: int


def check_columns(columns: pa.Schema) -> pa.Schema:
    """The schema of a stream's events, if files can hold it.

    >>> check_columns(pa.schema([("value", pa.string())])).names
    ['value']
    >>> check_columns(pa.schema([]))
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: columns = []: name no column; give a schema with one or more
    """
    if not columns.names:
        raise InvalidArgument("columns", [], "name no column", fix="give a schema with one or more")
    if len(set(columns.names)) < len(columns.names) or POINT in columns.names:
        reason = f"name a column twice, or {POINT}"
        raise InvalidArgument("columns", columns.names, reason, fix="give each a name of its own")
    for column in columns:
        if pa.types.is_dictionary(column.type) or pa.types.is_union(column.type):
            reason = f"have {column.name!r} of type {column.type}"
            raise InvalidArgument("columns", columns.names, reason, fix="declare the type of its values")
    return columns


class DataFolder:
    """The files of one stream.

    >>> from tempfile import TemporaryDirectory
    >>> batch = pa.record_batch({"value": ["a", "b"]})
    >>> with TemporaryDirectory() as root:
    ...     folder = open_folder(root, "shop/bids-1")
    ...     (part,) = folder.write([batch], at=0)
    ...     folder.read(part, batch.schema).equals(batch)
    True
    """

    def __init__(self, filesystem: fs.FileSystem, path: str) -> None:
        self._filesystem = filesystem
        self._path = path
        self._is_local = isinstance(filesystem, fs.LocalFileSystem)
        self._made: set[str] = set()

    def write(self, batches: Sequence[pa.RecordBatch], *, at: int, transaction: bool = False) -> list[Part]:
        """Writes batches of one schema to a new file, and returns once it is on the disk."""
        sink = pa.BufferOutputStream()
        places = []
        with pa.ipc.new_file(sink, batches[0].schema, options=_OPTIONS) as output:
            # the header comes with the first batch; an empty one keeps it apart from those that count
            output.write_batch(batches[0].slice(0, 0))
            for batch in batches:
                place = sink.tell()
                output.write_batch(batch)
                places.append((place, sink.tell() - place))
        content = sink.getvalue()
        name = f"{at // HOUR}/{at:020d}-{uuid.uuid4().hex}{_OF_TRANSACTION if transaction else _SUFFIX}"
        self._store(name, content)
        return [
            Part(name, place, size, zlib.crc32(content.slice(place, size)), batch.num_rows)
            for (place, size), batch in zip(places, batches, strict=True)
        ]

    def read(self, part: Part, columns: pa.Schema) -> pa.RecordBatch:
        """The events of a part; for a transaction's file the points are its last column."""
        try:
            with self._open(part.file) as source:
                source.seek(part.place)
                content = source.read_buffer(part.size)
        except FileNotFoundError:
            raise Damaged("is missing") from None
        except OSError as error:
            raise Damaged(f"cannot be read: {error}") from error
        if content.size != part.size or zlib.crc32(content) != part.checksum:
            raise Damaged("has changed since it was written")
        if part.file.endswith(_OF_TRANSACTION):
            columns = columns.append(pa.field(POINT, pa.int64()))
        batch = pa.ipc.read_record_batch(pa.ipc.read_message(content), columns)
        if batch.num_rows != part.events:
            raise Damaged(f"holds {batch.num_rows} events instead of {part.events}")
        return batch

    def remove_files(self, names: Iterable[str]) -> None:
        """Removes files, unless somebody else was faster."""
        for name in names:
            with suppress(FileNotFoundError):
                self._filesystem.delete_file(f"{self._path}/{name}")

    def files(self, *, before: int) -> list[str]:
        """The files that were made before a time, by the clock of whoever made them."""
        selector = fs.FileSelector(self._path, recursive=True, allow_not_found=True)
        start = len(self._path) + 1
        names = [
            info.path[start:]
            for info in self._filesystem.get_file_info(selector)
            if info.type == fs.FileType.File and info.path.endswith(_SUFFIX)
        ]
        return sorted(name for name in names if _made_at(name) < before)

    def make(self) -> None:
        """Makes the folder, which then can be written to."""
        self._make(self._path)

    def remove(self) -> None:
        """Removes all files."""
        if self._filesystem.get_file_info(self._path).type != fs.FileType.NotFound:
            with suppress(FileNotFoundError):
                self._filesystem.delete_dir(self._path)

    def _open(self, name: str) -> pa.NativeFile:
        path = f"{self._path}/{name}"
        return pa.memory_map(path) if self._is_local else self._filesystem.open_input_file(path)

    def _store(self, name: str, content: pa.Buffer) -> None:
        path = f"{self._path}/{name}"
        hour = path.rpartition("/")[0]
        if hour not in self._made or (self._is_local and not Path(hour).exists()):
            self._make(hour)
            self._made = {hour}
        if not self._is_local:
            with self._filesystem.open_output_stream(path) as output:
                output.write(content)
            return
        try:
            with Path(path).open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            # on a full disk half a file must not take the room until it is collected
            Path(path).unlink(missing_ok=True)
            raise
        synchronise(Path(hour))

    def _make(self, folder: str) -> None:
        if not self._is_local:
            self._filesystem.create_dir(folder, recursive=True)
            return
        missing = [path for path in (Path(folder), *Path(folder).parents) if not path.exists()]
        Path(folder).mkdir(parents=True, exist_ok=True)
        for made in missing:
            synchronise(made.parent)


def made_before(files: Iterable[str], horizon: int) -> bool:
    """Whether one of the files was made before a time.

    >>> (
    ...     made_before(["0/00000000000000000007-ab.arrow"], 7),
    ...     made_before(["0/00000000000000000007-ab.arrow"], 8),
    ... )
    (False, True)
    """
    return any(_made_at(name) < horizon for name in files)


def _made_at(name: str) -> int:
    return int(name.rpartition("/")[2][:20])


def open_folder(root: str, name: str) -> DataFolder:
    """The folder ``name`` below an address that pyarrow can open, or below a folder of this machine.

    >>> open_folder("gopher://x/y", "z")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: data = 'gopher://…': cannot be opened; give a folder, or an address \
that pyarrow can open
    """
    if "://" not in root:
        return DataFolder(fs.LocalFileSystem(), f"{Path(root).absolute()}/{name}")
    try:
        filesystem, path = fs.FileSystem.from_uri(root)
    except (pa.ArrowException, ValueError, OSError):
        shown = f"{root.partition('://')[0]}://…"  # the rest may hold a password
        fix = "give a folder, or an address that pyarrow can open"
        raise InvalidArgument("data", shown, "cannot be opened", fix=fix) from None
    return DataFolder(filesystem, f"{path.rstrip('/')}/{name}")
