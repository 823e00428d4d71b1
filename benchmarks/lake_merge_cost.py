"""What the merge of a batch of panes into a Delta Lake table costs, without Spark.

The peer is a merge that users write in ``foreachBatch``: the newest pane of each row by Polars, and one merge
of deltalake. Spark's own ``MERGE INTO`` needs a jar that PyPI's ``delta-spark`` does not contain.
"""

from __future__ import annotations

import statistics
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import deltalake
import numpy as np
import polars as pl
import pyarrow as pa

from benchmarks.report import Report, record
from slackwater.progress.completeness import Completeness
from slackwater.spark.api.lake_merge import fold_batches
from slackwater.sql.commit_owner import Committer
from slackwater.sql.pane_merge import PANE_INDEX, RETRACTION
from slackwater.tables.delta_table import DeltaLakeTable
from slackwater.tables.lake_ledger import BatchCommit
from slackwater.tables.lake_table import LakeColumns

KEYS = (5_000, 50_000)
BATCHES = 12
SKIPPED = 3
RUNS = 5
AIM = 1.0


def merge_by_hand(table: str, rows: pl.DataFrame) -> None:
    """The newest pane of each key and window replaces the row before; a retraction alone deletes it."""
    newest = (
        rows.sort("index", "retraction", descending=[False, True])
        .unique(["auction", "start", "end"], keep="last", maintain_order=True)
        .select("auction", "start", "end", "bids", "total", deleted="retraction")
        .to_arrow()
    )
    if not deltalake.DeltaTable.is_deltatable(table):
        deltalake.write_deltalake(table, newest.slice(0, 0).drop_columns(["deleted"]))
    same = "old.auction = new.auction AND old.start = new.start AND old.end = new.end"
    values = {name: f"new.{name}" for name in ("auction", "start", "end", "bids", "total")}
    merger = deltalake.DeltaTable(table).merge(newest, same, source_alias="new", target_alias="old")
    merger.when_matched_delete("new.deleted").when_matched_update(
        {name: values[name] for name in ("bids", "total")}
    ).when_not_matched_insert(values, predicate="NOT new.deleted").execute()


def contents(table: str) -> pl.DataFrame:
    """The rows of a table of panes, in order."""
    found = pl.DataFrame(pl.from_arrow(deltalake.DeltaTable(table).to_pyarrow_table()))
    names = {"window_start": "start", "window_end": "end"}
    renamed = found.rename({old: new for old, new in names.items() if old in found.columns})
    columns = ("auction", "start", "end", "bids", "total")
    return renamed.select(columns).with_columns(pl.col("start", "end").cast(pl.Int64)).sort(columns)


def _pane_rows(number: int, keys: int) -> pa.Table:
    """The panes of a batch, in the types of Spark: each result is taken back before the next one."""
    generator = np.random.default_rng(number)
    auctions = np.arange(keys)
    start = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(minutes=5 * (number // 4))
    results = pl.DataFrame({"auction": [f"auction-{one}" for one in auctions]}).with_columns(
        start=pl.lit(start), end=pl.lit(start + timedelta(minutes=5)),
        bids=pl.lit(number + 1, pl.Int64), total=pl.Series(generator.integers(0, 1000, len(auctions))),
        index=pl.lit(number, pl.Int64), retraction=pl.lit(value=False),
    )  # fmt: skip
    rows = pl.concat([results.with_columns(retraction=pl.lit(value=True)), results])
    found = rows.to_arrow(compat_level=pl.CompatLevel.oldest())
    return found.set_column(0, "auction", found["auction"].cast(pa.string()))


def _measure(folder: Path, keys: int) -> tuple[float, float]:
    """CPU seconds per batch of both merges, without Spark, after the tables were found equal."""
    schema = _pane_rows(0, 1).schema
    named = {"start": "window_start", "end": "window_end", "index": PANE_INDEX, "retraction": RETRACTION}
    windows = [(named[one], schema.field(one).type) for one in ("start", "end")]
    identity = pa.schema([("auction", pa.string()), *windows])
    columns = LakeColumns(identity, pa.schema([("bids", pa.int64()), ("total", pa.int64())]), {})
    ours_took, by_hand_took = (list[list[float]]() for _ in range(2))
    for turn in range(RUNS):
        ours, by_hand = DeltaLakeTable(str(folder / f"ours-{turn}")), str(folder / f"hand-{turn}")
        ours.prepare(columns, create=True)
        ours_took.append([])
        by_hand_took.append([])
        for number in range(BATCHES):
            rows = _pane_rows(number, keys)
            batches = rows.rename_columns([named.get(one, one) for one in rows.column_names]).to_batches()
            started = time.process_time()
            done = BatchCommit("bench", number, Committer("bench"), Completeness(number))
            assert ours.merge(columns, fold_batches(columns, batches), done)
            between = time.process_time()
            merge_by_hand(by_hand, pl.DataFrame(pl.from_arrow(rows)))
            ended = time.process_time()
            ours_took[-1].append(between - started)
            by_hand_took[-1].append(ended - between)
        assert contents(ours.location).equals(contents(by_hand))
    return _mean_of_best(ours_took), _mean_of_best(by_hand_took)


def _mean_of_best(turns: list[list[float]]) -> float:
    """The mean over the batches, each the best of all turns."""
    record([sum(batches[SKIPPED:]) for batches in turns])
    return statistics.fmean(min(several) for several in list(zip(*turns, strict=True))[SKIPPED:])


def run(report: Report) -> None:
    """Both merges of the same panes, in turns."""
    section = report.section(
        "Panes into a Delta Lake table: the merge alone",
        f"{BATCHES} batches into a table that starts empty; in each one, every key has a retraction and a "
        "new result, and the window changes every fourth batch. CPU seconds of one process per batch, from "
        f"Arrow on, without the first {SKIPPED}, best of {RUNS} for each; both tables are equal. `merge_into`"
        " records the batch, so that it is applied once, and the completeness; the merge written by hand "
        "records nothing.",
        ["keys", "merge_into", "written by hand", "ratio"],
    )
    for keys in KEYS:
        with TemporaryDirectory() as name:
            ours, by_hand = _measure(Path(name), keys)
        section.row(keys, f"{ours:.4f}", f"{by_hand:.4f}", f"{by_hand / ours:.2f}")
        said = "met" if by_hand / ours >= AIM else "MISSED"
        section.verdict(f"{keys:,} keys: {by_hand / ours:.2f} times as fast (aim: at least equal): {said}")
    report.show(section)
