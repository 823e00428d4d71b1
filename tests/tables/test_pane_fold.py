"""Folding panes in memory gives the changes that an upsert makes in SQL."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from slackwater.progress.completeness import Completeness
from slackwater.sql.commit_owner import Committer
from slackwater.sql.database import database_url, temporary_engine
from slackwater.sql.pane_merge import PANE_INDEX, RETRACTION, merge_panes, stage_panes
from slackwater.sql.pane_table import PaneColumn, PaneTable
from slackwater.sql.pane_targets import Fold
from slackwater.tables.lake_ledger import BatchCommit
from slackwater.tables.lake_table import LakeColumns
from slackwater.tables.pane_fold import folded_panes
from slackwater.tables.parquet_table import ParquetTable
from tests.support.sampling import sampled
from tests.tables.lakes import rows_of

SCHEMA = pa.schema(
    [
        ("key", pa.int64()),
        ("n", pa.int64()),
        ("x", pa.float64()),
        (PANE_INDEX, pa.int64()),
        (RETRACTION, pa.bool_()),
    ]
)
KEY = (PaneColumn("key", "long"),)
VALUES = (PaneColumn("n", "long"), PaneColumn("x", "double"))
COLUMNS = LakeColumns(pa.schema([SCHEMA.field("key")]), pa.schema([SCHEMA.field("n"), SCHEMA.field("x")]))


def panes(random: Random, *, retracting: bool) -> pa.RecordBatch:
    rows = [
        {
            "key": random.choice([1, 2, 3, None]),
            "n": random.choice([None, *range(5)]),
            "x": random.choice([None, 0.5, 1.5]),
            PANE_INDEX: random.randrange(4),
            RETRACTION: retracting and random.random() < 0.4,
        }
        for _ in range(random.randrange(8))
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


@pytest.mark.parametrize("fold", [{}, {"n": "sum", "x": "max"}, {"n": "min", "x": "sum"}], ids=str)
@pytest.mark.parametrize("seed", sampled(range(4), keep=range(4), check=[0]))
def test_the_rows_are_those_of_an_upsert(seed: int, fold: dict[str, Fold], tmp_path: Path) -> None:
    random = Random(seed)
    url = database_url(f"sqlite:///{tmp_path}/totals.db")
    target = PaneTable(url, "totals", KEY, VALUES, windows=False, fold=fold).prepare(create=True)
    table = ParquetTable(str(tmp_path / "totals"))
    columns = LakeColumns(COLUMNS.identity, COLUMNS.values, fold)
    table.prepare(columns, create=True)
    for number in range(6):
        batch = panes(random, retracting=not fold)
        frame = pl.DataFrame(pl.from_arrow(batch))
        changes = folded_panes(frame, ["key"], fold, index=PANE_INDEX, retraction=RETRACTION)
        assert changes["key"].is_unique().all()
        table.merge(columns, changes, BatchCommit("q", number, Committer("q"), Completeness()))
        with temporary_engine(url) as engine, engine.begin() as connection:
            staged = stage_panes(connection, target, [batch], "q")
            merge_panes(connection, target, [staged], "q", number)
            expected = [tuple(row) for row in connection.exec_driver_sql("SELECT key, n, x FROM totals")]
        assert sorted(rows_of(table).rows(), key=repr) == sorted(expected, key=repr)


def test_a_sum_of_nothing_is_null() -> None:
    rows: dict[str, Any] = {"key": [1, 1], "n": [None, None], "i": [0, 1], "r": [False, False]}
    frame = pl.DataFrame(rows, schema_overrides={"n": pl.Int64})
    assert folded_panes(frame, ["key"], {"n": "sum"}, index="i", retraction="r").rows() == [(1, None, False)]
