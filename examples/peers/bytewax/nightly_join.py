"""Give each order the price that is valid at its time; `load` loads new prices every night.

There is no as-of join, so each batch of orders is joined with all prices by pandas. An order that arrives before the load
of its day gets the price of the day before.
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import bytewax.operators as op
import pandas as pd
from bytewax.dataflow import Stream
from bytewax.outputs import Sink

QUERY = "SELECT product, valid_from, price FROM prices WHERE valid_from >= ? AND valid_from < ?"


def load(database: str, folder: Path, midnight: str) -> None:
    since = max((file.stem for file in folder.glob("*.parquet")), default="2024-05-01")
    with closing(sqlite3.connect(database)) as connection:
        prices = pd.read_sql(QUERY, connection, params=(since, midnight), parse_dates=["valid_from"])
    prices.to_parquet(folder / f"{midnight}.parquet")


def pipeline(orders: Stream[dict[str, Any]], folder: Path, sink: Sink[Any]) -> None:
    def priced(batch: list[dict[str, Any]]) -> list[dict[str, Any]]:
        prices = pd.read_parquet(folder).rename(columns={"valid_from": "at"}).sort_values("at")
        rows = pd.merge_asof(pd.DataFrame(batch).sort_values("at"), prices, on="at", by="product")
        return rows.to_dict("records")

    op.output("write", op.flat_map_batch("price", orders, priced), sink)
