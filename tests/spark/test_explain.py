"""The plan of a pipeline on Spark: operators, numbered origins, and where each event time ends."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from slackwater import windows
from slackwater.progress.discovery import discover
from slackwater.progress.watermark_policies import clock, constant, lag
from slackwater.spark.api.stream import stream
from slackwater.spark.api.stream_options import headers
from slackwater.windows import count, fixed, sessions

pytestmark = pytest.mark.spark

COLUMNS = "device string, ordered timestamp, shipped timestamp, price int, number int"


@pytest.fixture
def orders(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([], COLUMNS)


async def _rated(row: dict[str, Any]) -> dict[str, Any]:
    return row


def test_a_chain_lists_operators_origins_and_where_event_times_end(orders: DataFrame) -> None:
    times = {"ordered": lag("5 seconds"), "shipped": lag("1 minute", between="clock")}
    both = stream(orders, event_times=times, origin="device", origins=["north", "<south>"], idle_after="10 s")
    mapped = both.map_async(_rated, "device string, price int").key_by("device")
    daily = (
        mapped.window(sessions("1 hour"), by="shipped")
        .allowed_lateness("1 day")
        .agg(best=windows.max("price"))
    )
    plan = daily.agg(n=count()).explain()
    assert str(plan).splitlines() == [
        "origin 3  agg(n) (stateful)",
        "          window: inherited",
        "          trigger: after_watermark(late=repeatedly(after_count(1)))",
        "          mode: accumulating, allowed lateness: 1 d",
        "          driven by event time: shipped",
        "          forwards: shipped",
        "  origin 2  agg(best) (stateful)",
        "            key: device",
        "            window: sessions gap 1 h",
        "            trigger: after_watermark(late=repeatedly(after_count(1)))",
        "            mode: accumulating, allowed lateness: 1 d",
        "            driven by event time: shipped",
        "            forwards: shipped",
        "            ends here: ordered",
        "    -         map_async _rated (stateless)",
        "      origin 1  DataFrame[device, ordered, shipped, price, number] (source)",
        "                event time ordered: lag 5 s",
        "                event time shipped: lag 1 min, between events the clock",
        "                origins: north, <south>",
        "                idle after 10 s",
    ]
    assert "origins: north, &lt;south&gt;" in plan._repr_html_()


def test_a_source_that_is_used_twice_is_one_origin(orders: DataFrame) -> None:
    one = stream(orders, event_time="ordered", watermark=clock("1 minute"), max_ahead="1 hour").key_by(
        "device"
    )
    other = stream(orders, event_time="shipped", watermark=constant("2024-01-01T00:00:00Z")).key_by("device")
    pairs = one.window(fixed("10 seconds")).cogroup(one, left=["price"], right=["price"])
    assert list(pairs.explain().origins) == [1, 2]
    united = one.union(other).explain()
    assert [line.strip() for line in str(united).splitlines()] == [
        "-         union of 2 streams (stateless)",
        "key: device",
        "event times that reach the next operator: default",
        "origin 1  DataFrame[device, ordered, shipped, price, number] (source)",
        "event time default: clock 1 min",
        "origins: one",
        "ignores times more than 1 h ahead of the clock",
        "origin 2  DataFrame[device, ordered, shipped, price, number] (source)",
        "event time default: constant 2024-01-01T00:00:00Z",
        "origins: one",
    ]


def test_numbered_and_discovered_origins(orders: DataFrame) -> None:
    named = headers(origin="device", sequence="number", watermark="shipped")
    numbered = stream(orders, event_time="ordered", headers=named, origins=discover("30 seconds"))
    text = str(numbered.explain())
    assert "event time default: watermarks in the headers of numbered buffers" in text
    assert "origins: discovered, the first watermark waits 30 s" in text


def test_a_join_forwards_the_event_times_of_both_sides_and_a_window_ends_one(orders: DataFrame) -> None:
    left = (
        stream(orders, event_times={"ordered": lag("5 seconds")})
        .filter("price > 3")
        .select("device", "price")
    )
    right = stream(orders, event_times={"shipped": lag("1 minute")}, name="deliveries")
    pairs = left.join(right, on=["device"], before="0 seconds", after="1 hour", how="left")
    assert [line.strip() for line in str(pairs.explain()).splitlines()] == [
        "origin 3  left join (stateful)",
        "key: device",
        "matches from 0 s to 1 h",
        "driven by event time: ordered, shipped",
        "forwards: ordered, shipped",
        "-         select device, price (stateless)",
        "-         filter price > 3 (stateless)",
        "origin 1  DataFrame[device, ordered, shipped, price, number] (source)",
        "event time ordered: lag 5 s",
        "origins: one",
        "origin 2  deliveries: DataFrame[device, ordered, shipped, price, number] (source)",
        "event time shipped: lag 1 min",
        "origins: one",
    ]
    windowed = pairs.window(fixed("1 hour"), by="ordered").agg(n=count()).explain()
    assert "ends here: shipped" in str(windowed)
    renamed = pairs.by("ordered", name="at").window(fixed("1 hour")).agg(n=count()).explain()
    assert [
        line.strip() for line in str(renamed).splitlines()[:8] if "forwards" in line or "ends" in line
    ] == ["forwards: at (renamed)", "ends here: shipped"]
    assert list(windowed.origins) == [1, 2, 3, 4]
