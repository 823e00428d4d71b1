"""Tables of files of each format, and their rows."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from slackwater.tables.delta_table import DeltaLakeTable
from slackwater.tables.iceberg_table import IcebergTable
from slackwater.tables.lake_table import LakeColumns, LakeTable
from slackwater.tables.parquet_table import DATA, ParquetTable
from tests.spark.oracle import Truth, micros

FORMATS = ("delta", "iceberg", "parquet")


def catalog_properties(folder: Path) -> dict[str, str]:
    """The properties of an Iceberg catalog in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}


def lake(kind: str, folder: Path, name: str = "totals") -> LakeTable:
    """A table that does not exist yet."""
    match kind:
        case "delta":
            return DeltaLakeTable(str(folder / name))
        case "iceberg":
            return IcebergTable("lake", f"shop.{name}", catalog_properties(folder))
        case _:
            return ParquetTable(str(folder / name))


def rows_of(table: LakeTable) -> pl.DataFrame:
    """The rows of a table, as a reader that does not know Slackwater finds them."""
    match table:
        case DeltaLakeTable():
            found = DeltaTable(table.location).to_pyarrow_table()
        case IcebergTable():
            catalog = load_catalog(table.catalog, **table.properties)
            found = catalog.load_table(table.identifier).scan().to_arrow()
        case _:
            assert isinstance(table, ParquetTable)
            found = pq.read_table(Path(table.folder) / DATA)
    return pl.DataFrame(pl.from_arrow(found))


def truth_in(table: LakeTable) -> Truth:
    """The content of a table of panes by ``key``; asserts that it has one row per key and window."""
    truth: Truth = {}
    for row in rows_of(table).rows(named=True):
        group = (row.pop("key"), micros(row.pop("window_start")), micros(row.pop("window_end")))
        assert group not in truth, f"two rows for {group}"
        truth[group] = {
            name: sorted(value) if isinstance(value, list) else value for name, value in row.items()
        }
    return truth


COLUMNS = LakeColumns(
    pa.schema([("key", pa.string()), ("window_start", pa.timestamp("us", "UTC"))]),
    pa.schema([("n", pa.int64()), ("best", pa.float64()), ("all", pa.list_(pa.int64()))]),
)


def changes(*rows: tuple[Any, ...]) -> pl.DataFrame:
    """Changes (key, second, n, best, all, deleted)."""
    schema: dict[str, Any] = {
        "key": pl.String,
        "window_start": pl.Datetime("us", "UTC"),
        "n": pl.Int64,
        "best": pl.Float64,
        "all": pl.List(pl.Int64),
        "deleted": pl.Boolean,
    }
    timed = [(key, datetime.fromtimestamp(second, UTC), *rest) for key, second, *rest in rows]
    return pl.DataFrame(timed, schema=schema, orient="row")


def contents(table: LakeTable) -> list[tuple[Any, ...]]:
    """The rows of a table with the columns `COLUMNS`, in order; windows in seconds."""
    rows = rows_of(table).select("key", pl.col("window_start").dt.epoch("s"), "n", "best", "all")
    return sorted(rows.rows(), key=lambda row: (row[0] is None, row[0] or "", row[1]))
