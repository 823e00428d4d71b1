"""The binary format of saved state: compact, versioned and checksummed.

Saved state stays in a state store as long as the query exists, which can be longer than any release. It
therefore starts with a version and a tag, and ends with a checksum of all preceding bytes. Truncated or
modified bytes, bytes of another object and bytes of another version raise an error; they never load as a
wrong watermark.

    version (1 byte) | tag (1 byte) | MessagePack arrays | CRC-32 (4 bytes, big-endian)
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import msgspec

from slackwater.errors import CorruptState, InvalidArgument, UnsupportedStateVersion

_HEAD: Final = 2
_CHECKSUM: Final = 4

Layout = TypeVar("Layout", bound=msgspec.Struct)
Content = TypeVar("Content", bound=msgspec.Struct)


class Saved(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """The base class of saved layouts. Fields are encoded by position, without their names."""


@dataclass(frozen=True, slots=True)
class OlderForm(Generic[Layout]):
    """A version that earlier releases wrote: its layout, and how to convert it to the current one."""

    version: int
    layout: type[msgspec.Struct]
    upgrade: Callable[[Any], Layout]


@dataclass(frozen=True, slots=True)
class SavedForm(Generic[Layout]):
    """The format of one kind of state: its name in errors, its tag, its version and its layout.

    ``readable`` lists earlier versions that can still be loaded: their layouts lack only trailing fields,
    which have defaults. ``older`` are versions with another layout, which are converted.

    >>> class Point(Saved):
    ...     x: int
    >>> form = SavedForm("point", "p", 1, Point)
    >>> form.decode(form.encode(Point(3))).x
    3
    >>> form.decode(form.encode(Point(3))[:-1])
    Traceback (most recent call last):
    slackwater.errors.CorruptState: cannot load the saved point: its checksum does not match its \
content; restore an intact copy, or start without saved state
    """

    what: str
    tag: str
    version: int
    layout: type[Layout]
    readable: tuple[int, ...] = ()
    older: tuple[OlderForm[Layout], ...] = ()

    def encode(self, state: Layout) -> bytes:
        """Serialize ``state``."""
        body = bytes((self.version, ord(self.tag))) + msgspec.msgpack.encode(state)
        return body + zlib.crc32(body).to_bytes(_CHECKSUM, "big")

    def decode(self, data: bytes) -> Layout:
        """Deserialize what `encode` returned, or raise a `StateError` that states the problem."""
        if len(data) <= _HEAD + _CHECKSUM:
            raise CorruptState(self.what, f"it has only {len(data)} bytes")
        body, checksum = data[:-_CHECKSUM], data[-_CHECKSUM:]
        if zlib.crc32(body).to_bytes(_CHECKSUM, "big") != checksum:
            raise CorruptState(self.what, "its checksum does not match its content")
        if body[1] != ord(self.tag):
            raise CorruptState(self.what, f"its tag is {chr(body[1])!r}, not {self.tag!r}")
        if body[0] == self.version or body[0] in self.readable:
            return self._read(body, self.layout)
        for form in self.older:
            if body[0] == form.version:
                return form.upgrade(self._read(body, form.layout))
        supported = sorted((self.version, *self.readable, *(form.version for form in self.older)))
        raise UnsupportedStateVersion(self.what, body[0], supported)

    def _read(self, body: bytes, layout: type[Content]) -> Content:
        try:
            return msgspec.msgpack.decode(body[_HEAD:], type=layout)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise CorruptState(self.what, f"its content does not match the layout ({error})") from None

    @contextmanager
    def restoring(self) -> Iterator[None]:
        """Report an InvalidArgument raised while an object is rebuilt as corrupt state."""
        try:
            yield
        except InvalidArgument as error:
            raise CorruptState(self.what, f"its content is invalid ({error})") from error

    def check(self, consistent: bool, reason: str) -> None:
        """Raise CorruptState with ``reason`` unless the parts of the content are consistent."""
        if not consistent:
            raise CorruptState(self.what, reason)
