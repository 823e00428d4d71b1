"""Codec for columns with few possible values: several of them packed into one integer.

Each column is a digit of a mixed-radix number. Digit 0 is null, digit ``n`` is the ``n``-th possible value.
Polars packs in the worker, and a Spark expression unpacks in the JVM.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import polars as pl
from pyspark.sql.types import DataType, LongType, StringType

FlagValues = tuple[str, ...] | tuple[bool, ...] | tuple[int, ...]
"""All values of a column apart from null; integers are consecutive from 0."""


@dataclass(frozen=True)
class Flag:
    """A column with few possible values."""

    name: str
    kind: DataType
    values: FlagValues

    @property
    def radix(self) -> int:
        """The number of digits: one for each value and one for null."""
        return len(self.values) + 1

    def digit(self) -> pl.Expr:
        """The digit of each row; a value that is not one of ``values`` raises when it is computed."""
        value = pl.col(self.name)
        if isinstance(self.kind, StringType):
            value = value.cast(pl.Enum([str(known) for known in self.values])).to_physical()
        elif isinstance(self.kind, LongType):
            value = value.replace_strict([None, *self.values], [None, *self.values])
        return (value.cast(pl.Int32) + 1).fill_null(0)


@dataclass(frozen=True)
class PackedFlags:
    """Packs several flags into one 32-bit integer, and unpacks them.

    >>> flags = PackedFlags(
    ...     (Flag("timing", StringType(), ("EARLY", "LATE")), Flag("index", LongType(), (0,)))
    ... )
    >>> panes = pl.DataFrame({"timing": ["EARLY", "LATE", None], "index": [0, None, 0]})
    >>> panes.select(flags.pack(panes.columns)).to_series().to_list()
    [4, 2, 3]
    """

    flags: tuple[Flag, ...]

    def __bool__(self) -> bool:
        return bool(self.flags)

    def pack(self, given: Sequence[str]) -> pl.Expr:
        """The packed flags of each row; a flag that is not among the ``given`` columns is null."""
        digits = (flag.digit() * self.weight(flag.name) for flag in self.flags if flag.name in given)
        return sum(digits, start=pl.lit(0, pl.Int32))

    def unpack(self, name: str, packed: str) -> str:
        """The values of the flag ``name``, as a Spark expression over the column ``packed``.

        >>> from pyspark.sql.types import BooleanType
        >>> flags = PackedFlags((Flag("retraction", BooleanType(), (False, True)),))
        >>> flags.unpack("retraction", "packed")
        'element_at(array(CAST(NULL AS boolean), false, true), CAST(`packed` div 1 % 3 + 1 AS int))'
        """
        flag = next(flag for flag in self.flags if flag.name == name)
        digit = f"`{packed}` div {self.weight(name)} % {flag.radix}"
        if isinstance(flag.kind, LongType):
            return f"CAST(nullif({digit}, 0) AS bigint) - 1"
        values = (f"'{value}'" if isinstance(value, str) else str(value).lower() for value in flag.values)
        nothing = f"CAST(NULL AS {flag.kind.simpleString()})"
        return f"element_at(array({nothing}, {', '.join(values)}), CAST({digit} + 1 AS int))"

    def weight(self, name: str) -> int:
        """The weight of a flag's digit: the product of the radices before it."""
        names = [flag.name for flag in self.flags]
        return prod(flag.radix for flag in self.flags[: names.index(name)])
