"""A cache of small blobs inside the small state of a bucket, in front of Spark's state store.

The small state is read and written with every batch anyway. Every call to the state store is a round trip to
the JVM, which takes longer than moving a few thousand bytes. So a blob goes to the store only if it is large
or if newer blobs need its space in the cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from typing import Final

from slackwater.windows.engine.blobs import BlobStore

_MAX_BLOB: Final = 1 << 16
_CAPACITY: Final = 1 << 18


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
        self, store: BlobStore, cached: dict[str, bytes] | None = None, stored: Iterable[str] = ()
    ) -> None:
        self._store = store
        self.cached = {} if cached is None else cached
        """The cached blobs, oldest first."""
        self.stored = set(stored)
        """The names of the blobs in the store."""

    def __getitem__(self, name: str) -> bytes:
        found = self.cached.get(name)
        return self._store[name] if found is None else found

    def __setitem__(self, name: str, blob: bytes) -> None:
        self.cached.pop(name, None)
        if name in self.stored or len(blob) > _MAX_BLOB:
            self._store[name] = blob
            self.stored.add(name)
        else:
            self.cached[name] = blob

    def __delitem__(self, name: str) -> None:
        if self.cached.pop(name, None) is None:
            del self._store[name]
            self.stored.discard(name)

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
            self._store[name] = blob
            self.stored.add(name)
            size -= len(blob)
