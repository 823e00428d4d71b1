"""Small blobs beside the small state of a bucket, which is read and written with every batch anyway.

Every call to the state store is a message to the JVM and back, which takes longer than to move some thousand
bytes. So a blob goes to the store only if it is large, or if newer ones need its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from typing import Final

from slackwater.windows.engine.blobs import BlobStore

_LARGE: Final = 1 << 16
_ROOM: Final = 1 << 18


class NearbyBlobs(MutableMapping[str, bytes]):
    """A blob store in front of another one.

    >>> store = {}
    >>> blobs = NearbyBlobs(store)
    >>> blobs["small"], blobs["large"] = b"1", bytes(1 << 20)
    >>> blobs.settle()
    >>> list(blobs.near), list(store), len(blobs)
    (['small'], ['large'], 2)
    """

    def __init__(
        self, store: BlobStore, near: dict[str, bytes] | None = None, far: Iterable[str] = ()
    ) -> None:
        self._store = store
        self.near = {} if near is None else near
        """Those that are here, the oldest first."""
        self.far = set(far)
        """The names of those in the store: what is not there need not be deleted there."""

    def __getitem__(self, name: str) -> bytes:
        found = self.near.get(name)
        return self._store[name] if found is None else found

    def __setitem__(self, name: str, blob: bytes) -> None:
        self.near.pop(name, None)
        if name in self.far or len(blob) > _LARGE:
            self._store[name] = blob
            self.far.add(name)
        else:
            self.near[name] = blob

    def __delitem__(self, name: str) -> None:
        if self.near.pop(name, None) is None:
            del self._store[name]
            self.far.discard(name)

    def __iter__(self) -> Iterator[str]:
        yield from self.near
        yield from self.far

    def __len__(self) -> int:
        return len(self.near) + len(self.far)

    def settle(self) -> None:
        """Put the oldest into the store, until the others have room here."""
        size = sum(map(len, self.near.values()))
        for name in list(self.near):
            if size <= _ROOM:
                break
            blob = self.near.pop(name)
            self._store[name] = blob
            self.far.add(name)
            size -= len(blob)
