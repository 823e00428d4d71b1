"""A metadata store as real use leaves it: queries, a job with failed units, and a stalled stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from slackwater.ingest import History, Job, load_job, plan
from slackwater.ingest.ledger.job_lease import JobLease
from slackwater.ingest.ledger.progress_ledger import read_history
from slackwater.ingest.ledger.run_ledger import Outcome, Run
from slackwater.metadata.store import MetadataStore, open_store
from slackwater.monitoring.events import BatchFinished, Event, OperatorChanges, RunEnded, RunStarted
from slackwater.monitoring.origins import OriginState, OriginSummary
from slackwater.monitoring.query_state import (
    BufferState,
    LateRow,
    OpenWindows,
    OperatorSnapshot,
    WatermarkState,
    WindowPanes,
)
from slackwater.monitoring.record_tables import RecordTables
from slackwater.progress.delays import DelayHistogram
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
DAYS = 9
MARKUP = "<script>document.title = 'scripted'</script>\"'&"
ODD_NAMES = (MARKUP, "x" * 10_000)
"""Names that must not break or script a page."""


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
            for minute in range(0, 29, 2):
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


def fill_queries(store: MetadataStore, now: int, names: Sequence[str] = ODD_NAMES) -> None:
    """Batches of two queries: in `orders`, partition 7 is silent for six minutes; `clicks` has failed."""
    tables, events = RecordTables(), list[Event]()
    events.append(RunStarted("5f0c", "run-1", "orders", now - 40 * MINUTE))
    for number in range(40):
        at = now - (40 - number) * MINUTE + 50 * SECOND
        silent = min(at, now - 6 * MINUTE) - 7 * SECOND
        events.append(_batch(number, at, silent, names))
    events.append(RunStarted("77aa", "run-2", "clicks", now - 9 * MINUTE))
    events.append(RunEnded("77aa", "run-2", now - 8 * MINUTE, "ValueError: <i>price</i> is negative"))
    store.write(lambda connection: tables.write(connection, events, now=now - 10 * SECOND))


def _batch(number: int, at: int, watermark: int, names: Sequence[str]) -> BatchFinished:
    stands = watermark < at - 8 * SECOND
    held = "partition '7'" if stands else "partition '2'"
    since = watermark + 9 * SECOND if stands else None
    ahead = {str(index): at - (index + 1) * SECOND for index in range(7)}
    origins = [OriginState(name, "active", {"default": reached}) for name, reached in ahead.items()]
    origins += [
        OriginState("7", "silent" if stands else "active", {"default": watermark}, since=since),
        OriginState(names[0], "idle", {"default": at - 3 * MINUTE}, since=at - 2 * MINUTE),
        OriginState(names[1], "gap", {"default": watermark + 2 * SECOND}, gap="gap at sequence 4"),
    ]
    counts = dict(Counter(str(origin.status) for origin in origins))
    summary = OriginSummary(counts, tuple(sorted(origins, key=lambda origin: origin.watermark or 0)))
    ends = range(watermark - watermark % MINUTE + MINUTE, at - at % MINUTE + 2 * MINUTE, MINUTE)
    windows = tuple(
        OpenWindows(end, end - MINUTE, keys=40, bytes=9_000, owes_pane=True, closes_at=end + 2 * MINUTE)
        for end in ends
    )
    key = WatermarkState("default", watermark, "slowest", held, since, f"held back by {held}")
    source = OperatorSnapshot(
        "0.0", at, watermark, "slowest", held, since, f"watermark held back by {held}", at - watermark, None,
        open_windows=len(windows), waiting=ends[0], keys=(key,), origins=summary,
        windows=windows,
        totals={"early": 4 * number, "on_time": 40 * number, "late": number, "dropped_late": 3 * number},
    )  # fmt: skip
    last = OperatorSnapshot(
        "0", at, watermark - 20 * SECOND, "slowest", held, since, f"watermark held back by {held}",
        at - watermark + 20 * SECOND, at - watermark, open_windows=2,
        keys=(WatermarkState("default", watermark - 20 * SECOND, "slowest", held, since),),
        totals={"on_time": 12 * number}, buffers={"left": BufferState(120 + number, 9_000)},
    )  # fmt: skip
    late = LateRow(
        "late", at, "3", watermark - 70 * SECOND, watermark - 2 * MINUTE, watermark - MINUTE, MINUTE,
        watermark, held, values=None if number % 2 else {"shop": "<img src=x onerror=alert(1)>"},
    )  # fmt: skip
    delays = {
        name: DelayHistogram.of(
            ((13 * number + 7 * row) % (8 + int(name)) + 1) ** 4 * 2_000 for row in range(20)
        )
        for name in (*ahead, "7")
    }
    panes = (WindowPanes(ends[0] - MINUTE, ends[0] - 2 * MINUTE, early=3, on_time=40, late=number % 3),)
    changes = OperatorChanges(delays=delays, late_rows=(late,), panes=panes)
    return BatchFinished(
        "5f0c", "run-1", "orders", at, number, 240_000, 800, 5_000_000, (last, source), {"0.0": changes}
    )


def fill(url: str, folder: Path, now: int, names: Sequence[str] = ODD_NAMES) -> Path:
    """Fill a store with all three, and return the job file; two origins have the given names."""
    path = job_file(folder, now)
    with open_store(url, create=True) as store:
        fill_ledger(store, load_job(path), now)
        fill_queries(store, now, names)
    fill_streams(url, now)
    return path
