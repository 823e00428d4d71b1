"""Rows are sorted as by two columns, key and time, whether or not these are packed into one."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from slackwater.windows.engine.frames import sort_by_key

_ROWS = 5_000
_RNG = np.random.default_rng(20261119)
_NUMBERS = _RNG.integers(0, 300, _ROWS)
_TIMES = 1_600_000_000_000_000 + _RNG.integers(0, 2_000, _ROWS)

KEYS = {
    "integers": pl.Series(_NUMBERS),
    "constant": pl.Series([7] * _ROWS),
    "narrow, negative": pl.Series((_NUMBERS % 256 - 128).astype(np.int8)),
    "lowest of 64 bits": pl.Series([int(number) - 2**63 for number in _NUMBERS]),
    "highest of 64 bits": pl.Series([2**64 - 1 - int(number) for number in _NUMBERS], dtype=pl.UInt64),
    "all of 64 bits": pl.Series([(-(2**63), 2**63 - 1)[number % 2] for number in _NUMBERS], dtype=pl.Int64),
    "with nulls": pl.Series([None if number < 9 else int(number) for number in _NUMBERS], dtype=pl.Int64),
    "text": pl.Series([f"user-{number}" for number in _NUMBERS]),
    "text with nulls": pl.Series([None if number < 9 else f"user-{number}" for number in _NUMBERS]),
    "booleans": pl.Series(_NUMBERS % 2 == 0),
    "fractions": pl.Series(np.where(_NUMBERS < 9, np.nan, _NUMBERS / 3)),
}
TIMES = {
    "close": pl.Series(_TIMES),
    "before 1970": pl.Series(_TIMES - 2 * 1_600_000_000_000_000),
    "as far apart as valid times are": pl.Series(np.where(_TIMES % 2, -(2**62), 2**62)),
}


@pytest.mark.parametrize("times", TIMES.values(), ids=TIMES)
@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
def test_it_is_a_stable_sort_by_key_and_time(keys: pl.Series, times: pl.Series) -> None:
    """Each key's rows are together, in order of time, and those of one time in their own order."""
    frame = pl.DataFrame({"key": keys, "time": times}).with_row_index("row")
    found = sort_by_key(frame, ["key"], "time")
    runs = found["key"].rle_id()
    assert runs.n_unique() == found["key"].n_unique()
    expected = frame.sort("key", "time", maintain_order=True)
    by_key = [
        one.group_by("key", maintain_order=True).agg("time", "row").sort("key") for one in (found, expected)
    ]
    assert by_key[0].equals(by_key[1])


def test_texts_are_in_the_order_in_which_they_first_occur() -> None:
    """The same rows have the same order in every process."""
    frame = pl.DataFrame({"key": KEYS["text"], "time": TIMES["close"]})
    found = sort_by_key(frame, ["key"], "time")["key"].rle().struct.field("value")
    assert found.to_list() == list(dict.fromkeys(frame["key"]))


def test_several_keys_are_sorted_as_columns() -> None:
    """Two keys are not packed."""
    frame = pl.DataFrame({"a": _NUMBERS, "b": _NUMBERS % 7, "time": _TIMES}).with_row_index("row")
    assert sort_by_key(frame, ["b", "a"], "time").equals(frame.sort("b", "a", "time", maintain_order=True))


def test_few_rows_are_sorted_as_columns() -> None:
    """The result is the same below the number of rows from which keys are packed."""
    frame = pl.DataFrame({"key": _NUMBERS, "time": _TIMES}).with_row_index("row").head(999)
    assert sort_by_key(frame, ["key"], "time").equals(frame.sort("key", "time", maintain_order=True))
