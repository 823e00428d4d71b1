"""A metadata store as real use leaves it: a job with failed and owed units, and a stalled stream."""

from __future__ import annotations

from pathlib import Path

from slackwater.ingest import History, Job, load_job, plan
from slackwater.ingest.ledger.job_lease import JobLease
from slackwater.ingest.ledger.progress_ledger import read_history
from slackwater.ingest.ledger.run_ledger import Outcome, Run
from slackwater.metadata.store import MetadataStore, open_store
from slackwater.streams.log.catalog import Streams
from slackwater.streams.log.reader_group import ReaderGroup
from slackwater.streams.log.writer import Writer
from slackwater.streams.maintenance.controller import Controller
from slackwater.streams.segments.epochs import split_range
from slackwater.streams.settings import MarkSettings, StreamSettings
from slackwater.time import DAY, MINUTE, SECOND, format_instant

JOB = """
ms.job.name: orders
ms.watermark: [{{name: ordered, type: datetime, range: {{from: {first}, to: P0D}}}},
               {{name: country, type: unit, units: [DK, "NO", SE]}}]
ms.work.unit.partition: daily
ms.grace.period.days: 2
"""
ERROR = "ConnectionError: <b>db.example</b> refused the connection"
DAYS = 20


def job_file(folder: Path, now: int) -> Path:
    """The job file of a job that began `DAYS` days ago."""
    path = folder / "orders.yaml"
    path.write_text(JOB.format(first=format_instant(now - DAYS * DAY)[:10]), encoding="utf-8")
    return path


def fill_ledger(store: MetadataStore, job: Job, now: int) -> None:
    """Run the job three times, the last time a day ago: the reads of SE fail since then."""
    for number, at in enumerate((now - 3 * DAY, now - 3 * DAY + MINUTE, now - DAY)):
        known = History() if number == 0 else _history(store, job)
        lease = JobLease(store, job.settings.name)
        with lease:
            run = Run(store, lease, job.settings.axis.name, clock=lambda at=at: at)  # type: ignore[misc]
            for index, work in enumerate(plan(job, known, at).units):
                fails = "SE" in work.unit.key and (number == 2 or work.start > now - 5 * DAY)
                run.begin(work)
                outcome = Outcome(
                    index, work.start, work.unit.key, work.low, work.high, "failed" if fails else "succeeded",
                    0 if fails else 1_000 + 37 * index, 0 if fails else 64_000 + 911 * index,
                    at + index * SECOND, at + index * SECOND + 700_000, ERROR if fails else None,
                )  # fmt: skip
                run.record(work, outcome)
            run.end("failed")


def _history(store: MetadataStore, job: Job) -> History:
    name, watermark = job.settings.name, job.settings.axis.name
    return store.read(lambda connection: read_history(connection, name, watermark))


def fill_streams(url: str, now: int) -> None:
    """A stream that was split and merged; its writer gateway-2 stalls and holds the mark back."""
    at = now - 30 * MINUTE
    with Streams.open(url, clock=lambda: at) as streams:
        settings = StreamSettings(marks=MarkSettings(timeout="20 minutes"))
        bids = streams.create("shop/bids", settings=settings)
        streams.create("shop/empty", segments=3)
        controller = Controller(streams, name="controller-1")
        group = ReaderGroup(bids, "totals")
        with Writer(bids, "gateway-1") as first, Writer(bids, "gateway-2") as second:
            for minute in range(29):
                at = now - (30 - minute) * MINUTE
                if minute == 10:
                    (whole,) = bids.epochs().active
                    bids.scale([whole.id], split_range((whole.low, whole.high), 3))
                if minute == 20:
                    low, middle, _ = bids.epochs().active
                    bids.scale([low.id, middle.id], [(low.low, middle.high)])
                for number in range(20):
                    first.write(b"bid", key=f"{minute}-{number}")
                first.flush()
                first.note_time(at)
                if minute < 29 - 4:
                    second.note_time(at - 3 * SECOND)
                controller.step()
            with group.reader("reader-1") as reader:
                for _ in range(3):
                    reader.read()
                reader.checkpoint()
            # leaves both writers open, as a crash would
            first.close = second.close = lambda: None  # type: ignore[method-assign]


def fill(url: str, folder: Path, now: int) -> Path:
    """Fill a store with both, and return the job file."""
    path = job_file(folder, now)
    with open_store(url, create=True) as store:
        fill_ledger(store, load_job(path), now)
    fill_streams(url, now)
    return path
