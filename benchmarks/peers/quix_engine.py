"""`python -m benchmarks.peers.quix_engine`: the windows in Quix Streams, from a Kafka topic to a CSV file.

Quix Streams reads from Kafka only. The broker is the one that librdkafka has for tests: it runs in a process
here that also sends the rows of the Parquet files, as JSON. It keeps few messages, so rows are sent only a
little ahead of those that were processed.
"""

from __future__ import annotations

import json
import multiprocessing
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from confluent_kafka import Producer
from quixstreams import Application
from quixstreams.dataframe.windows import Count, Max, Min, Sum
from quixstreams.models.topics import TopicAdmin, TopicConfig, TopicManager

from benchmarks.announcements import announced_run
from benchmarks.peers.workloads import LAG, Job, parse_job

TOPIC = "bids"
GROUP = "peers"
AHEAD = 40_000
"""How many rows are sent ahead of those that were processed."""


def serve(folder: Path, address: Connection, processed: Synchronized[int]) -> None:
    """Run the broker, and send all rows."""
    broker = Producer({"test.mock.num.brokers": 1})
    known = broker.list_topics(timeout=10).brokers.values()
    servers = ",".join(f"{one.host}:{one.port}" for one in known)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20})
    producer.list_topics(TOPIC, timeout=10)
    address.send(servers)
    sent = 0
    for path in sorted(folder.glob("*.parquet")):
        for batch in pq.ParquetFile(path).iter_batches(5_000):
            while sent - processed.value > AHEAD:
                time.sleep(0.005)
            for auction, price, millis in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                value = json.dumps({"price": price, "millis": millis})
                producer.produce(TOPIC, key=str(auction), value=value, timestamp=millis)
            producer.flush()
            sent += batch.num_rows
    address.recv()


class MockAdmin(TopicAdmin):
    """Describes topics without their configuration, which the broker for tests cannot return."""

    def inspect_topics(self, topic_names: list[str], timeout: float = 30) -> dict[str, TopicConfig | None]:
        """The number of partitions of each topic."""
        known = self.list_topics(timeout=timeout)
        return {
            name: TopicConfig(len(known[name].partitions), 1, extra_config={"retention.ms": "-1"})
            if name in known
            else None
            for name in topic_names
        }


def windowed(job: Job, rows: Any) -> Any:
    """The windows; the key of a row is that of its message."""
    size = timedelta(milliseconds=job.window.size)
    if job.window.sessions:
        windows = rows.session_window(size, grace_ms=LAG)
    elif job.window.every is not None:
        windows = rows.hopping_window(size, timedelta(milliseconds=job.window.every), grace_ms=LAG)
    else:
        windows = rows.tumbling_window(size, grace_ms=LAG)
    values = {"bids": Count(), "total": Sum("price"), "best": Max("price"), "first": Min("millis")}
    return windows.agg(**values).final(closing_strategy="partition")


def run(job: Job, servers: str, processed: Synchronized[int], state: str) -> None:
    """Process as many messages as there are rows."""
    rows = sum(pq.ParquetFile(path).metadata.num_rows for path in (job.data / "parquet").glob("*.parquet"))
    app = Application(
        broker_address=servers,
        consumer_group=GROUP,
        auto_offset_reset="earliest",
        auto_create_topics=False,
        use_changelog_topics=False,
        state_dir=state,
        loglevel="WARNING",
        topic_manager=TopicManager(MockAdmin(servers), GROUP, auto_create_topics=False),
    )
    topic = app.topic(TOPIC, value_deserializer="json", key_deserializer="str")
    with (job.output / "all.csv").open("w", encoding="ascii") as lines:
        frame = windowed(job, app.dataframe(topic).update(_counting(processed, rows, app.stop)))
        frame.update(
            lambda value, key, *_: lines.write(
                f"{key},{value['first'] if job.window.sessions else value['start']},"
                f"{value['bids']},{value['total']},{value['best']}\n"
            ),
            metadata=True,
        )
        app.run()


def _counting(processed: Synchronized[int], rows: int, stop: Callable[[], None]) -> Callable[[Any], None]:
    """Count messages, and stop with the last one."""
    number = 0

    def count(_: Any) -> None:
        nonlocal number
        number += 1
        if number % 1_000 == 0 or number == rows:
            processed.value = number
        if number == rows:
            stop()

    return count


def main() -> None:
    """The command."""
    job = parse_job()
    processes = multiprocessing.get_context("spawn")
    address, other = processes.Pipe()
    processed = processes.Value("q", 0)
    broker = processes.Process(target=serve, args=(job.data / "parquet", other, processed))
    broker.start()
    servers = address.recv()
    with announced_run(), tempfile.TemporaryDirectory(prefix="slackwater-peers-") as state:
        run(job, servers, processed, state)
    address.send("end")
    broker.join()


if __name__ == "__main__":
    main()
