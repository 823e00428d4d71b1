"""Seeded Nexmark events, computed column by column and written as Parquet files, one for a micro-batch.

The rules are those of the public Nexmark definition. Of 50 successive events, the first is a new person, the
next three are new auctions and the other 46 are bids. Event ``n`` happens ``n / rate`` seconds after the
first one, in whole milliseconds. Half of the bids are for a hot auction, the first of each hundred; three of
four are by a hot bidder, the second of each hundred persons; three of four auctions are by a hot seller, the
first of each hundred. All others are among the auctions in flight and the active persons, or a few ahead of
them that do not exist yet. Prices are spread evenly over six orders of magnitude.

Events are generated in chunks of a fixed size, each with its own seed. So the first events are the same,
however many follow and however they are divided into files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

PERSONS: Final = 1
AUCTIONS: Final = 3
BIDS: Final = 46
EPOCH: Final = PERSONS + AUCTIONS + BIDS
"""The number of events after which the kinds of events repeat."""
CHUNK: Final = 1_000 * EPOCH
"""The number of events that are generated with one seed."""
FIRST_ID: Final = 1_000
"""The first id of persons and of auctions."""
CATEGORIES: Final = (10, 11, 12, 13, 14)
STATES: Final = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES: Final = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
)
GIVEN_NAMES: Final = (
    "Peter",
    "Paul",
    "Luke",
    "John",
    "Saul",
    "Vicky",
    "Kate",
    "Julie",
    "Sarah",
    "Deiter",
    "Walter",
)
FAMILY_NAMES: Final = (
    "Shultz",
    "Abrams",
    "Spencer",
    "White",
    "Bartels",
    "Walton",
    "Smith",
    "Jones",
    "Noris",
)
HOT_CHANNELS: Final = ("Google", "Facebook", "Baidu", "Apple")
CHANNELS: Final = 10_000
"""The number of channels that are not hot."""
HOT_GROUP: Final = 100
"""One of this many auctions, bidders and sellers is hot."""
IN_FLIGHT: Final = 100
"""The number of auctions that get bids at any time."""
ACTIVE: Final = 1_000
"""The number of persons who bid and sell at any time."""
LEAD: Final = 10
"""The number of ids after the latest one that may already be used."""
PERSON_BYTES: Final = 200
AUCTION_BYTES: Final = 500
BID_BYTES: Final = 100
"""The average size of an event, which its column ``extra`` fills up."""
BASE_TIME: Final = 1_704_153_500_000
"""The time of the first event in milliseconds: 100 seconds before the end of 2024-01-01."""
SHUFFLE: Final = 953
"""Events in a group that is out of order are this many places apart, modulo the size of the group."""
TABLES: Final = ("person", "auction", "bid")
SIDE_ROWS: Final = 10_000
"""The number of rows of the side input of query 13."""

Integers = npt.NDArray[np.int64]
_TIME: Final = pa.timestamp("us", "UTC")
_LETTERS: Final = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", np.uint8)


@dataclass(frozen=True)
class Settings:
    """Which events are generated."""

    events: int
    seed: int = 7
    rate: int = 10_000
    """Events per second of event time."""
    group: int = 1
    """Events are out of order within groups of this size; 1 keeps them in order."""

    def __post_init__(self) -> None:
        if np.gcd(self.group, SHUFFLE) != 1:
            raise ValueError(f"group = {self.group}: must not be a multiple of {SHUFFLE}")

    def times(self, numbers: Integers) -> Integers:
        """The event times of events in milliseconds.

        >>> Settings(100).times(np.array([0, 1, 25])) - BASE_TIME
        array([0, 0, 2])
        """
        return BASE_TIME + (numbers * 1_000_000 // self.rate) // 1_000

    def adjusted(self, numbers: Integers) -> Integers:
        """The number of the event whose time an event has, which differs from its own if out of order."""
        return numbers // self.group * self.group + numbers * SHUFFLE % self.group


def tables(settings: Settings, start: int = 0, stop: int | None = None) -> dict[str, pa.Table]:
    """The persons, auctions and bids among the events from ``start`` to ``stop``, in the order of arrival.

    >>> {name: table.num_rows for name, table in tables(Settings(100)).items()}
    {'person': 2, 'auction': 6, 'bid': 92}
    """
    stop = settings.events if stop is None else min(stop, settings.events)
    parts: dict[str, list[pa.Table]] = {name: [] for name in TABLES}
    for chunk in range(start // CHUNK, -(-stop // CHUNK)):
        for name, table in _chunk(settings, chunk, start, stop).items():
            parts[name].append(table)
    return {name: pa.concat_tables(given) for name, given in parts.items()}


def _chunk(settings: Settings, chunk: int, start: int, stop: int) -> dict[str, pa.Table]:
    # Every row of the chunk is generated, so that the bounds do not change what the generator returns.
    numbers = np.arange(chunk * CHUNK, (chunk + 1) * CHUNK, dtype=np.int64)
    offsets = numbers % EPOCH
    kinds = {
        "person": offsets < PERSONS,
        "auction": (offsets >= PERSONS) & (offsets < PERSONS + AUCTIONS),
        "bid": offsets >= PERSONS + AUCTIONS,
    }
    made = {"person": _persons, "auction": _auctions, "bid": _bids}
    result = {}
    for place, (name, selected) in enumerate(kinds.items()):
        own = numbers[selected]
        random = np.random.default_rng([settings.seed, chunk, place])
        first, last = np.searchsorted(own, [start, stop])
        result[name] = made[name](settings, own, random).slice(first, max(last - first, 0))
    return result


def last_person(numbers: Integers) -> Integers:
    """The latest person when each event happens, counted from 0.

    >>> last_person(np.array([0, 49, 50]))
    array([0, 0, 1])
    """
    return numbers // EPOCH * PERSONS + np.minimum(numbers % EPOCH, PERSONS - 1)


def last_auction(numbers: Integers) -> Integers:
    """The latest auction when each event happens, counted from 0; -1 before the first.

    >>> last_auction(np.array([0, 1, 3, 49, 50, 51]))
    array([-1,  0,  2,  2,  2,  3])
    """
    return numbers // EPOCH * AUCTIONS + np.clip(numbers % EPOCH - PERSONS, -1, AUCTIONS - 1)


def _some_person(numbers: Integers, random: np.random.Generator) -> Integers:
    people = last_person(numbers) + 1
    active = np.minimum(people, ACTIVE)
    return people - active + random.integers(0, active + LEAD)


def _some_auction(numbers: Integers, random: np.random.Generator) -> Integers:
    last = last_auction(numbers)
    first = np.maximum(last - IN_FLIGHT, 0)
    return first + random.integers(0, last - first + 1 + LEAD)


def _persons(settings: Settings, numbers: Integers, random: np.random.Generator) -> pa.Table:
    count = len(numbers)
    name = pc.binary_join_element_wise(
        _choice(GIVEN_NAMES, count, random), _choice(FAMILY_NAMES, count, random), " "
    )
    email = pc.binary_join_element_wise(_words(count, 7, random), "@", _words(count, 5, random), ".com", "")
    card = pc.binary_join_element_wise(*(_digits(count, random) for _ in range(4)), " ")
    city, state = _choice(CITIES, count, random), _choice(STATES, count, random)
    used = 8 + _lengths(pc.binary_join_element_wise(name, email, card, city, state, ""))
    return pa.table(
        {
            "id": last_person(numbers) + FIRST_ID,
            "name": name,
            "email_address": email,
            "credit_card": card,
            "city": city,
            "state": state,
            "date_time": _timestamps(settings.times(settings.adjusted(numbers))),
            "extra": _extra(used, PERSON_BYTES, random),
        }
    )


def _auctions(settings: Settings, numbers: Integers, random: np.random.Generator) -> pa.Table:
    count = len(numbers)
    hot = random.integers(0, 4, count) > 0
    seller = np.where(hot, last_person(numbers) // HOT_GROUP * HOT_GROUP, _some_person(numbers, random))
    adjusted = settings.adjusted(numbers)
    times = settings.times(adjusted)
    horizon = settings.times(adjusted + IN_FLIGHT * EPOCH // AUCTIONS) - times
    expires = times + 1 + random.integers(0, np.maximum(2 * horizon, 1))
    initial = _prices(count, random)
    name, description = _words(count, 20, random), _words(count, 100, random)
    used = _lengths(name) + _lengths(description) + 48
    return pa.table(
        {
            "id": last_auction(numbers) + FIRST_ID,
            "item_name": name,
            "description": description,
            "initial_bid": initial,
            "reserve": initial + _prices(count, random),
            "date_time": _timestamps(times),
            "expires": _timestamps(expires),
            "seller": seller + FIRST_ID,
            "category": random.choice(np.array(CATEGORIES), count),
            "extra": _extra(used, AUCTION_BYTES, random),
        }
    )


def _bids(settings: Settings, numbers: Integers, random: np.random.Generator) -> pa.Table:
    count = len(numbers)
    hot = random.integers(0, 2, count) > 0
    auction = np.where(hot, last_auction(numbers) // HOT_GROUP * HOT_GROUP, _some_auction(numbers, random))
    hot = random.integers(0, 4, count) > 0
    bidder = np.where(hot, last_person(numbers) // HOT_GROUP * HOT_GROUP + 1, _some_person(numbers, random))
    hot = random.integers(0, 2, count) > 0
    place = np.where(hot, random.integers(0, len(HOT_CHANNELS), count), random.integers(0, CHANNELS, count))
    channels, urls = channel_table(settings.seed)
    place = pa.array(np.where(hot, place, place + len(HOT_CHANNELS)))
    return pa.table(
        {
            "auction": auction + FIRST_ID,
            "bidder": bidder + FIRST_ID,
            "price": _prices(count, random),
            "channel": channels.take(place),
            "url": urls.take(place),
            "date_time": _timestamps(settings.times(settings.adjusted(numbers))),
            "extra": _extra(np.full(count, 32), BID_BYTES, random),
        }
    )


@cache
def channel_table(seed: int) -> tuple[pa.Array, pa.Array]:
    """The channels and their URLs: the hot ones first; one in ten of the others has no id in its URL."""
    random = np.random.default_rng([seed, 1])
    count = len(HOT_CHANNELS) + CHANNELS
    base = pc.binary_join_element_wise(
        "https://www.nexmark.com",
        *(_path_part(count, random) for _ in range(3)),
        "item.htm?query=1",
        "/",
    )
    # The bits of a number in reverse order, as an integer with a sign, give numbers that look random.
    reversed_bits = [int(f"{number:032b}"[::-1], 2) for number in range(CHANNELS)]
    ids = [abs(bits - 2**32 if bits >= 2**31 else bits) for bits in reversed_bits]
    known = random.integers(0, 10, CHANNELS) > 0
    suffix = [f"&channel_id={number}" if has else "" for number, has in zip(ids, known, strict=True)]
    names = [*HOT_CHANNELS, *(f"channel-{number}" for number in range(CHANNELS))]
    urls = pc.binary_join_element_wise(base, pa.array([""] * len(HOT_CHANNELS) + suffix), "")
    return pa.array(names), urls


def side_input() -> pa.Table:
    """The bounded table of query 13: numbers and their text.

    >>> side_input().num_rows
    10000
    """
    keys = np.arange(SIDE_ROWS, dtype=np.int64)
    return pa.table({"key": keys, "value": pc.cast(pa.array(keys), pa.string())})


def _prices(count: int, random: np.random.Generator) -> Integers:
    return np.round(10.0 ** (random.random(count) * 6.0) * 100.0).astype(np.int64)


def _timestamps(millis: Integers) -> pa.Array:
    return pa.array(millis * 1_000).cast(_TIME)


def _choice(values: tuple[str, ...], count: int, random: np.random.Generator) -> pa.Array:
    return pa.array(values).take(pa.array(random.integers(0, len(values), count)))


def _digits(count: int, random: np.random.Generator) -> pa.Array:
    return pc.utf8_lpad(pc.cast(pa.array(random.integers(0, 10_000, count)), pa.string()), 4, "0")


def _lengths(texts: pa.Array) -> Integers:
    lengths: Integers = pc.binary_length(texts).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths


@cache
def _pool(spaces: bool) -> npt.NDArray[np.uint8]:
    """Random letters of which texts are cut out; one in 13 is a space on request."""
    random = np.random.default_rng([2, spaces])
    letters = _LETTERS[random.integers(0, 26, 1 << 20)]
    return (
        np.where(random.integers(0, 13, len(letters)) == 0, np.uint8(ord(" ")), letters)
        if spaces
        else letters
    )


def _cut(lengths: Integers, random: np.random.Generator, *, spaces: bool) -> pa.Array:
    pool = _pool(spaces)
    starts = random.integers(0, len(pool) - lengths.max(initial=0), len(lengths))
    ends = np.cumsum(lengths)
    within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths, lengths)
    letters = pool[np.repeat(starts, lengths) + within]
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    return pa.StringArray.from_buffers(len(lengths), pa.py_buffer(offsets), pa.py_buffer(letters))


def _words(count: int, longest: int, random: np.random.Generator) -> pa.Array:
    """Letters and spaces, at least 3 and fewer than ``longest``; spaces at the ends are removed."""
    return pc.utf8_trim_whitespace(_cut(random.integers(3, longest, count), random, spaces=True))


def _path_part(count: int, random: np.random.Generator) -> pa.Array:
    return pc.replace_substring(_cut(random.integers(3, 5, count), random, spaces=True), " ", "_")


def _extra(used: Integers, average: int, random: np.random.Generator) -> pa.Array:
    """Letters that make an event of ``used`` bytes as long as the average, plus or minus a fifth of them."""
    wanted = np.maximum(average - used, 0)
    delta = np.round(wanted * 0.2).astype(np.int64)
    return _cut(wanted - delta + random.integers(0, np.maximum(2 * delta, 1)), random, spaces=False)


def batches(settings: Settings, batch: int) -> Iterator[dict[str, pa.Table]]:
    """The events in micro-batches of this many events."""
    for start in range(0, settings.events, batch):
        yield tables(settings, start, start + batch)


def write(settings: Settings, batch: int, folder: Path) -> None:
    """Write a folder per table, in which file ``n`` has the rows of micro-batch ``n``, in two row groups."""
    for name in TABLES:
        (folder / name).mkdir(parents=True)
    for number, parts in enumerate(batches(settings, batch)):
        for name, table in parts.items():
            path = folder / name / f"{number:05}.parquet"
            pq.write_table(table, path, row_group_size=max(-(-table.num_rows // 2), 1))
            # Spark reads files in the order of their modification times.
            os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    pq.write_table(side_input(), folder / "side_input.parquet")
