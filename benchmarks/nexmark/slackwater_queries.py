"""The queries in Slackwater. Each function is a whole query over the three streams.

Results that change have a column ``pane``, by which the last one is found. They are updated with every
micro-batch that changes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import polars as pl
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name

import slackwater as sw
from slackwater.spark.api.output_rows import Joined
from slackwater.spark.api.stream import Stream
from slackwater.time import Range

FOREVER: Final = "36500 days"
"""A bound for joins that have none in the definition."""


@dataclass(frozen=True)
class Streams:
    """The three streams, and the table of query 13."""

    rows: Mapping[str, DataFrame]
    side_input: DataFrame

    @property
    def person(self) -> Stream:
        """New persons."""
        return self.stream(self.rows["person"])

    @property
    def auction(self) -> Stream:
        """New auctions."""
        return self.stream(self.rows["auction"])

    @property
    def bid(self) -> Stream:
        """Bids."""
        return self.stream(self.rows["bid"])

    @staticmethod
    def stream(rows: DataFrame) -> Stream:
        """Rows with their event time and watermark."""
        return sw.stream(rows, event_time="date_time", watermark=sw.lag("4 seconds"), clock="1 hour")


def q0(events: Streams) -> DataFrame:
    return events.bid.select("auction", "bidder", "price", "date_time", "extra").to_df()


def q1(events: Streams) -> DataFrame:
    euros = events.bid.with_columns(price="0.908 * price")
    return euros.select("auction", "bidder", "price", "date_time", "extra").to_df()


def q2(events: Streams) -> DataFrame:
    return events.bid.filter("auction % 123 = 0").select("auction", "price").to_df()


def q3(events: Streams) -> DataFrame:
    people = events.person.filter("state in ('OR', 'ID', 'CA')").select(
        "id AS seller", "name", "city", "state"
    )
    sold = events.auction.filter("category = 10").select("id", "seller")
    pairs = sold.join(people, on=["seller"], before=FOREVER, after=FOREVER)
    return pairs.to_df().select("name", "city", "state", "id")


def _in_time(events: Streams) -> Joined:
    """Bids with their auction, if they came while it was open: an auction lasts less than a minute."""
    bids = events.bid.select(
        "auction AS id", "auction", "bidder", "price", "date_time AS bid_date_time", "extra AS bid_extra"
    )
    open_until = "bid_date_time <= expires"
    return events.auction.join(bids, on=["id"], before="0 seconds", after="1 minute", condition=open_until)


def q4(events: Streams) -> DataFrame:
    by_auction = _in_time(events).key_by("id", "category").window(sw.global_window()).trigger(sw.always())
    best = by_auction.accumulating_and_retracting().agg(price=sw.max("price"))
    averages = best.key_by("category").agg(final=sw.mean("price"))
    return averages.to_df().select("category", F.floor("final").alias("final"), "pane")


def q5(events: Streams) -> DataFrame:
    hops = events.bid.key_by("auction").window(sw.sliding("10 seconds", every="2 seconds"))
    ranked = hops.agg(num=sw.count()).select("auction", "num").window(sw.inherited())
    best = ranked.apply(_most_bids, "auction bigint, num bigint")
    return best.to_df(flush=True).select("auction", "num", F.col("window.start").alias("starttime"))


def _most_bids(key: dict[str, Any], window: Range, rows: pl.DataFrame) -> pl.DataFrame:
    return rows.filter(pl.col("num") == pl.col("num").max())


def q7(events: Streams) -> DataFrame:
    best = events.bid.window(sw.fixed("10 seconds")).agg(price=sw.max("price"))
    # The time of a pane is the last microsecond of its window, and the end of the window is included.
    pairs = events.bid.join(best, on=["price"], before="1 microsecond", after="9.999999 seconds")
    return pairs.to_df(flush=True).select("auction", "bidder", "price", "date_time", "extra")


def q8(events: Streams) -> DataFrame:
    window = sw.fixed("10 seconds")
    people = events.person.key_by("id", "name").window(window).agg(persons=sw.count())
    sellers = events.auction.select("seller AS id").key_by("id").window(window).agg(auctions=sw.count())
    named = people.select("id", "name", "window.start AS starttime")
    pairs = named.join(sellers, on=["id"], before="0 seconds", after="0 seconds")
    return pairs.to_df(flush=True).select("id", "name", "starttime")


def q9(events: Streams) -> DataFrame:
    bid = F.struct("auction", "bidder", "price", "bid_date_time", "bid_extra")
    lot = F.struct(
        "item_name",
        "description",
        "initial_bid",
        "reserve",
        "date_time",
        "expires",
        "seller",
        "category",
        "extra",
    )
    lots = _in_time(events).key_by("id").window(sw.global_window()).trigger(sw.always())
    winners = lots.agg(lot=sw.first(lot), bid=sw.max_by(bid, by="price"))
    return winners.to_df().select("id", "lot.*", "bid.*", "pane")


def q11(events: Streams) -> DataFrame:
    # Bids exactly ten seconds apart are one session.
    sessions = events.bid.key_by("bidder").window(sw.sessions("10.000001 seconds")).agg(bid_count=sw.count())
    start, end = (
        F.date_trunc("millisecond", f"window.{name}").alias(f"{name}time") for name in ("start", "end")
    )
    return sessions.to_df(flush=True).select("bidder", "bid_count", start, end)


def q12(events: Streams) -> DataFrame:
    bids = sw.stream(events.rows["bid"], event_time=sw.ingestion_time(), clock="1 second")
    counts = bids.key_by("bidder").window(sw.fixed("10 seconds")).agg(bid_count=sw.count())
    return counts.to_df(flush=True).select("bidder", "bid_count", "window.start", "window.end")


def q13(events: Streams) -> DataFrame:
    rows = events.rows["bid"].join(F.broadcast(events.side_input), F.expr("auction % 10000 = key"))
    return events.stream(rows).select("auction", "bidder", "price", "date_time", "value").to_df()


def q14(events: Streams) -> DataFrame:
    dear = events.bid.with_columns(price="0.908 * price").filter("price > 1000000 and price < 50000000")
    kind = """case when hour(date_time) between 8 and 18 then 'dayTime'
              when hour(date_time) <= 6 or hour(date_time) >= 20 then 'nightTime' else 'otherTime' end"""
    found = dear.with_columns(bid_time_type=kind, c_counts="length(extra) - length(replace(extra, 'c'))")
    return found.select(
        "auction", "bidder", "price", "bid_time_type", "date_time", "extra", "c_counts"
    ).to_df()


def _ranks(accumulation: Callable[[Column], Any], column: str, name: str) -> dict[str, Any]:
    price = F.col("price")
    ranks = {
        "rank1": price < 10_000,
        "rank2": (price >= 10_000) & (price < 1_000_000),
        "rank3": price >= 1_000_000,
    }
    conditions = {"total": F.lit(True), **ranks}  # noqa: FBT003 - the constant of Spark
    return {f"{rank}_{name}": accumulation(F.when(each, F.col(column))) for rank, each in conditions.items()}


def _counts() -> dict[str, Any]:
    bids, bidders = _ranks(sw.count, "price", "bids"), _ranks(sw.count_distinct, "bidder", "bidders")
    return bids | bidders | _ranks(sw.count_distinct, "auction", "auctions")


def q15(events: Streams) -> DataFrame:
    days = events.bid.window(sw.fixed("1 day")).trigger(sw.always()).agg(**_counts())
    return days.to_df().withColumn("day", F.date_format("window.start", "yyyy-MM-dd"))


def q16(events: Streams) -> DataFrame:
    days = events.bid.key_by("channel").window(sw.fixed("1 day")).trigger(sw.always())
    counts = days.agg(minute=sw.max(F.date_format("date_time", "HH:mm")), **_counts())
    return counts.to_df().withColumn("day", F.date_format("window.start", "yyyy-MM-dd"))


def q17(events: Streams) -> DataFrame:
    days = events.bid.key_by("auction").window(sw.fixed("1 day")).trigger(sw.always())
    found = days.agg(
        min_price=sw.min("price"),
        max_price=sw.max("price"),
        avg_price=sw.avg("price"),
        sum_price=sw.sum("price"),
        **_ranks(sw.count, "price", "bids"),
    )
    return found.to_df().withColumns(
        {"day": F.date_format("window.start", "yyyy-MM-dd"), "avg_price": F.floor("avg_price")}
    )


def q18(events: Streams) -> DataFrame:
    bid = F.struct("price", "channel", "url", "date_time", "extra")
    pairs = events.bid.key_by("bidder", "auction").window(sw.global_window()).trigger(sw.always())
    return pairs.agg(bid=sw.last(bid)).to_df().select("auction", "bidder", "bid.*", "pane")


def q19(events: Streams) -> DataFrame:
    bid = F.struct("price", "bidder", "channel", "url", "date_time", "extra")
    auctions = events.bid.key_by("auction").window(sw.global_window()).trigger(sw.always())
    best = auctions.agg(bids=sw.top_n(bid, 10)).to_df()
    return best.select("auction", "pane", F.posexplode("bids").alias("place", "bid")).select(
        "auction", "bid.*", (F.col("place") + 1).alias("rank_number"), "pane"
    )


def q20(events: Streams) -> DataFrame:
    auctions = events.auction.filter("category = 10").select(
        "id AS auction",
        "item_name",
        "description",
        "initial_bid",
        "reserve",
        "date_time AS auction_date_time",
        "expires",
        "seller",
        "category",
        "extra AS auction_extra",
    )
    bids = events.bid.select(
        "auction", "bidder", "price", "channel", "url", "date_time AS bid_date_time", "extra AS bid_extra"
    )
    return bids.join(auctions, on=["auction"], before=FOREVER, after=FOREVER).to_df()


def q21(events: Streams) -> DataFrame:
    by_name = "element_at(map('apple', '0', 'google', '1', 'facebook', '2', 'baidu', '3'), lower(channel))"
    by_url = "nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '')"
    found = events.bid.with_columns(channel_id=f"coalesce({by_name}, {by_url})")
    return (
        found.filter("channel_id is not null")
        .select("auction", "bidder", "price", "channel", "channel_id")
        .to_df()
    )


def q22(events: Streams) -> DataFrame:
    folders = (f"split_part(url, '/', {number + 3}) AS dir{number}" for number in (1, 2, 3))
    return events.bid.select("auction", "bidder", "price", "channel", *folders).to_df()


QUERIES: Final[Mapping[str, Callable[[Streams], DataFrame]]] = {
    each.__name__: each
    for each in (
        *(q0, q1, q2, q3, q4, q5, q7, q8, q9, q11, q12),
        *(q13, q14, q15, q16, q17, q18, q19, q20, q21, q22),
    )
}

PARTS: Final[Mapping[str, tuple[Callable[..., Any], ...]]] = {
    "q4": (_in_time,),
    "q5": (_most_bids,),
    "q9": (_in_time,),
    "q15": (_counts, _ranks),
    "q16": (_counts, _ranks),
    "q17": (_ranks,),
}
"""Functions that a query uses and that count as its lines."""
