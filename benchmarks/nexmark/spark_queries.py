"""The queries in Spark's own Structured Streaming, where they can be expressed.

`NOT_EXPRESSED` has the reasons for the others. A query that only changes results has the output mode
``update``; one that waits for the watermark has ``append``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name

NOT_EXPRESSED: Final = {
    "q4": "an average of maxima that still change: an aggregation cannot follow one in update mode",
    "q9": "the best of the pairs of a join: an aggregation without windows cannot follow a join",
    "q15": "distinct counts are not supported on streams",
    "q16": "distinct counts are not supported on streams",
}
UPDATED: Final = ("q17", "q18", "q19")
"""Queries whose results change."""


@dataclass(frozen=True)
class Frames:
    """The three streams, and the table of query 13."""

    rows: Mapping[str, DataFrame]
    side_input: DataFrame

    @property
    def person(self) -> DataFrame:
        """New persons."""
        return self.rows["person"].withWatermark("date_time", "4 seconds")

    @property
    def auction(self) -> DataFrame:
        """New auctions."""
        return self.rows["auction"].withWatermark("date_time", "4 seconds")

    @property
    def bid(self) -> DataFrame:
        """Bids."""
        return self.rows["bid"].withWatermark("date_time", "4 seconds")


def q0(events: Frames) -> DataFrame:
    return events.rows["bid"].select("auction", "bidder", "price", "date_time", "extra")


def q1(events: Frames) -> DataFrame:
    euros = events.rows["bid"].withColumn("price", F.expr("0.908 * price"))
    return euros.select("auction", "bidder", "price", "date_time", "extra")


def q2(events: Frames) -> DataFrame:
    return events.rows["bid"].filter("auction % 123 = 0").select("auction", "price")


def q3(events: Frames) -> DataFrame:
    people = events.rows["person"].filter("state in ('OR', 'ID', 'CA')")
    sellers = people.select(F.col("id").alias("seller"), "name", "city", "state")
    sold = events.rows["auction"].filter("category = 10").select("id", "seller")
    return sold.join(sellers, "seller").select("name", "city", "state", "id")


def q5(events: Frames) -> DataFrame:
    hops = F.window("date_time", "10 seconds", "2 seconds")
    counts = events.bid.groupBy(hops.alias("window"), "auction").agg(F.count("*").alias("num"))
    entries = F.collect_list(F.struct("auction", "num")).alias("entries")
    best = counts.groupBy("window").agg(F.max("num").alias("most"), entries)
    kept = F.inline(F.filter("entries", lambda entry: entry["num"] == F.col("most")))
    return best.select(F.col("window.start").alias("starttime"), kept)


def q7(events: Frames) -> DataFrame:
    windows = events.bid.groupBy(F.window("date_time", "10 seconds").alias("window"))
    best = windows.agg(F.max("price").alias("best")).select(
        "best", "window.*", F.window_time("window").alias("at")
    )
    same = (
        "price = best and date_time between at - interval 9.999999 seconds and at + interval 0.000001 seconds"
    )
    return events.bid.join(best, F.expr(same)).select("auction", "bidder", "price", "date_time", "extra")


def q8(events: Frames) -> DataFrame:
    window = F.window("date_time", "10 seconds").alias("window")
    people = events.person.groupBy(window, "id", "name").count()
    sellers = events.auction.groupBy(window, F.col("seller").alias("id")).count()
    pairs = people.join(sellers, ["window", "id"])
    return pairs.select("id", "name", F.col("window.start").alias("starttime"))


def q11(events: Frames) -> DataFrame:
    session = F.session_window("date_time", "10 seconds").alias("session")
    counts = events.bid.groupBy(session, "bidder").agg(F.count("*").alias("bid_count"))
    start, end = (F.col(f"session.{name}").alias(f"{name}time") for name in ("start", "end"))
    return counts.select("bidder", "bid_count", start, end)


def q12(events: Frames) -> DataFrame:
    bids = (
        events.rows["bid"].withColumn("arrived", F.current_timestamp()).withWatermark("arrived", "0 seconds")
    )
    windows = bids.groupBy(F.window("arrived", "10 seconds").alias("window"), "bidder")
    return windows.agg(F.count("*").alias("bid_count")).select("bidder", "bid_count", "window.*")


def q13(events: Frames) -> DataFrame:
    pairs = events.rows["bid"].join(F.broadcast(events.side_input), F.expr("auction % 10000 = key"))
    return pairs.select("auction", "bidder", "price", "date_time", "value")


def q14(events: Frames) -> DataFrame:
    dear = events.rows["bid"].withColumn("price", F.expr("0.908 * price"))
    kind = """case when hour(date_time) between 8 and 18 then 'dayTime'
              when hour(date_time) <= 6 or hour(date_time) >= 20 then 'nightTime' else 'otherTime' end"""
    new = {"bid_time_type": F.expr(kind), "c_counts": F.expr("length(extra) - length(replace(extra, 'c'))")}
    found = dear.filter("price > 1000000 and price < 50000000").withColumns(new)
    return found.select("auction", "bidder", "price", "bid_time_type", "date_time", "extra", "c_counts")


def _rank_counts() -> list[Column]:
    price = F.col("price")
    ranks = {
        "rank1": price < 10_000,
        "rank2": (price >= 10_000) & (price < 1_000_000),
        "rank3": price >= 1_000_000,
    }
    return [
        F.count("*").alias("total_bids"),
        *(F.count_if(each).alias(f"{rank}_bids") for rank, each in ranks.items()),
    ]


def q17(events: Frames) -> DataFrame:
    day = F.date_format("date_time", "yyyy-MM-dd").alias("day")
    prices = [each("price").alias(f"{each.__name__}_price") for each in (F.min, F.max, F.avg, F.sum)]
    found = events.rows["bid"].groupBy("auction", day).agg(*_rank_counts(), *prices)
    return found.withColumn("avg_price", F.floor("avg_price"))


def q18(events: Frames) -> DataFrame:
    bid = F.struct("price", "channel", "url", "date_time", "extra")
    last = events.rows["bid"].groupBy("bidder", "auction").agg(F.max_by(bid, "date_time").alias("bid"))
    return last.select("auction", "bidder", "bid.*")


def q19(events: Frames) -> DataFrame:
    bid = F.struct("price", "bidder", "channel", "url", "date_time", "extra")
    bids = events.rows["bid"].groupBy("auction").agg(F.collect_list(bid).alias("bids"))
    best = F.slice(F.sort_array("bids", asc=False), 1, 10)
    ranked = bids.select("auction", F.posexplode(best).alias("place", "bid"))
    return ranked.select("auction", "bid.*", (F.col("place") + 1).alias("rank_number"))


def q20(events: Frames) -> DataFrame:
    renamed = {"id": "auction", "date_time": "auction_date_time", "extra": "auction_extra"}
    auctions = events.rows["auction"].filter("category = 10").withColumnsRenamed(renamed)
    bids = events.rows["bid"].withColumnsRenamed({"date_time": "bid_date_time", "extra": "bid_extra"})
    return bids.join(auctions, "auction")


def q21(events: Frames) -> DataFrame:
    by_name = "element_at(map('apple', '0', 'google', '1', 'facebook', '2', 'baidu', '3'), lower(channel))"
    by_url = "nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '')"
    found = events.rows["bid"].withColumn("channel_id", F.expr(f"coalesce({by_name}, {by_url})"))
    return found.filter("channel_id is not null").select(
        "auction", "bidder", "price", "channel", "channel_id"
    )


def q22(events: Frames) -> DataFrame:
    folders = (f"split_part(url, '/', {number + 3}) AS dir{number}" for number in (1, 2, 3))
    return events.rows["bid"].selectExpr("auction", "bidder", "price", "channel", *folders)


QUERIES: Final[Mapping[str, Callable[[Frames], DataFrame]]] = {
    each.__name__: each
    for each in (q0, q1, q2, q3, q5, q7, q8, q11, q12, q13, q14, q17, q18, q19, q20, q21, q22)
}
PARTS: Final[Mapping[str, tuple[Callable[..., object], ...]]] = {"q17": (_rank_counts,)}
"""Functions that a query uses and that count as its lines."""
