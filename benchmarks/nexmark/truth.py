"""The result of each query, computed by Polars from all events at once, and the comparison with an engine.

A query is compared by its final result: of a result that is updated, what is left after the last update.
Where the definition leaves a choice, for example between bids of equal price, only the columns that do not
depend on it are compared, and the whole row must be a row of the input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import polars as pl

from benchmarks.nexmark.generator import SIDE_ROWS, TABLES

TEN_SECONDS: Final = "10s"
RANKS: Final = {
    "rank1": pl.col("price") < 10_000,
    "rank2": (pl.col("price") >= 10_000) & (pl.col("price") < 1_000_000),
    "rank3": pl.col("price") >= 1_000_000,
}
"""The three ranges of prices that queries 15, 16 and 17 tell apart."""
EURO: Final = 0.908
BID: Final = ("auction", "bidder", "price", "channel", "url", "date_time", "extra")


@dataclass(frozen=True)
class Events:
    """The events as Polars frames."""

    person: pl.LazyFrame
    auction: pl.LazyFrame
    bid: pl.LazyFrame

    @classmethod
    def read(cls, folder: Path) -> Events:
        """The events of a folder that the generator wrote."""
        return cls(*(pl.scan_parquet(folder / name / "*.parquet") for name in TABLES))


def _q0(events: Events) -> pl.LazyFrame:
    return events.bid.select("auction", "bidder", "price", "date_time", "extra")


def _q1(events: Events) -> pl.LazyFrame:
    return _q0(events).with_columns(price=_euros())


def _euros() -> pl.Expr:
    """The price in thousandths of a euro, which is exact."""
    return pl.col("price") * 908


def _q2(events: Events) -> pl.LazyFrame:
    return events.bid.filter(pl.col("auction") % 123 == 0).select("auction", "price")


def _q3(events: Events) -> pl.LazyFrame:
    sellers = events.person.filter(pl.col("state").is_in(["OR", "ID", "CA"]))
    sold = events.auction.filter(pl.col("category") == 10).select(pl.col("id").alias("auction"), "seller")
    pairs = sold.join(sellers, left_on="seller", right_on="id")
    return pairs.select("name", "city", "state", id="auction")


def _in_time(events: Events) -> pl.LazyFrame:
    """Every bid with its auction, if it came while the auction was open."""
    bids = events.bid.rename({"date_time": "bid_date_time", "extra": "bid_extra"})
    pairs = events.auction.join(bids, left_on="id", right_on="auction", coalesce=False)
    return pairs.filter(pl.col("bid_date_time").is_between("date_time", "expires"))


def _q4(events: Events) -> pl.LazyFrame:
    final = _in_time(events).group_by("id", "category").agg(pl.col("price").max())
    # An average of integers is rounded down.
    return final.group_by("category").agg(final=pl.col("price").sum() // pl.len().cast(pl.Int64))


def _q5(events: Events) -> pl.LazyFrame:
    starts = pl.int_ranges(-4, 1).cast(pl.List(pl.Int64))
    every = pl.col("date_time").dt.truncate("2s")
    hops = events.bid.select("auction", starttime=every, hop=starts).explode("hop")
    windows = hops.with_columns(pl.col("starttime") + pl.duration(seconds=2 * pl.col("hop")))
    counts = windows.group_by("auction", "starttime").agg(num=pl.len().cast(pl.Int64))
    best = counts.filter(pl.col("num") == pl.col("num").max().over("starttime"))
    return best.select("auction", "num", "starttime")


def _q7(events: Events) -> pl.LazyFrame:
    bids = events.bid.select("auction", "bidder", "price", "date_time", "extra")
    start = pl.col("date_time").dt.truncate(TEN_SECONDS)
    best = bids.group_by(start=start).agg(pl.col("price").max())
    pairs = bids.join(best, on="price")
    # Both ends are included: a bid at the end of a window counts for it too.
    reach = pl.col("date_time").is_between("start", pl.col("start") + pl.duration(seconds=10))
    return pairs.filter(reach).drop("start")


def _q8(events: Events) -> pl.LazyFrame:
    start = pl.col("date_time").dt.truncate(TEN_SECONDS)
    sellers = events.auction.select(id="seller", starttime=start).unique()
    people = events.person.select("id", "name", starttime=start).unique()
    return people.join(sellers, on=["id", "starttime"]).select("id", "name", "starttime")


def _q9(events: Events) -> pl.LazyFrame:
    ranked = _in_time(events).sort(["price", "bid_date_time"], descending=[True, False], maintain_order=True)
    winners = ranked.unique("id", keep="first", maintain_order=True)
    return winners.drop("channel", "url")


def _q11(events: Events) -> pl.LazyFrame:
    bids = events.bid.select("bidder", "date_time").sort("bidder", "date_time")
    # A bid exactly ten seconds after the one before belongs to its session.
    gap = pl.col("date_time").diff().over("bidder") > pl.duration(seconds=10)
    numbered = bids.with_columns(session=gap.fill_null(value=True).cum_sum().over("bidder"))
    sessions = numbered.group_by("bidder", "session").agg(
        bid_count=pl.len().cast(pl.Int64),
        starttime=pl.col("date_time").min(),
        endtime=pl.col("date_time").max() + pl.duration(seconds=10),
    )
    return sessions.drop("session")


def _q12(events: Events) -> pl.LazyFrame:
    return events.bid.group_by("bidder").agg(bid_count=pl.len().cast(pl.Int64))


def _q13(events: Events) -> pl.LazyFrame:
    value = (pl.col("auction") % SIDE_ROWS).cast(pl.String)
    return events.bid.select("auction", "bidder", "price", "date_time", value=value)


def _q14(events: Events) -> pl.LazyFrame:
    hour, price = pl.col("date_time").dt.hour(), EURO * pl.col("price")
    kind = (
        pl.when(hour.is_between(8, 18))
        .then(pl.lit("dayTime"))
        .when((hour <= 6) | (hour >= 20))
        .then(pl.lit("nightTime"))
        .otherwise(pl.lit("otherTime"))
    )
    return events.bid.filter((price > 1_000_000) & (price < 50_000_000)).select(
        "auction",
        "bidder",
        price=_euros(),
        bid_time_type=kind,
        date_time="date_time",
        extra="extra",
        c_counts=pl.col("extra").str.count_matches("c").cast(pl.Int64),
    )


def _ranked(total: pl.Expr, name: str) -> dict[str, pl.Expr]:
    everyone = {f"total_{name}": total}
    return everyone | {f"{rank}_{name}": total.filter(condition) for rank, condition in RANKS.items()}


def _counts() -> dict[str, pl.Expr]:
    bids, bidders, auctions = pl.col("price"), pl.col("bidder"), pl.col("auction")
    numbers = {
        **{name: each.len() for name, each in _ranked(bids, "bids").items()},
        **{name: each.n_unique() for name, each in _ranked(bidders, "bidders").items()},
        **{name: each.n_unique() for name, each in _ranked(auctions, "auctions").items()},
    }
    return {name: number.cast(pl.Int64) for name, number in numbers.items()}


_DAY: Final = pl.col("date_time").dt.strftime("%Y-%m-%d")


def _q15(events: Events) -> pl.LazyFrame:
    return events.bid.group_by(day=_DAY).agg(**_counts())


def _q16(events: Events) -> pl.LazyFrame:
    minute = pl.col("date_time").dt.strftime("%H:%M").max()
    return events.bid.group_by("channel", day=_DAY).agg(minute=minute, **_counts())


def _q17(events: Events) -> pl.LazyFrame:
    price = pl.col("price")
    bids = {name: each.len().cast(pl.Int64) for name, each in _ranked(price, "bids").items()}
    return events.bid.group_by("auction", day=_DAY).agg(
        **bids,
        min_price=price.min(),
        max_price=price.max(),
        avg_price=price.sum() // price.len().cast(pl.Int64),
        sum_price=price.sum(),
    )


def _q18(events: Events) -> pl.LazyFrame:
    return events.bid.group_by("bidder", "auction").agg(pl.col("date_time").max())


def _q19(events: Events) -> pl.LazyFrame:
    best = events.bid.sort("price", descending=True).group_by("auction", maintain_order=True).head(10)
    rank = pl.int_range(1, pl.len() + 1).over("auction")
    return best.select("auction", "price", rank_number=rank)


def _q20(events: Events) -> pl.LazyFrame:
    auctions = events.auction.rename({"date_time": "auction_date_time", "extra": "auction_extra"})
    bids = events.bid.rename({"date_time": "bid_date_time", "extra": "bid_extra"})
    wanted = auctions.filter(pl.col("category") == 10)
    return bids.join(wanted, left_on="auction", right_on="id")


def _q21(events: Events) -> pl.LazyFrame:
    known = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}
    by_name = pl.col("channel").str.to_lowercase().replace_strict(known, default=None, return_dtype=pl.String)
    by_url = pl.col("url").str.extract(r"(?:&|^)channel_id=([^&]*)", 1)
    found = events.bid.with_columns(channel_id=pl.coalesce(by_name, by_url))
    return found.filter(pl.col("channel_id").is_not_null()).select(
        "auction", "bidder", "price", "channel", "channel_id"
    )


def _q22(events: Events) -> pl.LazyFrame:
    parts = pl.col("url").str.split("/")
    folders = {f"dir{number}": parts.list.get(number + 2, null_on_oob=True) for number in (1, 2, 3)}
    return events.bid.select("auction", "bidder", "price", "channel", **folders)


@dataclass(frozen=True)
class Query:
    """A query: what it asks, and its result."""

    text: str
    result: Callable[[Events], pl.LazyFrame]
    chosen: bool = False
    """Whether a row of the result is one of several possible rows of the bids."""
    summed: tuple[str, str] | None = None
    """Compare the sum of the second column per value of the first one: windows depend on the clock."""
    thousandths: tuple[str, ...] = ()
    """Columns that are decimals in the result of an engine, and thousandths as integers in the truth."""


QUERIES: Final[Mapping[str, Query]] = {
    "q0": Query("bids as they are", _q0),
    "q1": Query("prices in another currency", _q1, thousandths=("price",)),
    "q2": Query("bids for some auctions", _q2),
    "q3": Query("who sells in some states: join without a time bound", _q3),
    "q4": Query("average winning price per category: join, maximum, average of what changes", _q4),
    "q5": Query("auctions with most bids: sliding windows, then the best of each window", _q5),
    "q7": Query("highest bids: tumbling windows, joined with the bids", _q7),
    "q8": Query("new persons who sell: windows of two streams, joined", _q8),
    "q9": Query("winning bids: join, then the best bid per auction", _q9),
    "q11": Query("bids per bidder and session", _q11),
    "q12": Query("bids per bidder, windows by processing time", _q12, summed=("bidder", "bid_count")),
    "q13": Query("join with a table that does not change", _q13),
    "q14": Query("filter and compute", _q14, thousandths=("price",)),
    "q15": Query("statistics per day, with distinct counts", _q15),
    "q16": Query("statistics per channel and day, with distinct counts", _q16),
    "q17": Query("statistics per auction and day", _q17),
    "q18": Query("last bid per bidder and auction", _q18, chosen=True),
    "q19": Query("ten highest bids per auction", _q19, chosen=True),
    "q20": Query("bids with their auction: join without a time bound", _q20),
    "q21": Query("extract from text", _q21),
    "q22": Query("split text", _q22),
}


@dataclass(frozen=True)
class Comparison:
    """How the result of an engine differs from the truth."""

    rows: int
    """Rows of the truth."""
    missing: int
    """Rows of the truth that the engine did not return."""
    wrong: int
    """Rows that the engine returned and that are not in the truth."""
    example: str = ""
    """A wrong row."""


def compare(name: str, events: Events, result: pl.DataFrame) -> Comparison:
    """Compare the final result of an engine with the truth."""
    query = QUERIES[name]
    truth = query.result(events).collect()
    if query.summed is not None:
        key, value = query.summed
        result = result.group_by(key).agg(pl.col(value).sum())
    result = _plain(result, query.thousandths)
    wrong_rows = result.clear()
    if query.chosen:
        wrong_rows = result.join(_plain(events.bid.collect(), ()), on=list(BID), how="anti")
    compared = result.select(truth.columns)
    expected = _counted(_plain(truth, ()))
    given = _counted(compared).cast(expected.schema)
    both = expected.join(
        given, on=truth.columns, how="full", nulls_equal=True, coalesce=True, suffix="_given"
    )
    surplus = pl.col("_number_given").fill_null(0) - pl.col("_number").fill_null(0)
    differences = both.with_columns(surplus=surplus)
    more = differences.filter(pl.col("surplus") > 0)
    less = differences.filter(pl.col("surplus") < 0)
    examples = [*more.head(1).to_dicts(), *wrong_rows.head(1).to_dicts()]
    return Comparison(
        rows=truth.height,
        missing=-int(less["surplus"].sum()),
        wrong=int(more["surplus"].sum()) + wrong_rows.height,
        example=str(examples[0]) if examples else "",
    )


def _counted(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.group_by(rows.columns).agg(_number=pl.len().cast(pl.Int64))


def _plain(rows: pl.DataFrame, thousandths: tuple[str, ...]) -> pl.DataFrame:
    """Times as milliseconds without a timezone, and decimals as integers of thousandths."""
    times = [name for name, dtype in rows.schema.items() if isinstance(dtype, pl.Datetime)]
    decimals = [(pl.col(name).cast(pl.Float64) * 1_000).round().cast(pl.Int64) for name in thousandths]
    plain = rows.with_columns(*decimals)
    return plain.with_columns(pl.col(name).dt.timestamp("ms") for name in times)
