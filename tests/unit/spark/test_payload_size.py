"""The payload for a bucket contains nothing of the rows that go to other buckets."""

from __future__ import annotations

from random import Random

import polars as pl
import pytest

from slackwater.spark.wire.buffers import pack, unpack

RANDOM = Random(7)
TEXTS = [RANDOM.randbytes(50).hex() for _ in range(2_000)]


@pytest.mark.parametrize(
    "column",
    [TEXTS, [{"name": text} for text in TEXTS], [[text] for text in TEXTS]],
    ids=["text", "struct", "list"],
)
def test_the_payload_of_some_rows_has_their_size(column: list[object]) -> None:
    rows = pl.DataFrame({"value": column})
    some = rows[::50]
    assert len(pack(some)) < len(pack(rows)) / 20
    assert unpack(pack(some)).equals(some)
