"""Data files of a stream: Arrow files that are written once and found through the metadata store.

A flush writes one Arrow file with one compressed record batch for each segment that got events. The metadata
store records the byte offset, size and checksum of each batch, so a reader fetches exactly the bytes that it
needs and verifies them. A file that no record names is not part of the stream. Local files and folders are
created for their owner only.
"""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import pyarrow as pa
from pyarrow import fs

from slackwater._durable_files import fsync_path, make_private_folder, write_durably
from slackwater.errors import InvalidArgument
from slackwater.time import HOUR

POINT: Final = "slackwater_point"
"""Last column of a transaction's file: the point of each event's key, to route it again at the commit."""

_SUFFIX: Final = ".arrow"
_TRANSACTION_SUFFIX: Final = f".transaction{_SUFFIX}"
_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4")


class DamagedFile(Exception):
    """A batch that cannot be read; the caller knows its stream and segment and raises `CorruptSegment`."""


@dataclass(frozen=True, slots=True)
class BatchLocation:
    """Location of a record batch in a data file.

    >>> BatchLocation("0/a.arrow", byte_offset=8, size=100, checksum=7, events=3).events
    3
    """

    file: str
    byte_offset: int
    size: int
    checksum: int
    events: int


StagedBatch: TypeAlias = tuple[int, BatchLocation]
"""A segment id, and the location of a batch for it that is written but not part of the stream yet."""


def check_columns(columns: pa.Schema) -> pa.Schema:
    """Return the schema of a stream's events, if data files can store it.

    >>> check_columns(pa.schema([("value", pa.string())])).names
    ['value']
    >>> check_columns(pa.schema([]))
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: columns = []: is empty; give a schema with at least one column
    """
    if not columns.names:
        raise InvalidArgument("columns", [], "is empty", fix="give a schema with at least one column")
    if len(set(columns.names)) < len(columns.names) or POINT in columns.names:
        reason = f"contains a name twice, or the reserved name {POINT}"
        raise InvalidArgument("columns", columns.names, reason, fix="use unique column names")
    for column in columns:
        if pa.types.is_dictionary(column.type) or pa.types.is_union(column.type):
            reason = f"column {column.name!r} has the unsupported type {column.type}"
            raise InvalidArgument("columns", columns.names, reason, fix="declare the type of its values")
    return columns


class DataFolder:
    """The data files of one stream.

    >>> from tempfile import TemporaryDirectory
    >>> batch = pa.record_batch({"value": ["a", "b"]})
    >>> with TemporaryDirectory() as root:
    ...     folder = open_folder(root, "shop/bids-1")
    ...     (location,) = folder.write([batch], at=0)
    ...     folder.read(location, batch.schema).equals(batch)
    True
    """

    def __init__(self, filesystem: fs.FileSystem, path: str) -> None:
        self._filesystem = filesystem
        self._path = path
        self._is_local = isinstance(filesystem, fs.LocalFileSystem)
        self._made: set[str] = set()

    def write(
        self, batches: Sequence[pa.RecordBatch], *, at: int, transaction: bool = False
    ) -> list[BatchLocation]:
        """Write batches of one schema to a new file, and return once it is on disk."""
        sink = pa.BufferOutputStream()
        bounds = []
        with pa.ipc.new_file(sink, batches[0].schema, options=_OPTIONS) as output:
            # the file header is written with the first batch; an empty batch separates it from the data
            output.write_batch(batches[0].slice(0, 0))
            for batch in batches:
                start = sink.tell()
                output.write_batch(batch)
                bounds.append((start, sink.tell() - start))
        content = sink.getvalue()
        suffix = _TRANSACTION_SUFFIX if transaction else _SUFFIX
        name = f"{at // HOUR}/{at:020d}-{uuid.uuid4().hex}{suffix}"
        self._store(name, content)
        return [
            BatchLocation(name, start, size, zlib.crc32(content.slice(start, size)), batch.num_rows)
            for (start, size), batch in zip(bounds, batches, strict=True)
        ]

    def read(self, location: BatchLocation, columns: pa.Schema) -> pa.RecordBatch:
        """Read a batch and verify its checksum; a transaction's file has the points as its last column."""
        try:
            with self._open(location.file) as source:
                source.seek(location.byte_offset)
                content = source.read_buffer(location.size)
        except FileNotFoundError:
            raise DamagedFile("is missing") from None
        except OSError as error:
            raise DamagedFile(f"cannot be read: {error}") from error
        if content.size != location.size or zlib.crc32(content) != location.checksum:
            raise DamagedFile("does not match its checksum")
        if location.file.endswith(_TRANSACTION_SUFFIX):
            columns = columns.append(pa.field(POINT, pa.int64()))
        batch = pa.ipc.read_record_batch(pa.ipc.read_message(content), columns)
        if batch.num_rows != location.events:
            raise DamagedFile(f"has {batch.num_rows} events instead of {location.events}")
        return batch

    def remove_files(self, names: Iterable[str]) -> None:
        """Delete files; a file that does not exist any more is ignored."""
        for name in names:
            with suppress(FileNotFoundError):
                self._filesystem.delete_file(f"{self._path}/{name}")

    def files(self, *, before: int) -> list[str]:
        """The files that were created before a time, by the clock of the process that wrote them."""
        selector = fs.FileSelector(self._path, recursive=True, allow_not_found=True)
        start = len(self._path) + 1
        names = [
            info.path[start:]
            for info in self._filesystem.get_file_info(selector)
            if info.type == fs.FileType.File and info.path.endswith(_SUFFIX)
        ]
        return sorted(name for name in names if _created_at(name) < before)

    def make(self) -> None:
        """Create the folder."""
        self._make(self._path)

    def remove(self) -> None:
        """Delete the folder with all its files."""
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
        write_durably(Path(path), content)

    def _make(self, folder: str) -> None:
        if not self._is_local:
            self._filesystem.create_dir(folder, recursive=True)
            return
        path = Path(folder)
        make_private_folder(path)
        # also of folders that exist: the process that made them may not have flushed their names yet
        for parent in (path.parent, path.parent.parent):
            fsync_path(parent)


def any_created_before(files: Iterable[str], horizon: int) -> bool:
    """Whether one of the files was created before a time.

    >>> file = "0/00000000000000000007-ab.arrow"
    >>> any_created_before([file], 7), any_created_before([file], 8)
    (False, True)
    """
    return any(_created_at(name) < horizon for name in files)


def _created_at(name: str) -> int:
    return int(name.rpartition("/")[2][:20])


def open_folder(root: str, name: str) -> DataFolder:
    """The folder ``name`` below a local path, or below a URI that pyarrow can open.

    >>> open_folder("gopher://x/y", "z")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: data = 'gopher://…': cannot be opened; give a local path, or a URI \
that pyarrow can open
    """
    if "://" not in root:
        return DataFolder(fs.LocalFileSystem(), f"{Path(root).absolute()}/{name}")
    try:
        filesystem, path = fs.FileSystem.from_uri(root)
    except (pa.ArrowException, ValueError, OSError):
        shown = f"{root.partition('://')[0]}://…"  # the rest may contain a password
        fix = "give a local path, or a URI that pyarrow can open"
        raise InvalidArgument("data", shown, "cannot be opened", fix=fix) from None
    return DataFolder(filesystem, f"{path.rstrip('/')}/{name}")
