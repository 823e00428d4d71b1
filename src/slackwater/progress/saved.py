"""The saved form of state: compact, versioned, and either whole or refused.

A saved value lives in a state store for as long as a query does, longer than any release. So it
starts with a version and a tag, and ends with a checksum over everything before it. Bytes that
were cut, changed, written for something else or by another version raise; they never load as a
wrong watermark.

    version (1 byte) | tag (1 byte) | MessagePack arrays | CRC-32 (4 bytes, big-endian)
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import msgspec

from slackwater.errors import CorruptState, InvalidArgument, UnsupportedStateVersion

_HEAD: Final = 2
_CHECKSUM: Final = 4

Layout = TypeVar("Layout", bound=msgspec.Struct)


class Saved(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """The base of every layout: fields by position, no names in the bytes."""


@dataclass(frozen=True, slots=True)
class SavedForm(Generic[Layout]):
    """How one kind of state is written: what it is called, its tag, its version, its layout.

    >>> class Point(Saved):
    ...     x: int
    >>> form = SavedForm("point", "p", 1, Point)
    >>> form.unseal(form.seal(Point(3))).x
    3
    >>> form.unseal(form.seal(Point(3))[:-1])
    Traceback (most recent call last):
    slackwater.errors.CorruptState: cannot load the saved point: its checksum does not match its \
content; restore an intact copy, or start without saved state
    """

    what: str
    tag: str
    version: int
    layout: type[Layout]

    def seal(self, state: Layout) -> bytes:
        """The bytes of ``state``."""
        body = bytes((self.version, ord(self.tag))) + msgspec.msgpack.encode(state)
        return body + zlib.crc32(body).to_bytes(_CHECKSUM, "big")

    def unseal(self, data: bytes) -> Layout:
        """What `seal` was given, or an error that says why not."""
        if len(data) <= _HEAD + _CHECKSUM:
            raise CorruptState(self.what, f"it has only {len(data)} bytes")
        body, checksum = data[:-_CHECKSUM], data[-_CHECKSUM:]
        if zlib.crc32(body).to_bytes(_CHECKSUM, "big") != checksum:
            raise CorruptState(self.what, "its checksum does not match its content")
        if body[1] != ord(self.tag):
            raise CorruptState(self.what, f"it is tagged {chr(body[1])!r}, not {self.tag!r}")
        if body[0] != self.version:
            raise UnsupportedStateVersion(self.what, body[0], (self.version,))
        try:
            return msgspec.msgpack.decode(body[_HEAD:], type=self.layout)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise CorruptState(self.what, f"its content has another form ({error})") from None

    @contextmanager
    def restoring(self) -> Iterator[None]:
        """What an object refuses while it is rebuilt from saved content is a fault of that content."""
        try:
            yield
        except InvalidArgument as error:
            raise CorruptState(self.what, f"its content cannot be ({error})") from error

    def check(self, fits: bool, reason: str) -> None:
        """Refuse content whose parts contradict each other."""
        if not fits:
            raise CorruptState(self.what, reason)
