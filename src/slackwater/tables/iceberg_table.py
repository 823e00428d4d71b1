"""An Apache Iceberg table as the target of panes: one transaction of pyiceberg for each batch.

The rows in the range of the changed keys and windows are read, changed, and written again, because pyiceberg
deletes by a condition and not by rows. The ledger entry of a query is a property of the table, which is set
in the transaction of the batch; the snapshot has it as well.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import polars as pl
import pyarrow as pa

from slackwater.errors import InvalidArgument, MissingExtra
from slackwater.tables.lake_ledger import BatchCommit, LedgerEntry
from slackwater.tables.lake_table import Conditions, LakeColumns, LakeTable, LostRace, changed_rows

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import Table

ENTRY: Final = "slackwater.ledger."
"""The prefix of the properties with the entries of the ledger, one for each identity."""
COMPLETE: Final = "slackwater.complete_until"
BATCH: Final = "slackwater.batch"


@dataclass(frozen=True)
class IcebergTable(LakeTable):
    """An Iceberg table by its catalog and identifier.

    ``properties`` configure the catalog; `configured` looks them up.

    >>> IcebergTable("prod", "shop.totals").name
    'iceberg:prod/shop.totals'
    """

    catalog: str
    identifier: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if "." not in self.identifier or not self.catalog:
            raise InvalidArgument(
                "table", f"iceberg:{self.catalog}/{self.identifier}", "is not a catalog and an identifier",
                fix='write "iceberg:catalog/namespace.table"',
            )  # fmt: skip

    def configured(self) -> IcebergTable:
        """The table with the properties of its catalog in pyiceberg's configuration, as this process has it.

        The configuration is the file ``.pyiceberg.yaml``, or variables such as
        ``PYICEBERG_CATALOG__PROD__URI``.

        Raises:
            InvalidArgument: The catalog is not configured.
        """
        found = _library("pyiceberg.utils.config").Config().get_catalog_config(self.catalog)
        if not found:
            raise InvalidArgument(
                "table", self.name, f"names the catalog {self.catalog!r}, which is not configured",
                fix=f"set PYICEBERG_CATALOG__{self.catalog.upper()}__URI, or add it to .pyiceberg.yaml",
            )  # fmt: skip
        return replace(self, properties={str(name): str(value) for name, value in found.items()})

    @property
    def name(self) -> str:
        """The table in messages."""
        return f"iceberg:{self.catalog}/{self.identifier}"

    def columns(self) -> pa.Schema | None:
        """The columns of the table; None if it does not exist."""
        table = self._find()
        return None if table is None else table.schema().as_arrow()

    def create(self, schema: pa.Schema) -> None:
        """Create the table, and its namespace."""
        catalog = self._catalog()
        catalog.create_namespace_if_not_exists(self.identifier.rpartition(".")[0])
        catalog.create_table_if_not_exists(self.identifier, schema=schema)

    def ledger(self) -> dict[str, LedgerEntry]:
        """The entries of all identities."""
        table = self._find()
        return {} if table is None else _ledger(table)

    def rows(self, names: Sequence[str], conditions: Conditions) -> pl.DataFrame:
        """Some columns of the rows for which all conditions hold."""
        expressions = _library("pyiceberg.expressions")
        compared = {"<": expressions.LessThan, ">": expressions.GreaterThan}
        given = [compared[sign](name, value.isoformat()) for name, sign, value in conditions]
        chosen = reduce(expressions.And, given, expressions.AlwaysTrue())
        table = self._catalog().load_table(self.identifier)
        return pl.DataFrame(pl.from_arrow(table.scan(chosen, selected_fields=tuple(names)).to_arrow()))

    def attempt(self, columns: LakeColumns, changes: pl.DataFrame, batch: BatchCommit) -> bool:
        """Apply changes and record the batch in one transaction."""
        exceptions = _library("pyiceberg.exceptions")
        table = self._catalog().load_table(self.identifier)
        known = _ledger(table)
        entry = batch.entry(self.name, known)
        if entry is None:
            return False
        stated = {BATCH: str(batch.number)}
        if entry.complete_until is not None:
            stated[COMPLETE] = str(entry.complete_until)
        schema = table.schema().as_arrow()
        try:
            with table.transaction() as transaction:
                if changes.is_empty():
                    transaction.append(schema.empty_table(), snapshot_properties=stated)
                else:
                    range_ = _range(columns, changes)
                    before = pl.DataFrame(pl.from_arrow(table.scan(row_filter=range_).to_arrow()))
                    rows = changed_rows(before, columns, changes, schema)
                    # never an append, which would be rebased on a commit that came first
                    with warnings.catch_warnings(action="ignore", category=UserWarning):
                        transaction.overwrite(rows, overwrite_filter=range_, snapshot_properties=stated)
                replaced = known.keys() - batch.record(known, entry).keys()
                transaction.remove_properties(*(ENTRY + name for name in replaced))
                transaction.set_properties({ENTRY + batch.identity: entry.encode()})
        except (exceptions.CommitFailedException, exceptions.ValidationException) as error:
            raise LostRace(str(error)) from error
        return True

    def _find(self) -> Table | None:
        catalog = self._catalog()
        return catalog.load_table(self.identifier) if catalog.table_exists(self.identifier) else None

    def _catalog(self) -> Catalog:
        catalog: Catalog = _library("pyiceberg.catalog").load_catalog(self.catalog, **self.properties)
        return catalog


def _ledger(table: Table) -> dict[str, LedgerEntry]:
    return {
        key.removeprefix(ENTRY): LedgerEntry.decode(text)
        for key, text in table.properties.items()
        if key.startswith(ENTRY)
    }


def _range(columns: LakeColumns, changes: pl.DataFrame) -> BooleanExpression:
    """A condition that holds for all rows that the changes identify, and perhaps for others."""
    expressions = _library("pyiceberg.expressions")
    conditions: list[BooleanExpression] = []
    for name in columns.identity.names:
        found = changes[name]
        bounds = _bounds(found)
        if bounds is None:
            continue
        low, high = bounds
        within = expressions.And(
            expressions.GreaterThanOrEqual(name, low), expressions.LessThanOrEqual(name, high)
        )
        conditions.append(expressions.Or(within, expressions.IsNull(name)) if found.null_count() else within)
    condition: BooleanExpression = reduce(expressions.And, conditions, expressions.AlwaysTrue())
    return condition


def _bounds(values: pl.Series) -> tuple[Any, Any] | None:
    """The lowest and the highest value, as literals of a condition; None if there are none to use."""
    kind = values.dtype
    if not (kind.is_integer() or kind.is_temporal() or kind == pl.String):
        return None
    low, high = values.min(), values.max()
    if low is None or high is None:
        return None
    return (low.isoformat(), high.isoformat()) if kind.is_temporal() else (low, high)  # type: ignore[union-attr]


def _library(name: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ModuleNotFoundError:
        raise MissingExtra("iceberg", "pyiceberg") from None
