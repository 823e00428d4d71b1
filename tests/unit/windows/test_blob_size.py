"""The size of a blob depends on the rows in it, not on those that they were selected from."""

from __future__ import annotations

from random import Random
from typing import Any

import polars as pl
import pytest

from slackwater.windows import Global, Last, WindowedOperator, always
from slackwater.windows.engine.blobs import decode, encode
from tests.support.recording_store import RecordingStore

RANDOM = Random(7)
ROWS = 2_000
VALUES: dict[str, tuple[list[Any], pl.DataType | None]] = {
    "text": ([RANDOM.randbytes(50).hex() for _ in range(ROWS)], None),
    "binary": ([RANDOM.randbytes(50) for _ in range(ROWS)], None),
    "struct": ([{"name": RANDOM.randbytes(50).hex()} for _ in range(ROWS)], None),
    "list of text": ([[RANDOM.randbytes(25).hex()] * 2 for _ in range(ROWS)], None),
    "array of text": (
        [[RANDOM.randbytes(25).hex()] * 2 for _ in range(ROWS)],
        pl.Array(pl.String, 2),
    ),
    "numbers": ([[RANDOM.getrandbits(60) for _ in range(10)] for _ in range(ROWS)], None),
}


@pytest.mark.parametrize("kind", VALUES)
def test_the_blob_of_some_rows_has_their_size(kind: str) -> None:
    values, dtype = VALUES[kind]
    rows = pl.DataFrame({"value": pl.Series(values, dtype=dtype)})
    whole = len(encode(rows))
    for some in (rows[::50], rows[100:140], rows.filter(pl.int_range(pl.len()) % 50 == 3)):
        blob = encode(some)
        assert len(blob) < whole / 20
        assert decode(blob, "rows").equals(some)
        assert decode(blob, "rows").schema == some.schema


def test_a_blob_that_was_read_and_divided_has_the_size_of_its_rows() -> None:
    read = decode(encode(pl.DataFrame({"value": VALUES["text"][0]})), "rows")
    assert len(encode(read[:40])) < len(encode(read)) / 20


def test_results_do_not_store_the_rows_that_they_replaced() -> None:
    operator = WindowedOperator(
        window=Global(),
        trigger=always(),
        accumulations={"last": Last("named")},
        key=("key",),
        event_time="ts",
        mode="accumulating",
    )
    named = VALUES["struct"][0]
    rows = pl.DataFrame({"key": [number % 20 for number in range(ROWS)], "ts": range(ROWS), "named": named})
    store = RecordingStore()
    _, output = operator.step(operator.initial_state(store), rows, {}, now=0)
    assert output.panes.sort("key")["last"].to_list() == named[-20:]
    assert sum(map(len, store.blobs.values())) < len(encode(rows)) / 10
