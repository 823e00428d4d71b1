"""Large blobs are read from copies in files; without usable files, from Spark's state store."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession

import slackwater as sw
from slackwater.spark.wire.clock_source import Ticks
from slackwater.time import SECOND
from tests.spark.running import Batch, collector, run_available, write

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("key", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("text", pa.string())])
KEYS = 4_000
CHANGED = 1_000
"""The keys of each batch after the first."""
TEXT = 400
"""The length of each text."""


class Texts:
    """The latest text of each key, by a query that is started anew for each batch."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._random = Random(1)
        self._found: dict[int, list[Row]] = {}
        self._files = 0
        self.expected: dict[int, str] = {}

    def batch(self, keys: int) -> tuple[dict[int, str], dict[int, str], int]:
        """Send a batch; return the emitted texts, the expected ones, and the bytes read from the store."""
        changed = self._random.sample(range(KEYS), keys)
        # random text, which does not compress; an old row must not replace the text of a later one
        rows = [(key, self._files, self._random.randbytes(TEXT // 2).hex()) for key in changed]
        outdated = [(key, -1, "outdated") for key in changed[: keys // 2]]
        write(self._folder / "in", self._files, Batch([*rows, *outdated], 0, None), SCHEMA)
        self.expected |= {key: text for key, _, text in rows}
        self._files += 1
        schema = self._spark.read.parquet(str(self._folder / "in")).schema
        files = self._spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        clock = Ticks(tuple(number * SECOND for number in range(self._files)))
        stream = sw.stream(
            files.parquet(str(self._folder / "in")), event_time="at", watermark=sw.lag("1 day"), clock=clock
        )
        keyed = stream.key_by("key").window(sw.global_window()).trigger(sw.always())
        panes = keyed.agg(text=sw.last("text"), rows=sw.count()).to_df()
        query = run_available(panes, self._folder / "checkpoint", collector(self._found))
        last = json.loads(query.recentProgress[-1].json)
        assert last["batchId"] == self._files - 1
        (operator,) = last["stateOperators"]
        found = {row["key"]: row["text"] for row in self._found[last["batchId"]]}
        assert len(found) == len(self._found[last["batchId"]])
        expected = {key: self.expected[key] for key in changed}
        return found, expected, operator["customMetrics"]["rocksdbTotalBytesRead"]


def local_folder(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        yield pa.record_batch({"folder": [os.environ["SPARK_LOCAL_DIRS"].split(",")[0]]})


@pytest.fixture
def copies(spark: SparkSession) -> Path:
    """The folder of the copies of this session."""
    (row,) = spark.range(1, numPartitions=1).mapInArrow(local_folder, "folder string").collect()
    return Path(row.folder, "slackwater-blobs")


def test_copies_replace_reads_from_the_store(spark: SparkSession, tmp_path: Path, copies: Path) -> None:
    others = set(copies.glob("*"))
    texts = Texts(spark, tmp_path)
    found, expected, _ = texts.batch(KEYS)
    assert found == expected
    assert copies.stat().st_mode & 0o777 == 0o700
    size = sum(copy.stat().st_size for copy in set(copies.iterdir()) - others)
    assert size > TEXT * KEYS // 2, "the texts are in copies"
    for _ in range(2):
        found, expected, read = texts.batch(CHANGED)
        assert found == expected
        assert read < size / 10, "the blobs were not read from the store"


def test_without_usable_copies_the_store_is_read(spark: SparkSession, tmp_path: Path, copies: Path) -> None:
    texts = Texts(spark, tmp_path)
    texts.batch(KEYS)
    reads: list[int] = []
    for damage in (Path.unlink, overwrite):
        for copy in copies.iterdir():
            damage(copy)
        found, expected, read = texts.batch(CHANGED)
        assert found == expected
        reads.append(read)
    assert min(reads) > TEXT * CHANGED // 2, "the blobs were read from the store"
    found, expected, later = texts.batch(CHANGED)
    assert found == expected
    assert later < min(reads) / 2, "what was read from the store has copies again"


def overwrite(copy: Path) -> None:
    copy.write_bytes(bytes(copy.stat().st_size))
