"""Streams: throughput of writers and readers, and the delay from a noted time to a watermark.

Writers are processes of their own, as in use, each with the default batching; a figure is wall time, because
what it costs is waiting for the disk and for the other writers. Whatever was written is read and counted.
"""

from __future__ import annotations

import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.report import Report, best
from slackwater.streams.log.catalog import VALUE, Stream, Streams
from slackwater.streams.log.reader_group import ReaderGroup
from slackwater.streams.log.writer import Writer
from slackwater.streams.maintenance.controller import Controller
from slackwater.streams.settings import MarkSettings, StreamSettings
from slackwater.time import MILLISECOND, format_duration
from tests.spark.postgres import running_server

EVENTS = 2_000_000
SINGLE = 200_000
BYTES = 100
AT_ONCE = 10_000
SEGMENTS = 4
AIM = 300_000
RUNS = 3
NOTES = 50
PERIOD = 10 * MILLISECOND


def run(report: Report) -> None:
    """All sections."""
    with tempfile.TemporaryDirectory(prefix="slackwater-bench-") as folder, running_server() as server:
        urls = {
            "SQLite": f"sqlite:///{folder}/store.db",
            "PostgreSQL": server.create_database("streams"),
        }
        _append(report, urls, folder)
        _read(report, urls)
        _latency(report, urls, folder)


def _payload(seed: int) -> tuple[pa.RecordBatch, pa.Array]:
    """Events of 100 random letters, which no compression makes disappear, with 1,000 routing keys."""
    generator = np.random.default_rng(seed)
    letters = generator.integers(32, 127, size=AT_ONCE * BYTES, dtype=np.uint8)
    offsets = np.arange(0, (AT_ONCE + 1) * BYTES, BYTES, dtype=np.int32)
    values = pa.BinaryArray.from_buffers(
        pa.binary(), AT_ONCE, [None, pa.py_buffer(offsets), pa.py_buffer(letters)]
    )
    keys = pa.array([f"key {number}" for number in generator.integers(0, 1_000, AT_ONCE)])
    return pa.record_batch([values], schema=VALUE), keys


def _write(url: str, name: str, writer: str, events: int, ready: Any, singly: bool) -> None:
    """One writer process; it begins when all are ready."""
    batch, keys = _payload(len(writer))
    values, texts = batch.column(0).to_pylist(), keys.to_pylist()
    with Streams.open(url) as streams, Writer(streams.get(name), writer) as opened:
        ready.wait()
        if singly:
            for number in range(events):
                opened.write(values[number % AT_ONCE], texts[number % AT_ONCE])
        else:
            for _ in range(events // AT_ONCE):
                opened.write_many(batch, keys)
        opened.flush()
        ready.wait()


def _append(report: Report, urls: dict[str, str], folder: str) -> None:
    section = report.section(
        "Streams: storing events",
        f"{BYTES}-byte events with routing keys into {SEGMENTS} segments, default batching; wall time from "
        f"the first write until the last one is on the disk, best of {RUNS}. `write_many` in batches of "
        f"{AT_ONCE:,}.",
        ("store", "writers", "call", "events", "events/s", "MB/s"),
    )
    single = 0.0
    for store, url in urls.items():
        with Streams.open(url, create=True) as streams:
            for writers, singly in ((1, False), (4, False), (1, True)):
                name = f"bench/append-{writers}-{'single' if singly else 'many'}"
                each = (SINGLE if singly else EVENTS) // writers
                stored = each * writers
                seconds = []
                for attempt in range(RUNS):
                    if attempt:
                        streams.delete(name)
                    stream = streams.create(name, segments=SEGMENTS, data=f"{folder}/{store}")
                    seconds.append(_together(url, name, writers, each, singly))
                    found = sum(offset for _, offset in stream.tail().items())
                    assert found == stored, f"{found} events are there"
                rate = stored / best(seconds)
                if store == "SQLite" and writers == 1 and not singly:
                    single = rate
                call = "write" if singly else "write_many"
                section.row(store, writers, call, stored, round(rate), round(rate * BYTES / 1e6))
    section.verdict(f"one writer on SQLite: {round(single):,} events/s (aim: {AIM:,})")
    section.verdict(
        "the limit is that a flush waits for the disk twice: for its file and for its transaction"
    )
    report.show(section)


def _together(url: str, name: str, writers: int, each: int, singly: bool) -> float:
    processes = multiprocessing.get_context("spawn")
    ready = processes.Barrier(writers + 1)
    started = [
        processes.Process(target=_write, args=(url, name, f"writer-{number}", each, ready, singly))
        for number in range(writers)
    ]
    for process in started:
        process.start()
    ready.wait()
    begun = time.perf_counter()
    ready.wait()
    seconds = time.perf_counter() - begun
    for process in started:
        process.join()
        assert process.exitcode == 0
    return seconds


def _read(report: Report, urls: dict[str, str]) -> None:
    section = report.section(
        "Streams: reading through a reader group",
        "The events that one writer stored above, read by one reader, with a checkpoint after every ten "
        "batches; wall time, "
        f"best of {RUNS}.",
        ("store", "events", "events/s", "MB/s"),
    )
    for store, url in urls.items():
        with Streams.open(url) as streams:
            stream = streams.get("bench/append-1-many")
            seconds = []
            for attempt in range(RUNS):
                begun = time.perf_counter()
                count = _drain(stream, f"group-{attempt}")
                seconds.append(time.perf_counter() - begun)
                assert count == EVENTS
            rate = EVENTS / best(seconds)
            section.row(store, EVENTS, round(rate), round(rate * BYTES / 1e6))
    report.show(section)


def _drain(stream: Stream, group: str) -> int:
    count = batches = 0
    with ReaderGroup(stream, group).reader() as reader:
        while (batch := reader.read()) is not None:
            count += batch.events.num_rows
            batches += 1
            if batches % 10 == 0:
                reader.checkpoint()
        reader.checkpoint()
    return count


def _latency(report: Report, urls: dict[str, str], folder: str) -> None:
    section = report.section(
        "Streams: from note_time to a visible watermark",
        f"One writer, one controller in the same process, a period of {format_duration(PERIOD)} instead of "
        f"10 seconds, so that the figure shows the cost of the note, the cycle and the lookup; {NOTES} "
        "notes.",
        ("store", "median ms", "95 % ms", "note_time alone, median ms"),
    )
    for store, url in urls.items():
        settings = StreamSettings(marks=MarkSettings(period=timedelta(microseconds=PERIOD)))
        with Streams.open(url, create=True) as streams:
            stream = streams.create(
                "bench/latency", segments=SEGMENTS, data=f"{folder}/{store}", settings=settings
            )
            seen, noting = [], []
            with _noting(streams, stream) as writer:
                for number in range(1, NOTES + 1):
                    writer.write(b"x")
                    begun = time.perf_counter()
                    assert writer.note_time(number) == "ok"
                    noting.append(time.perf_counter() - begun)
                    while not stream.marks() or stream.marks()[-1].lower < number:
                        time.sleep(0.001)
                    seen.append(time.perf_counter() - begun)
        section.row(
            store,
            f"{statistics.median(seen) * 1e3:.1f}",
            f"{statistics.quantiles(seen, n=20)[-1] * 1e3:.1f}",
            f"{statistics.median(noting) * 1e3:.1f}",
        )
    report.show(section)


@contextmanager
def _noting(streams: Streams, stream: Stream) -> Iterator[Writer]:
    controller = Controller(streams, name="bench", poll="5 milliseconds")
    with controller.running(), Writer(stream, "noting") as writer:
        yield writer
