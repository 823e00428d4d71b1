"""A cache of small blobs inside the small state of a bucket, in front of Spark's state store.

The small state is read and written with every batch anyway. Every call to the state store is a round trip to
the JVM, which takes longer than moving a few thousand bytes. So a blob goes to the store only if it is large
or if newer blobs need its space in the cache. Reading a large blob from the store takes long, so the executor
keeps a copy in a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Final

from slackwater.spark.runtime.local_copies import LocalCopies, LocalCopy
from slackwater.windows.engine.blobs import BlobStore

_MAX_BLOB: Final = 1 << 16
_CAPACITY: Final = 1 << 18
_MIN_COPIED: Final = 1 << 14
"""The size from which reading a file instead of the store saves more time than writing the file takes."""


class BlobCache(MutableMapping[str, bytes]):
    """A blob store that keeps small blobs in memory and writes the others to another store.

    >>> store = {}
    >>> blobs = BlobCache(store)
    >>> blobs["small"], blobs["large"] = b"1", bytes(1 << 20)
    >>> blobs.evict()
    >>> list(blobs.cached), list(store), len(blobs)
    (['small'], ['large'], 2)
    """

    def __init__(
        self,
        store: BlobStore,
        cached: dict[str, bytes] | None = None,
        stored: Iterable[str] = (),
        copies: LocalCopies | None = None,
        copied: Mapping[str, LocalCopy] | None = None,
    ) -> None:
        self._store = store
        self._copies = copies
        self.cached = {} if cached is None else cached
        """The cached blobs, oldest first."""
        self.stored = set(stored)
        """The names of the blobs in the store."""
        self.copied = {} if copies is None or copied is None else dict(copied)
        """The copies of blobs in the store. Without local copies there are none, nor in later batches."""

    def __getitem__(self, name: str) -> bytes:
        found = self.cached.get(name)
        if found is None:
            found = self._read_copy(name)
        if found is None:
            found = self._store[name]
            self._write_copy(name, found)
        return found

    def __setitem__(self, name: str, blob: bytes) -> None:
        self.cached.pop(name, None)
        if name in self.stored or len(blob) > _MAX_BLOB:
            self._write(name, blob)
        else:
            self.cached[name] = blob

    def __delitem__(self, name: str) -> None:
        if self.cached.pop(name, None) is None:
            del self._store[name]
            self.stored.discard(name)
            self._delete_copy(name)

    def __iter__(self) -> Iterator[str]:
        yield from self.cached
        yield from self.stored

    def __len__(self) -> int:
        return len(self.cached) + len(self.stored)

    def evict(self) -> None:
        """Move the oldest blobs to the store until the others fit into the cache."""
        size = sum(map(len, self.cached.values()))
        for name in list(self.cached):
            if size <= _CAPACITY:
                break
            blob = self.cached.pop(name)
            self._write(name, blob)
            size -= len(blob)

    def _write(self, name: str, blob: bytes) -> None:
        self._store[name] = blob
        self.stored.add(name)
        self._write_copy(name, blob)

    def _read_copy(self, name: str) -> bytes | None:
        copy = self.copied.get(name)
        return None if self._copies is None or copy is None else self._copies.read(copy)

    def _write_copy(self, name: str, blob: bytes) -> None:
        """Replace the copy of a blob, which has changed or has no file that can be read."""
        self._delete_copy(name)
        if self._copies is not None and len(blob) >= _MIN_COPIED:
            copy = self._copies.write(blob)
            if copy is not None:
                self.copied[name] = copy

    def _delete_copy(self, name: str) -> None:
        copy = self.copied.pop(name, None)
        if self._copies is not None and copy is not None:
            self._copies.delete(copy)
