"""Schema drift: how the columns of a source are fitted to the columns of a target.

Types are compared by the values that they can hold, not by their names: a 32-bit integer fits a 64-bit
column. Columns that do not fit are rejected before a row is read, and the error names all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from slackwater.errors import SlackwaterError
from slackwater.ingest.sources.arrow_types import plain_type
from slackwater.ingest.sources.spark_columns import Columns

_DIGITS: Final = {8: 3, 16: 5, 32: 10, 64: 19}
_EXACT_BITS: Final = {16: 8, 32: 16, 64: 32}
_FIX: Final = "alter the target, select other columns, or set ms.schema.drift to add or ignore"


class SchemaDrift(SlackwaterError):
    """The columns of the source do not match those of the target, and `ms.schema.drift` does not allow it."""

    def __init__(self, new: list[str], missing: list[str], changed: list[str], fix: str = _FIX) -> None:
        self.new = new
        self.missing = missing
        self.changed = changed
        difference = _describe(new, missing, changed)
        super().__init__(f"the source columns do not match the target ({difference}); {fix}")


@dataclass(frozen=True)
class Fit:
    """How the columns of a source become those of a target.

    >>> fit({"a": pa.int32(), "b": pa.string()}, {"a": pa.int64(), "c": pa.bool_()}, "add").written
    {'a': DataType(int64), 'b': DataType(string)}
    """

    all_columns: dict[str, pa.DataType]
    """The columns of the target after the write."""
    new: tuple[str, ...] = ()
    """Those that the target does not have yet."""
    missing: tuple[str, ...] = ()
    """Those that the source does not have."""
    cast: tuple[str, ...] = ()
    """Source columns with another type in the target."""
    difference: str | None = None
    """Description of the differences; None if there are none."""

    @property
    def written(self) -> dict[str, pa.DataType]:
        """The source columns that are written."""
        return {name: kind for name, kind in self.all_columns.items() if name not in self.missing}


def holds(known: pa.DataType, found: pa.DataType) -> bool:
    """Whether type ``known`` can represent every value of type ``found``.

    >>> holds(pa.int64(), pa.int32()), holds(pa.int32(), pa.int64()), holds(pa.float64(), pa.int64())
    (True, False, False)
    >>> holds(pa.decimal128(12, 2), pa.decimal128(10, 2)), holds(pa.decimal128(12, 2), pa.decimal128(12, 3))
    (True, False)
    """
    if known == found or pa.types.is_null(found):
        return True
    if pa.types.is_signed_integer(found):
        if pa.types.is_signed_integer(known):
            return bool(known.bit_width >= found.bit_width)
        if pa.types.is_decimal(known):
            return bool(known.precision - known.scale >= _DIGITS[found.bit_width])
        return pa.types.is_floating(known) and bool(found.bit_width <= _EXACT_BITS[known.bit_width])
    if pa.types.is_floating(found):
        return pa.types.is_floating(known) and bool(known.bit_width >= found.bit_width)
    if pa.types.is_decimal(found) and pa.types.is_decimal(known):
        whole = known.precision - known.scale >= found.precision - found.scale
        return whole and bool(known.scale >= found.scale)
    return False


def fit(found: Columns, known: Columns | None, policy: str) -> Fit:
    """Fit the columns ``found`` in a source to the ``known`` columns of a target; None if it does not exist.

    Policy ``fail`` accepts neither new nor missing columns, nor a type whose values may not fit. ``add`` adds
    new columns and fills missing ones with null. ``ignore`` drops new columns and casts values that may not
    fit; a value that cannot be cast then fails the unit, because it would be lost.

    >>> fit({"a": pa.string(), "b": pa.string()}, {"a": pa.int64()}, "ignore").cast
    ('a',)
    >>> fit({"a": pa.string(), "b": pa.string()}, {"a": pa.int64(), "c": pa.int64()}, "fail")
    Traceback (most recent call last):
    slackwater.ingest.targets.schema_drift.SchemaDrift: the source columns do not match the target (new: \
b; missing: c; changed: a from int64 to string); alter the target, select other columns, or set \
ms.schema.drift to add or ignore
    """
    if known is None:
        plain = {name: plain_type(kind) for name, kind in found.items()}
        return Fit(plain, cast=tuple(name for name in found if plain[name] != found[name]))
    new = [name for name in found if name not in known]
    missing = [name for name in known if name not in found]
    changed = [
        f"{name} from {known[name]} to {found[name]}"
        for name in found
        if name in known and not holds(known[name], found[name])
    ]
    if (policy == "fail" and (new or missing)) or (policy != "ignore" and changed):
        raise SchemaDrift(new, missing, changed)
    added = new if policy == "add" else []
    all_columns = {**known, **{name: plain_type(found[name]) for name in added}}
    cast = [name for name, kind in all_columns.items() if name in found and kind != found[name]]
    difference = _describe(new, missing, changed) or None
    return Fit(all_columns, tuple(added), tuple(missing), tuple(cast), difference)


def _describe(new: list[str], missing: list[str], changed: list[str]) -> str:
    groups = {"new": new, "missing": missing, "changed": changed}
    return "; ".join(f"{group}: {', '.join(names)}" for group, names in groups.items() if names)
