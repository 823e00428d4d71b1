"""The origins of an operator in a report: each with its watermarks and its state.

A report may be sent with every batch, so it has a bounded size. The slowest origins are listed as they are;
the others follow in a packed form, which only the views that show them unpack.
"""

from __future__ import annotations

import base64
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args, overload

import msgspec

OriginStatus = Literal["active", "idle", "silent", "gap", "done"]
"""``active``: it sends. ``silent``: it is waited for but has sent nothing since the last batch, or ever.
``gap``: a numbered buffer of it is missing. ``idle`` and ``done``: it is not waited for."""

LISTED: Final = 200
"""How many origins of an operator are listed as they are, the slowest."""
MOST_ORIGINS: Final = 20_000
"""How many origins a report has; if there are more, it has the slowest nine tenths and the fastest tenth."""
MOST_PACKED: Final = 500_000
"""The most characters of the packed origins; there are fewer of them if their names do not compress."""

_STATUSES: Final = get_args(OriginStatus)
_UNKNOWN: Final = -(2**63)
"""Stands for no watermark, before all others."""
_STATUS_NUMBERS: Final = {status: number for number, status in enumerate(_STATUSES)}


class OriginState(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """An origin of a source: a partition, a file, a writer.

    >>> OriginState("7", "silent", {"default": 5}, since=20).watermark
    5
    """

    name: str
    status: OriginStatus
    watermarks: dict[str, int | None] = {}
    """By watermark key; None if it has none yet."""
    since: int | None = None
    """Since when it has the status, or last sent something; None if unknown."""
    input: str | None = None
    """The name of the input, if the operator has several."""
    gap: str | None = None
    """The missing buffers, if the status is ``gap``."""

    @property
    def watermark(self) -> int | None:
        """The lowest watermark over all keys; None if one is unknown."""
        values = self.watermarks.values()
        return None if not values or None in values else min(values)  # type: ignore[type-var]


@dataclass(frozen=True)
class OriginColumns:
    """The origins of a source with one watermark key, column by column."""

    key: str
    names: Sequence[str]
    statuses: Sequence[OriginStatus]
    watermarks: Sequence[int | None]
    since: Sequence[int | None]

    def order(self) -> list[int]:
        """The positions of the origins by watermark, those without one first, and then by name."""
        import numpy as np  # only for reports: programs that read them start without it

        values = np.array([_UNKNOWN if at is None else at for at in self.watermarks], np.int64)
        order = np.argsort(values, kind="stable")
        if (np.diff(values[order]) == 0).any():
            order = np.lexsort((np.array(self.names), values))
        return order.tolist()  # type: ignore[no-any-return]

    def states(self, positions: Iterable[int]) -> list[OriginState]:
        """The origins at these positions."""
        return [
            OriginState(self.names[at], self.statuses[at], {self.key: self.watermarks[at]}, self.since[at])
            for at in positions
        ]

    def packed(self, positions: Sequence[int]) -> str:
        """The origins at these positions, packed."""
        if not positions:
            return ""
        return _encoded(
            _Columns(
                [self.names[at] for at in positions],
                bytes([_STATUS_NUMBERS[self.statuses[at]] for at in positions]),
                [self.since[at] for at in positions],
                [(None, [self.key])],
                [0] * len(positions),
                [*zip([self.watermarks[at] for at in positions], strict=True)],
                {},
            )
        )


class OriginSummary(msgspec.Struct, frozen=True, omit_defaults=True):
    """The origins of an operator.

    >>> OriginSummary({"active": 40_000}, left_out=20_000).total
    40000
    """

    counts: dict[str, int] = {}
    """The number of origins by status, over all of them."""
    listed: tuple[OriginState, ...] = ()
    """The slowest, by watermark, those without one first."""
    left_out: int = 0
    """How many are counted, but neither listed nor packed."""
    packed: str = ""
    """The origins after ``listed`` in the same order, for `all`."""

    @classmethod
    def of(cls, origins: Iterable[OriginState]) -> OriginSummary:
        """Count origins, list the slowest `LISTED`, and pack the others.

        >>> OriginSummary.of([OriginState("a", "idle", {"default": 7}), OriginState("b", "silent")]).counts
        {'idle': 1, 'silent': 1}
        >>> many = OriginSummary.of(OriginState(str(at), "active", {"default": at}) for at in range(3_000))
        >>> len(many.listed), len(many.all()), many.all()[2_999].name
        (200, 3000, '2999')
        """
        ordered = sorted(origins, key=_by_watermark)
        counts = dict(sorted(Counter[str](origin.status for origin in ordered).items()))
        others = _ends(ordered[LISTED:], MOST_ORIGINS - LISTED)
        packed = _packed(others)
        while len(packed) > MOST_PACKED:
            others = _ends(others, len(others) * MOST_PACKED * 9 // (len(packed) * 10))
            packed = _packed(others)
        listed = tuple(ordered[:LISTED])
        return cls(counts, listed, len(ordered) - len(listed) - len(others), packed)

    @classmethod
    def of_columns(cls, columns: OriginColumns) -> OriginSummary:
        """Do the same as `of` for origins with one watermark key, of which there may be thousands in a batch.

        >>> columns = OriginColumns("default", ["a", "b"], ["idle", "silent"], [7, None], [0, 0])
        >>> OriginSummary.of_columns(columns) == OriginSummary.of(columns.states(range(2)))
        True
        """
        order = columns.order()
        others = order[LISTED:]
        packed = columns.packed(others)
        if len(order) > MOST_ORIGINS or len(packed) > MOST_PACKED:
            return cls.of(columns.states(order))
        counts = dict(sorted(Counter[str](columns.statuses).items()))
        return cls(counts, tuple(columns.states(order[:LISTED])), 0, packed)

    @property
    def total(self) -> int:
        """The number of origins."""
        return sum(self.counts.values())

    def all(self) -> Sequence[OriginState]:
        """The listed and the packed origins, the slowest first; one of the packed is made when it is read."""
        return _Origins(self.listed, _unpacked(self.packed)) if self.packed else self.listed

    def named(self, matches: Callable[[str], bool]) -> list[OriginState]:
        """The origins whose names match: of the listed or, if there is none, of the packed.

        >>> OriginSummary.of([OriginState("7", "idle")]).named(lambda name: name == "7")[0].status
        'idle'
        """
        found = [origin for origin in self.listed if matches(origin.name)]
        if found or not self.packed:
            return found
        columns = _unpacked(self.packed)
        several = _Origins((), columns)
        return [several[number] for number, name in enumerate(columns.names) if matches(name)]


class _Columns(msgspec.Struct, array_like=True):
    """Origins column by column, which compresses well."""

    names: list[str]
    statuses: bytes
    since: list[int | None]
    schemas: list[tuple[str | None, list[str]]]
    """The distinct inputs with their watermark keys."""
    schema_of: list[int]
    watermarks: Sequence[Sequence[int | None]]
    gaps: dict[int, str]
    """By position."""


_columns: Final = msgspec.msgpack.Decoder(_Columns)


def _ends(origins: Sequence[OriginState], most: int) -> Sequence[OriginState]:
    """At most so many of them: nine tenths from the beginning, one tenth from the end."""
    if len(origins) <= most:
        return origins
    fastest = most // 10
    return [*origins[: most - fastest], *origins[len(origins) - fastest :]]


def _packed(origins: Sequence[OriginState]) -> str:
    if not origins:
        return ""
    numbers: dict[tuple[str | None, tuple[str, ...]], int] = {}
    schema_of = [
        numbers.setdefault((origin.input, tuple(origin.watermarks)), len(numbers)) for origin in origins
    ]
    columns = _Columns(
        [origin.name for origin in origins],
        bytes([_STATUS_NUMBERS[origin.status] for origin in origins]),
        [origin.since for origin in origins],
        [(name, list(keys)) for name, keys in numbers],
        schema_of,
        [[*origin.watermarks.values()] for origin in origins],
        {number: origin.gap for number, origin in enumerate(origins) if origin.gap is not None},
    )
    return _encoded(columns)


def _encoded(columns: _Columns) -> str:
    return base64.b64encode(zlib.compress(msgspec.msgpack.encode(columns), 1)).decode()


def _unpacked(packed: str) -> _Columns:
    return _columns.decode(zlib.decompress(base64.b64decode(packed)))


class _Origins(Sequence[OriginState]):
    """Listed origins, followed by those of columns."""

    def __init__(self, listed: Sequence[OriginState], columns: _Columns) -> None:
        self._listed = listed
        self._columns = columns

    def __len__(self) -> int:
        return len(self._listed) + len(self._columns.names)

    @overload
    def __getitem__(self, index: int) -> OriginState: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[OriginState]: ...
    def __getitem__(self, index: int | slice) -> OriginState | Sequence[OriginState]:
        if isinstance(index, slice):
            return [self._at(each) for each in range(*index.indices(len(self)))]
        return self._at(range(len(self))[index])

    def _at(self, index: int) -> OriginState:
        if index < len(self._listed):
            return self._listed[index]
        columns, index = self._columns, index - len(self._listed)
        name, keys = columns.schemas[columns.schema_of[index]]
        return OriginState(
            columns.names[index], _STATUSES[columns.statuses[index]],
            dict(zip(keys, columns.watermarks[index], strict=True)), columns.since[index], name,
            columns.gaps.get(index),
        )  # fmt: skip


def _by_watermark(origin: OriginState) -> tuple[bool, int, str]:
    """Those without a watermark first."""
    at = origin.watermark
    return at is not None, at or 0, origin.name
