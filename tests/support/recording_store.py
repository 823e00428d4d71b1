"""A blob store that records its calls, so that tests can check which blobs a step reads and writes."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping


class RecordingStore(MutableMapping[str, bytes]):
    """Blobs by name, and the calls since `take_calls` in order."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.calls: list[tuple[str, str]] = []

    def __getitem__(self, name: str) -> bytes:
        self.calls.append(("read", name))
        return self.blobs[name]

    def __setitem__(self, name: str, blob: bytes) -> None:
        self.calls.append(("write", name))
        self.blobs[name] = blob

    def __delitem__(self, name: str) -> None:
        self.calls.append(("delete", name))
        del self.blobs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.blobs)

    def __len__(self) -> int:
        return len(self.blobs)

    @property
    def reads(self) -> list[str]:
        """The names of the blobs that were read."""
        return [name for kind, name in self.calls if kind == "read"]

    @property
    def writes(self) -> list[str]:
        """The names of the blobs that were written."""
        return [name for kind, name in self.calls if kind == "write"]

    def take_calls(self) -> list[tuple[str, str]]:
        """Return the recorded calls, and clear them."""
        calls, self.calls = self.calls, []
        return calls
