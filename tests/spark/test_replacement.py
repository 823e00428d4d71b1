"""`sw.replace_results`: a day that is read again replaces exactly the windows that it touches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import slackwater as sw
from slackwater.errors import InvalidArgument
from slackwater.progress.completeness import Completeness
from slackwater.spark.api.panes import Panes
from slackwater.sql.commit_owner import Committer
from slackwater.sql.pane_targets import TableDoesNotFit
from slackwater.table_progress.replaced_results import Replacement
from slackwater.tables.lake_ledger import BatchCommit
from slackwater.tables.lake_table import LakeColumns, plain_schema
from slackwater.tables.table_address import lake_table
from slackwater.time import SECOND, format_instant
from tests.chaos.thirty_days import DAY, SCHEMA, Row, corrected, near, rows, sessions, truth
from tests.spark.oracle import Truth, table_of
from tests.spark.postgres import Server
from tests.support.sampling import sampled
from tests.tables.lakes import catalog_properties, truth_in

pytestmark = pytest.mark.spark

CHANGED = 11
"""The day that is read again."""
BEGIN, END = CHANGED * DAY * SECOND, (CHANGED + 1) * DAY * SECOND
FINAL = 40 * DAY * SECOND


def panes(spark: SparkSession, given: list[Row]) -> Panes:
    keys, seconds, values = zip(*given, strict=True)
    times = pa.array([second * SECOND for second in seconds], pa.timestamp("us", "UTC"))
    table = pa.table({"key": keys, "at": times, "value": values, "origin": ["only"] * len(given)})
    return sessions(spark.createDataFrame(table, SCHEMA))


def day() -> dict[str, str]:
    return {"since": format_instant(BEGIN), "until": format_instant(END)}


@pytest.mark.proof
@pytest.mark.parametrize(
    "kind", sampled(["sqlite", "postgresql", "delta", "iceberg", "parquet"], keep=["sqlite"])
)
def test_exactly_the_windows_of_the_day_are_replaced(
    spark: SparkSession,
    tmp_path: Path,
    kind: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before, after = rows(), corrected(rows(), CHANGED)
    if kind in ("sqlite", "postgresql"):
        url = f"sqlite:///{tmp_path}/truth.db"
        if kind == "postgresql":
            server: Server = request.getfixturevalue("server")
            url = server.create_database("replaced")
        panes(spark, before).upsert_once(url, "sessions", create=True)
        address = f"{url}#sessions"
    else:
        for name, value in catalog_properties(tmp_path / "iceberg").items():
            monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
        address = {"iceberg": "iceberg:lake/shop.sessions"}.get(kind, f"{kind}:{tmp_path}/sessions")
        fill(address, truth(before))

    def found() -> Truth:
        return table_of(url, "sessions") if "#" in address else truth_in(lake_table(address))

    assert found() == truth(before)
    old, new = truth(before), truth(after)
    result = sw.replace_results(panes(spark, near(after, CHANGED)), address, **day())
    assert found() == new
    overlapping = [group for group in new if group[1] < END and group[2] > BEGIN]
    assert result.results >= len(overlapping)
    assert result.deleted == len(old.keys() - new.keys())
    again = sw.replace_results(panes(spark, near(after, CHANGED)), address, **day())
    assert again == Replacement(result.results, 0)
    assert found() == new
    if "#" not in address:  # the query still owns its statement
        assert sw.complete_until(address) == FINAL


def fill(address: str, results: Truth, final: int = FINAL) -> None:
    """Write results to a table of files, as a query that states how far it is final."""
    moment = pl.Datetime("us", "UTC")
    kinds: dict[str, Any] = {
        "key": pl.String, "window_start": moment, "window_end": moment, "count": pl.Int64, "sum": pl.Int64,
        "deleted": pl.Boolean,
    }  # fmt: skip
    data = [(*group, values["count"], values["sum"], False) for group, values in results.items()]
    frame = pl.DataFrame(data, schema=kinds, orient="row")
    schema = plain_schema(frame.drop("deleted").to_arrow(compat_level=pl.CompatLevel.oldest()).schema)
    columns = LakeColumns(pa.schema(list(schema)[:3]), pa.schema(list(schema)[3:]))
    table = lake_table(address)
    table.prepare(columns, create=True)
    table.merge(columns, frame, BatchCommit("query", 0, Committer("query"), Completeness(final, final)))


def test_invalid_arguments(spark: SparkSession, tmp_path: Path) -> None:
    given = panes(spark, rows())
    address = f"parquet:{tmp_path}/sessions"
    with pytest.raises(TableDoesNotFit, match="does not exist"):
        sw.replace_results(given, address, **day())
    fill(address, {}, final=BEGIN)
    with pytest.raises(
        InvalidArgument,
        match=r"until = '1970-01-13T00:00:00Z': is later than the time before which the results of query",
    ):
        sw.replace_results(given, address, **day())
    with pytest.raises(InvalidArgument, match="is not after since"):
        sw.replace_results(given, address, since=day()["until"], until=day()["since"])
    with pytest.raises(InvalidArgument, match="is not the panes of a windowed stream; pass what agg"):
        sw.replace_results(given.to_df(), address, **day())  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="table = 'totals': is not the address of a table"):
        sw.replace_results(given, "totals", **day())
    ticks = spark.readStream.format("rate").load()
    streaming = sw.stream(ticks, event_time="timestamp", watermark=sw.lag("1 second"))
    with pytest.raises(InvalidArgument, match="panes = 'a streaming DataFrame': has no end"):
        sw.replace_results(streaming.window(sw.fixed("1 hour")).agg(n=sw.count()), address, **day())
    whole = sw.stream(
        spark.range(3).selectExpr("timestamp_seconds(id) as at"), event_time="at", watermark=sw.lag("0 s")
    )
    with pytest.raises(InvalidArgument, match="panes = 'a global window': has no time range"):
        sw.replace_results(whole.window(sw.global_window()).agg(n=sw.count()), address, **day())
