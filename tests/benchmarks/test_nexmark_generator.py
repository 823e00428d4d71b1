"""The Nexmark events follow the public definition, and depend on the seed alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.nexmark.generator import (
    ACTIVE,
    BASE_TIME,
    CATEGORIES,
    CHANNELS,
    CHUNK,
    EPOCH,
    FIRST_ID,
    HOT_CHANNELS,
    HOT_GROUP,
    IN_FLIGHT,
    LEAD,
    STATES,
    TABLES,
    Settings,
    batches,
    channel_table,
    side_input,
    tables,
    write,
)

EVENTS = 20_000
SETTINGS = Settings(EVENTS)
FRAMES = {name: pl.DataFrame(pl.from_arrow(table)) for name, table in tables(SETTINGS).items()}
PERSON, AUCTION, BID = (FRAMES[name] for name in TABLES)
BID_NUMBERS = np.array([number for number in range(EVENTS) if number % EPOCH >= 4])
"""The numbers of the events that are bids."""


def test_of_fifty_events_one_is_a_person_three_are_auctions_and_46_are_bids() -> None:
    assert (PERSON.height, AUCTION.height, BID.height) == (EVENTS // 50, 3 * EVENTS // 50, 46 * EVENTS // 50)


def test_ids_of_persons_and_auctions_count_from_the_first_id() -> None:
    assert PERSON["id"].to_list() == list(range(FIRST_ID, FIRST_ID + PERSON.height))
    assert AUCTION["id"].to_list() == list(range(FIRST_ID, FIRST_ID + AUCTION.height))


def test_events_are_evenly_spaced_in_whole_milliseconds() -> None:
    millis = BID["date_time"].dt.timestamp("ms").to_numpy()
    assert (millis == BASE_TIME + BID_NUMBERS * 100 // 1_000).all()
    slower = tables(Settings(EVENTS, rate=1_000))["bid"]["date_time"].to_pylist()
    assert slower[-1].timestamp() * 1_000 == BASE_TIME + EVENTS - 1


def test_half_of_the_bids_are_for_the_first_of_each_hundred_auctions() -> None:
    last = BID_NUMBERS // EPOCH * 3 + 2
    hot = BID["auction"].to_numpy() - FIRST_ID == last // HOT_GROUP * HOT_GROUP
    assert hot.mean() == pytest.approx(0.5, abs=0.03)


def test_three_of_four_bids_are_by_the_second_of_each_hundred_persons() -> None:
    hot = BID["bidder"].to_numpy() - FIRST_ID == BID_NUMBERS // EPOCH // HOT_GROUP * HOT_GROUP + 1
    assert hot.mean() == pytest.approx(0.75, abs=0.03)


def test_three_of_four_auctions_are_by_the_first_of_each_hundred_persons() -> None:
    latest = (AUCTION["id"].to_numpy() - FIRST_ID) // 3
    hot = AUCTION["seller"].to_numpy() - FIRST_ID == latest // HOT_GROUP * HOT_GROUP
    assert hot.mean() == pytest.approx(0.75, abs=0.05)


def test_other_bids_are_for_auctions_in_flight_or_a_few_ahead() -> None:
    last = BID_NUMBERS // EPOCH * 3 + 2
    behind = last - (BID["auction"].to_numpy() - FIRST_ID)
    cold = (BID["auction"].to_numpy() - FIRST_ID) % HOT_GROUP != 0
    assert behind[cold].max() == IN_FLIGHT
    assert behind.min() == -LEAD


def test_bidders_are_active_persons_or_a_few_ahead() -> None:
    last = BID_NUMBERS // EPOCH
    ahead = BID["bidder"].to_numpy() - FIRST_ID - last
    assert ahead.max() == LEAD
    assert (-ahead).max() < ACTIVE
    assert BID["bidder"].min() >= FIRST_ID  # type: ignore[operator]


def test_auctions_end_after_they_begin_and_before_twice_the_horizon() -> None:
    lasted = (AUCTION["expires"] - AUCTION["date_time"]).dt.total_milliseconds()
    horizon = IN_FLIGHT * EPOCH // 3 * 100 // 1_000
    assert lasted.min() == 1
    assert 1.9 * horizon < int(lasted.max()) <= 2 * horizon + 2  # type: ignore[arg-type]


def test_prices_are_spread_over_six_orders_of_magnitude() -> None:
    orders = BID["price"].log10()
    assert 2 <= float(orders.min()) < 2.1  # type: ignore[arg-type]
    assert 7.9 < float(orders.max()) <= 8  # type: ignore[arg-type]
    assert orders.median() == pytest.approx(5, abs=0.1)


def test_values_come_from_short_lists() -> None:
    assert set(PERSON["state"]) == set(STATES)
    assert set(AUCTION["category"]) == set(CATEGORIES)
    assert set(HOT_CHANNELS) < set(BID["channel"])


def test_half_of_the_bids_come_from_a_hot_channel() -> None:
    assert BID["channel"].is_in(HOT_CHANNELS).mean() == pytest.approx(0.5, abs=0.03)


def test_nine_of_ten_other_channels_have_their_number_in_the_url() -> None:
    names, urls = channel_table(SETTINGS.seed)
    assert len(names) == len(urls) == CHANNELS + len(HOT_CHANNELS)
    known = sum("&channel_id=" in url for url in urls.to_pylist())
    assert known / CHANNELS == pytest.approx(0.9, abs=0.02)
    assert not any("channel_id" in url for url in urls.to_pylist()[: len(HOT_CHANNELS)])


def test_an_url_has_three_folders() -> None:
    assert set(BID["url"].str.split("/").list.len()) == {7}


def test_events_have_their_average_size() -> None:
    size = 32 + BID["extra"].str.len_bytes()
    assert size.mean() == pytest.approx(100, rel=0.02)
    assert AUCTION.select(
        pl.sum_horizontal(pl.col("item_name", "description", "extra").str.len_bytes())
    ).to_series().mean() == pytest.approx(500 - 48, rel=0.02)


def test_the_first_events_do_not_depend_on_how_many_follow() -> None:
    longer = tables(Settings(3 * CHUNK), 0, EVENTS)
    for name in TABLES:
        assert longer[name].equals(tables(SETTINGS)[name])


@pytest.mark.parametrize("batch", [7_777, CHUNK])
def test_batches_divide_the_events_and_change_nothing(batch: int) -> None:
    settings = Settings(CHUNK + 12_345)
    parts = list(batches(settings, batch))
    assert len(parts) == -(-settings.events // batch)
    for name, table in tables(settings).items():
        assert pa.concat_tables(part[name] for part in parts).combine_chunks().equals(table.combine_chunks())


def test_another_seed_gives_other_events() -> None:
    assert not tables(Settings(EVENTS, seed=8))["bid"].equals(tables(SETTINGS)["bid"])


def test_a_group_out_of_order_has_the_same_times_in_another_order() -> None:
    shuffled = tables(Settings(EVENTS, group=1_000))
    times = np.concatenate([np.array(shuffled[name]["date_time"].cast("int64")) for name in TABLES])
    ordered = np.concatenate([np.array(tables(SETTINGS)[name]["date_time"].cast("int64")) for name in TABLES])
    assert (np.sort(times) == np.sort(ordered)).all()
    own = np.array(shuffled["bid"]["date_time"].cast("int64"))
    behind = np.maximum.accumulate(own) - own
    assert 0 < behind.max() < 1_000 * 100


def test_a_group_that_would_repeat_times_is_rejected() -> None:
    with pytest.raises(ValueError, match="group = 953: must not be a multiple of 953"):
        Settings(EVENTS, group=953)


def test_files_are_batches_in_the_order_of_their_modification_times(tmp_path: Path) -> None:
    write(Settings(3_000), 1_000, tmp_path)
    for name in TABLES:
        files = sorted((tmp_path / name).iterdir(), key=lambda path: path.stat().st_mtime)
        assert [path.name for path in files] == ["00000.parquet", "00001.parquet", "00002.parquet"]
        assert pl.read_parquet(files).equals(pl.from_arrow(tables(Settings(3_000))[name]))  # type: ignore[arg-type]
        assert pq.ParquetFile(files[0]).num_row_groups == 2
    assert pl.read_parquet(tmp_path / "side_input.parquet").equals(pl.from_arrow(side_input()))  # type: ignore[arg-type]
